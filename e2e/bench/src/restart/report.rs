//! The figures of one case, and the table of all cases.

use std::collections::BTreeMap;

use jobset_harness::median::median;
use serde::Serialize;

use super::case::{Case, Load, Strategy};
use super::jobset::Shape;
use super::requests::ApiRequests;
use crate::meter::CpuSeconds;
use crate::phases::Phases;
use crate::report::{Report, Table, number, rounded};

/// The result of one case.
pub(super) type CaseReport = Report<CaseFigures>;

/// What was measured in one case.
#[derive(Clone, Debug, Serialize)]
pub(super) struct CaseFigures {
    #[serde(flatten)]
    pub(super) case: Case,
    /// replicatedJobs of the JobSet.
    pub(super) shape: Vec<Shape>,
    /// The restarts, in their order.
    pub(super) restarts: Vec<Restart>,
    /// Peak of the controller's resident memory, from its start to the end of the case.
    pub(super) controller_peak_rss_kib: u64,
    #[serde(flatten)]
    pub(super) event_cost: Option<EventCost>,
    #[serde(flatten)]
    pub(super) agents: Option<AgentSetup>,
    /// One Pod as JSON, at the end.
    pub(super) pod_bytes: usize,
    /// The JobSet as JSON, at the end.
    pub(super) jobset_bytes: usize,
    /// Medians of this case over those of the bare load, by figure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) ratio_to_bare: Option<BTreeMap<&'static str, f64>>,
}

/// What one change to a Pod costs.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct EventCost {
    /// CPU of the controller for one change that needs no action, in microseconds.
    pub(super) cpu_us_per_event: f64,
    /// The changes from which that was found.
    pub(super) pod_events: usize,
}

/// The agents of a case.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct AgentSetup {
    /// From the start of the agents to the first lift of the last barrier.
    pub(super) start_seconds: f64,
    /// Their connections to the API server.
    pub(super) connections: usize,
    /// Their concurrent requests, at most.
    pub(super) agent_seats: usize,
}

/// One restart of the group.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Restart {
    /// In place from the failure, visible at the API server, to the last agent that lifted its barrier; by recreation to
    /// the creation of the last Pod.
    pub(super) seconds: f64,
    /// The parts of that.
    pub(super) phases: Phases,
    /// Requests of all clients that the API server answered until the JobSet had settled, with ended watches.
    pub(super) api_requests: u64,
    /// Writes to the JobSet until it had settled.
    pub(super) jobset_writes: usize,
    /// CPU of the controller until the JobSet had settled.
    pub(super) controller_cpu_seconds: f64,
    /// CPU of the API server until the JobSet had settled.
    pub(super) apiserver_cpu_seconds: f64,
    /// The requests by verb and resource.
    pub(super) requests: ApiRequests,
    /// CPU of all processes from the failure to the end of the restart, without what settles afterwards.
    pub(super) cpu: CpuSeconds,
    /// Reports that failed, and that agents repeated.
    pub(super) failed_reports: usize,
}

/// Reads one figure of a restart.
type RestartFigure = fn(&Restart) -> f64;

/// The figures that loads are compared by, as JSON names them.
const COMPARED: [(&str, RestartFigure); 4] = [
    ("seconds", |restart| restart.seconds),
    ("api_requests", |restart| number(restart.api_requests)),
    ("controller_cpu_seconds", |restart| restart.controller_cpu_seconds),
    ("apiserver_cpu_seconds", |restart| restart.apiserver_cpu_seconds),
];

impl CaseFigures {
    /// The median of a figure over the restarts.
    fn median(&self, figure: impl Fn(&Restart) -> f64) -> f64 {
        median(self.restarts.iter().map(figure))
    }
}

