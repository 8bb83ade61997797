//! The figures of the stream beside what they are to be at most, and beside the Go manager's. Pure.

use super::case::{Strategy, WatchMode};
use super::report::{CaseFigures, CaseReport, Restart};
use crate::report::{Table, number, rounded};

/// What the figures of one case are to be at most.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Targets {
    /// Median of the seconds to the last lift.
    seconds: Option<f64>,
    /// The same in parts of the Go manager's.
    ratio: Option<f64>,
    /// Memory of the relays and of the controller for each agent, in kB. What a program needs without agents has too large a
    /// part in that of a small group.
    relay_kb: Option<f64>,
    controller_kb: Option<f64>,
    /// CPU of relays and leader together for each agent in a restart, in milliseconds.
    agent_ms: Option<f64>,
    /// Cores that both relays use while nothing happens, and their memory in MB.
    idle: Option<(f64, f64)>,
}

/// CPU seconds of the API server until the last lift, median.
const API_SERVER_SECONDS: f64 = 1.0;
const JOBSET_WRITES: f64 = 2.0;

impl Targets {
    fn of(agents: usize, mode: WatchMode) -> Self {
        let (seconds, ratio, agent_ms) = match mode {
            WatchMode::New => (3.0, 0.13, Some(0.4)),
            WatchMode::Kept => (1.0, 0.03, None),
        };
        let of_large = Self { relay_kb: Some(30.0), controller_kb: Some(1.0), agent_ms, ..Self::default() };
        match agents {
            5_000 => Self { seconds: Some(seconds), ratio: Some(ratio), idle: Some((0.03, 180.0)), ..of_large },
            15_000 => Self { seconds: Some(4.0 * seconds), ..of_large },
            _ => Self::default(),
        }
    }
}

/// A table for the cases of the stream; empty if there are none.
pub(super) fn text(reports: &[CaseReport]) -> String {
    let mut table = Table::new(&["over the stream", "measured", "at most"]);
    let mut is_empty = true;
    for figures in reports.iter().map(|report| &report.figures).filter(|figures| figures.stream.is_some()) {
        is_empty = false;
        add(&mut table, figures);
    }
    if is_empty { String::new() } else { format!("\n\n{table}") }
}

fn add(table: &mut Table, figures: &CaseFigures) {
    let (Some(stream), Strategy::InPlace { watch, .. }) = (&figures.stream, figures.case.strategy) else { return };
    let targets = Targets::of(figures.case.agents, watch);
    let median = |figure: &dyn Fn(&Restart) -> f64| rounded(figures.median(figure), 1e3);
    let seconds = median(&|restart| restart.seconds);
    let kilobytes = |bytes: f64| rounded(bytes / 1e3, 1e2);
    let most_writes = figures.restarts.iter().map(|restart| restart.jobset_writes).max().unwrap_or_default();

    table.line(&[figures.case.to_string()]);
    table.figure("  last lift, median", seconds, targets.seconds, "s");
    match &figures.go {
        Some(go) => table.figure("  the same / Go manager", go.ratio(seconds), targets.ratio, ""),
        None => table.line(&["  the same / Go manager".to_owned(), "not in this run".to_owned()]),
    }
    table.figure("  JobSet writes, most", number(most_writes), Some(JOBSET_WRITES), "");
    let until_lift = |process: &'static str| median(&|restart| restart.cpu.of(process));
    table.figure(
        "  API server CPU until the last lift, median",
        until_lift("api_server"),
        Some(API_SERVER_SECONDS),
        "s",
    );
    table.figure("  relays' CPU until the last lift, median", until_lift("relay"), None, "s");
    let agents = number(figures.case.agents.max(1));
    let milliseconds = median(&|restart| (restart.cpu.of("relay") + restart.cpu.of("controller")) * 1e3 / agents);
    table.figure(
        "  CPU of relays and leader for each agent in a restart, median",
        milliseconds,
        targets.agent_ms,
        "ms",
    );
    let elapsed = rounded(stream.minute.of("elapsed"), 1.0);
    table.figure(
        &format!("  API server CPU in {elapsed} s, with annotations"),
        stream.minute.of("api_server"),
        None,
        "s",
    );
    table.figure("  relays' memory for each agent", kilobytes(stream.relay_bytes_per_agent), targets.relay_kb, "kB");
    table.figure("  the same at the peak", kilobytes(stream.relay_peak_bytes_per_agent), None, "kB");
    let traffic = kilobytes(stream.relay_traffic_bytes_per_agent);
    table.figure("  relays' traffic for each agent in a restart", traffic, None, "kB");
    let controller = kilobytes(stream.controller_bytes_per_agent);
    table.figure("  controller's memory for each agent", controller, targets.controller_kb, "kB");
    let of_minute = |process: &'static str| rounded(stream.idle.cpu.of(process) / stream.idle.cpu.of("elapsed"), 1e4);
    table.figure("  idle: cores of both relays", of_minute("relay"), targets.idle.map(|(cores, _)| cores), "");
    table.figure("  idle: cores of the leader", of_minute("controller"), None, "");
    table.figure("  idle: cores of the API server", of_minute("api_server"), None, "");
    let megabytes = rounded(number(stream.idle.relays_kib) * 1024.0 / 1e6, 1e1);
    table.figure("  idle: memory of both relays", megabytes, targets.idle.map(|(_, megabytes)| megabytes), "MB");
}

