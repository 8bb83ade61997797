//! What was measured, for a person. Pure.

use std::fmt::Write as _;

use super::case::{Load, Strategy, WatchMode};
use super::report::{Report, number};

/// The columns of [`figures`].
const HEADER: &str = "\
agents case                    restart    first  longest  requests  JobSet  control-       API      peak   per Pod
                                median                              writes   ler CPU   srv CPU    memory     event
";

/// Everything that is printed at the end.
pub(super) fn summary(reports: &[Report]) -> String {
    format!("{}\n{}\n{}{}", figures(reports), phases(reports), bounds(reports), ratios(reports))
}

/// One line for each case: medians over its restarts, and the first and the longest restart.
fn figures(reports: &[Report]) -> String {
    let mut text = String::from(HEADER);
    for report in reports {
        let longest = report.restarts.iter().map(|restart| restart.seconds).fold(0.0, f64::max);
        let event = report.cpu_us_per_event.map_or_else(|| "-".to_owned(), |cost| format!("{cost:.0} us"));
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{:>6} {:<22} {:>6.2} s {:>6.2} s {:>6.2} s {:>9.0} {:>7.0} {:>7.2} s {:>7.2} s {:>5.1} MiB {:>9}",
            report.agents,
            name(report.case.strategy),
            report.median(|restart| restart.seconds),
            report.restarts.first().map_or(0.0, |restart| restart.seconds),
            longest,
            report.median(|restart| number(restart.api_requests)),
            report.median(|restart| number(restart.jobset_writes)),
            report.median(|restart| restart.controller_cpu_seconds),
            report.median(|restart| restart.apiserver_cpu_seconds),
            number(report.controller_peak_rss_kib) / 1024.0,
            event,
        );
    }
    text
}

/// One line for each case: where the time goes.
fn phases(reports: &[Report]) -> String {
    let mut text = String::from("Medians of the phases:\n");
    for report in reports {
        let Some(first) = report.restarts.first() else { continue };
        let parts = first.phases.named().into_iter().enumerate().map(|(index, (phase, _))| {
            let median = report.median(|restart| restart.phases.named()[index].1);
            format!("{phase} {median:.2} s")
        });
        let parts: Vec<String> = parts.collect();
        let _ = writeln!(text, "{:>6} {:<22} {}", report.agents, name(report.case.strategy), parts.join(", "));
    }
    text
}

/// One line for each case: who used the CPUs during the restarts.
fn bounds(reports: &[Report]) -> String {
    let mut text = String::from("Shares of the CPUs during the restarts:\n");
    for report in reports {
        let cpu =
            |of: fn(&super::meter::Cpu) -> f64| report.restarts.iter().map(|restart| of(&restart.cpu)).sum::<f64>();
        let all = cpu(|cpu| cpu.elapsed) * number(report.cpus);
        let known = [
            ("API server", cpu(|cpu| cpu.api_server)),
            ("etcd", cpu(|cpu| cpu.etcd)),
            ("controller", cpu(|cpu| cpu.controller)),
            ("kube-controller-manager", cpu(|cpu| cpu.controller_manager)),
            ("load generator", cpu(|cpu| cpu.load_generator)),
        ];
        let machine = cpu(|cpu| cpu.machine);
        let rest = (machine - known.iter().map(|(_, seconds)| seconds).sum::<f64>()).max(0.0);
        let idle = (all - machine).max(0.0);
        let shares: Vec<String> = known
            .into_iter()
            .chain([("other processes and kernel", rest), ("idle", idle)])
            .map(|(who, seconds)| format!("{who} {:.0} %", 100.0 * seconds / all))
            .collect();
        let _ = writeln!(text, "{:>6} {:<22} {}", report.agents, name(report.case.strategy), shares.join(", "));
    }
    text
}

/// One line for each case of the full load that has a bare one.
fn ratios(reports: &[Report]) -> String {
    let mut text = String::new();
    for report in reports {
        let Some(ratio) = report.ratio_to_bare else { continue };
        let _ = writeln!(
            text,
            "{:>6} full load over bare load: {:.1} times the time, {:.1} times the requests, {:.1} times the CPU of the \
             controller, {:.1} times that of the API server",
            report.agents, ratio.seconds, ratio.api_requests, ratio.controller_cpu_seconds, ratio.apiserver_cpu_seconds
        );
    }
    if text.is_empty() { text } else { format!("\n{text}") }
}

/// A case in a few words.
pub(super) fn name(strategy: Strategy) -> &'static str {
    match strategy {
        Strategy::InPlace { load: Load::Bare, watch: WatchMode::New } => "in place, bare",
        Strategy::InPlace { load: Load::Bare, watch: WatchMode::Kept } => "in place, bare, kept",
        Strategy::InPlace { load: Load::Full, watch: WatchMode::New } => "in place, full",
        Strategy::InPlace { load: Load::Full, watch: WatchMode::Kept } => "in place, full, kept",
        Strategy::Recreate => "Recreate",
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::{in_place, report};
    use super::*;

    #[test]
    fn summary_has_medians_phases_shares_and_the_ratio() {
        let bare = report(100, in_place(Load::Bare), &[2.0, 1.0, 9.0]);
        let mut full = report(100, in_place(Load::Full), &[4.0]);
        full.compare(std::slice::from_ref(&bare));
        let text = summary(&[bare, full]);
        let lines: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert!(
            lines.contains(&"100 in place, bare 2.00 s 2.00 s 9.00 s 10 2 0.20 s 1.00 s 20.0 MiB -".to_owned()),
            "{text}"
        );
        assert!(text.contains("detect 0.00 s, deprecate 0.00 s"), "{text}");
        // Half of the machine's two CPUs was used; of the restart's 12 s on two CPUs the API server had 6.
        assert!(text.contains("API server 25 %, etcd 0 %, controller 5 %"), "{text}");
        assert!(text.contains("load generator 12 %, other processes and kernel 8 %, idle 50 %"), "{text}");
        assert!(text.contains("100 full load over bare load: 2.0 times the time"), "{text}");
    }
}