/// Sets the ratio of a full load to the bare one of as many agents and the same watches among `others`.
pub(super) fn compare(report: &mut CaseReport, others: &[CaseReport]) {
    let Case { agents, strategy: Strategy::InPlace { load: Load::Full, watch }, .. } = report.figures.case else {
        return;
    };
    let bare = Strategy::InPlace { load: Load::Bare, watch };
    let same = |other: &&CaseReport| (other.figures.case.agents, other.figures.case.strategy) == (agents, bare);
    let Some(bare) = others.iter().find(same) else { return };
    let ratio = |figure| rounded(report.figures.median(figure) / bare.figures.median(figure), 1e2);
    report.figures.ratio_to_bare = Some(COMPARED.into_iter().map(|(name, figure)| (name, ratio(figure))).collect());
}

/// The text that is printed at the end: figures of each case, its phases, and the shares of the CPUs.
pub(super) fn summary(reports: &[CaseReport]) -> String {
    let mut figures = Table::new(&[
        "case",
        "build",
        "median",
        "first",
        "longest",
        "requests",
        "JobSet writes",
        "controller CPU",
        "API server CPU",
        "peak memory",
        "Pod event",
    ]);
    let mut text = vec!["\nMedians of the phases, and shares of the CPUs during the restarts:".to_owned()];
    for report in reports {
        let case = &report.figures;
        let all = || case.restarts.iter().map(|restart| restart.seconds);
        figures.line(&[
            case.case.to_string(),
            report.build.to_owned(),
            format!("{:.2} s", median(all())),
            format!("{:.2} s", all().next().unwrap_or_default()),
            format!("{:.2} s", all().fold(0.0, f64::max)),
            case.median(|restart| number(restart.api_requests)).to_string(),
            case.median(|restart| number(restart.jobset_writes)).to_string(),
            format!("{:.2} s", case.median(|restart| restart.controller_cpu_seconds)),
            format!("{:.2} s", case.median(|restart| restart.apiserver_cpu_seconds)),
            format!("{:.1} MiB", number(case.controller_peak_rss_kib) / 1024.0),
            case.event_cost.map_or_else(|| "-".to_owned(), |cost| format!("{:.0} us", cost.cpu_us_per_event)),
        ]);
        let phases = Phases::medians(case.restarts.iter().map(|restart| &restart.phases));
        text.push(format!("{}: {phases}; {}", case.case, shares(report)));
        if let Some(ratio) = &case.ratio_to_bare {
            let ratio: Vec<String> = ratio.iter().map(|(name, ratio)| format!("{name} {ratio:.1}")).collect();
            text.push(format!("{}: full load over bare load: {}", case.case, ratio.join(", ")));
        }
    }
    figures.to_string() + &text.join("\n")
}