#[cfg(test)]
mod tests {
    use super::super::case::Way;
    use super::super::over_stream::{Idle, StreamFigures};
    use super::super::report::GoSeconds;
    use super::super::report::tests::report;
    use super::*;
    use crate::meter::CpuSeconds;
    use crate::report::tests::lines;

    fn of_stream(agents: usize, watch: WatchMode, seconds: f64) -> CaseReport {
        let mut report = report(Way::Stream, watch, &[seconds]);
        report.figures.case.agents = agents;
        report.figures.stream = Some(StreamFigures {
            relay_bytes_per_agent: 31_000.0,
            relay_peak_bytes_per_agent: 32_000.0,
            controller_bytes_per_agent: 900.0,
            relay_traffic_bytes_per_agent: 5_200.0,
            minute: CpuSeconds([("api_server", 4.5), ("elapsed", 60.0012)].into()),
            idle: Idle { cpu: CpuSeconds([("relay", 0.6), ("elapsed", 60.0)].into()), relays_kib: 200_000 },
        });
        report
    }

    #[test]
    fn figures_stand_beside_targets_and_go_manager() {
        let go = [report(Way::Go, WatchMode::New, &[16.0])];
        let mut stream = of_stream(5_000, WatchMode::Kept, 2.0);
        stream.figures.go = GoSeconds::among(&go, 100);
        let text = lines(&text(&[stream]));
        for line in [
            "5000 Pods, in place, stream, kept",
            "last lift, median 2 s 1 s MISSED",
            "the same / Go manager 0.125 0.03 MISSED",
            "JobSet writes, most 2 2 met",
            "API server CPU until the last lift, median 1 s 1 s met",
            "API server CPU in 60 s, with annotations 4.5 s",
            "relays' memory for each agent 31 kB 30 kB MISSED",
            "controller's memory for each agent 0.9 kB 1 kB met",
            "idle: cores of both relays 0.01 0.03 met",
            "idle: memory of both relays 204.8 MB 180 MB MISSED",
        ] {
            assert!(text.iter().any(|it| it == line), "{line}: {text:#?}");
        }
    }

    #[test]
    fn larger_groups_have_fourfold_target_others_none() {
        let text = lines(&text(&[of_stream(15_000, WatchMode::New, 8.0), of_stream(100, WatchMode::New, 8.0)]));
        let lifts: Vec<_> = text.iter().filter(|line| line.starts_with("last lift, median")).collect();
        assert_eq!(lifts, ["last lift, median 8 s 12 s met", "last lift, median 8 s"]);
        assert!(text.contains(&"the same / Go manager not in this run".to_owned()), "{text:?}");
    }

    #[test]
    fn other_ways_are_not_in_the_table() {
        assert_eq!(text(&[report(Way::Go, WatchMode::New, &[1.0])]), "");
    }
}