/// Which processes used the CPUs during the restarts.
fn shares(report: &CaseReport) -> String {
    let sum = |of: fn(&CpuSeconds) -> f64| report.figures.restarts.iter().map(|restart| of(&restart.cpu)).sum::<f64>();
    let all = sum(|cpu| cpu.of("elapsed")) * number(report.cpus);
    let shares = [
        ("API server", sum(|cpu| cpu.of("api_server"))),
        ("etcd", sum(|cpu| cpu.of("etcd"))),
        ("controller", sum(|cpu| cpu.of("controller"))),
        ("kube-controller-manager", sum(|cpu| cpu.of("controller_manager"))),
        ("load generator", sum(|cpu| cpu.of("load_generator"))),
        ("other processes and kernel", sum(CpuSeconds::others)),
        ("idle", (all - sum(|cpu| cpu.of("machine"))).max(0.0)),
    ];
    shares.map(|(who, seconds)| format!("{who} {:.0} %", 100.0 * seconds / all)).join(", ")
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use serde_json::{Value, json};

    use super::super::case::WatchMode;
    use super::super::in_place::PHASES;
    use super::*;
    use crate::report::tests::lines;

    /// A case with a restart for each number of seconds, on two CPUs.
    fn report(agents: usize, load: Load, seconds: &[f64]) -> CaseReport {
        let now = Instant::now();
        let restart = |seconds: &f64| Restart {
            seconds: *seconds,
            phases: Phases::new(PHASES, now, [now; 5]),
            api_requests: 10,
            jobset_writes: 2,
            controller_cpu_seconds: seconds / 10.0,
            apiserver_cpu_seconds: seconds / 2.0,
            requests: ApiRequests::default(),
            cpu: CpuSeconds(
                [
                    ("elapsed", *seconds),
                    ("api_server", seconds / 2.0),
                    ("controller", seconds / 10.0),
                    ("load_generator", seconds / 4.0),
                    ("machine", *seconds),
                ]
                .into(),
            ),
            failed_reports: 0,
        };
        let strategy = Strategy::InPlace { load, watch: WatchMode::New };
        let figures = CaseFigures {
            case: Case { agents, strategy, foreign_pods: 0 },
            shape: Vec::new(),
            restarts: seconds.iter().map(restart).collect(),
            controller_peak_rss_kib: 20_480,
            event_cost: None,
            agents: None,
            pod_bytes: 1,
            jobset_bytes: 1,
            ratio_to_bare: None,
        };
        Report { figures, build: "dev", cpus: 2 }
    }

    #[test]
    fn result_has_the_keys_that_others_read() {
        let mut report = report(100, Load::Bare, &[1.5]);
        report.figures.event_cost = Some(EventCost { cpu_us_per_event: 116.0, pod_events: 9 });
        let json = serde_json::to_value(report).unwrap();
        assert_eq!((&json["agents"], &json["strategy"]), (&json!(100), &json!("InPlaceRestart")));
        assert_eq!((&json["load"], &json["watch"]), (&json!("bare"), &json!("new-watch")));
        assert_eq!((&json["build"], &json["cpus"], &json["foreign_pods"]), (&json!("dev"), &json!(2), &json!(0)));
        assert_eq!((&json["controller_peak_rss_kib"], &json["cpu_us_per_event"]), (&json!(20_480), &json!(116.0)));
        let restart = &json["restarts"][0];
        let figures = ["seconds", "api_requests", "jobset_writes", "controller_cpu_seconds", "apiserver_cpu_seconds"];
        assert!(figures.iter().all(|key| restart[key].is_number()), "{restart}");
        assert_eq!(restart["phases"].as_object().unwrap().len(), 5);
        assert_eq!((json.get("ratio_to_bare"), json.get("connections")), (None::<&Value>, None));
        let recreate = serde_json::to_value(Case { agents: 1, strategy: Strategy::Recreate, foreign_pods: 0 }).unwrap();
        assert_eq!(recreate, json!({"agents": 1, "strategy": "Recreate", "foreign_pods": 0}));
    }

    #[test]
    fn full_load_is_compared_with_bare_load_of_as_many_agents() {
        let bare = report(100, Load::Bare, &[1.0, 2.0, 3.0]);
        let other = report(1000, Load::Bare, &[100.0]);
        let mut full = report(100, Load::Full, &[5.0]);
        compare(&mut full, &[other, bare.clone()]);
        assert!((full.figures.ratio_to_bare.unwrap()["seconds"] - 2.5).abs() < 1e-9);
        let mut again = bare.clone();
        compare(&mut again, &[bare]);
        assert_eq!(again.figures.ratio_to_bare, None);
    }

    #[test]
    fn summary_has_medians_phases_shares_and_ratio() {
        let bare = report(100, Load::Bare, &[2.0, 1.0, 9.0]);
        let mut full = report(100, Load::Full, &[4.0]);
        compare(&mut full, std::slice::from_ref(&bare));
        let text = summary(&[bare, full]);
        let figures = "100 Pods, in place, bare dev 2.00 s 2.00 s 9.00 s 10 2 0.20 s 1.00 s 20.0 MiB -";
        assert!(lines(&text).contains(&figures.to_owned()), "{text}");
        assert!(text.contains("detect 0 s, deprecate 0 s"), "{text}");
        // The machine was half busy; of the restarts' 12 s on two CPUs the API server used 6.
        assert!(text.contains("API server 25 %, etcd 0 %, controller 5 %"), "{text}");
        assert!(text.contains("load generator 12 %, other processes and kernel 8 %, idle 50 %"), "{text}");
        assert!(text.contains("full load over bare load: api_requests 1.0,"), "{text}");
        assert!(text.lines().any(|line| line.ends_with("seconds 2.0")), "{text}");
    }
}
