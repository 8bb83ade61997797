//! The figures of one case, and the table of all cases.

use jobset_harness::median::median;
use serde::Serialize;

use super::case::{Case, Way};
use super::over_stream::StreamFigures;
use super::requests::ApiRequests;
use super::stream_report;
use crate::meter::CpuSeconds;
use crate::phases::Phases;
use crate::report::{Report, Table, number, rounded};

pub(super) type CaseReport = Report<CaseFigures>;

#[derive(Clone, Debug, Serialize)]
pub(super) struct CaseFigures {
    #[serde(flatten)]
    pub(super) case: Case,
    pub(super) restarts: Vec<Restart>,
    /// Peak of the controller's resident memory, from its start to the end of the case.
    pub(super) controller_peak_rss_kib: u64,
    /// What agents of the stream cost beside their restarts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) stream: Option<StreamFigures>,
    /// What the Go manager took in the same run, beside figures of the stream.
    #[serde(flatten)]
    pub(super) go: Option<GoSeconds>,
}

/// Restarts of as many Pods by the Go manager.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct GoSeconds {
    go_seconds: f64,
    go_restart_seconds: Vec<f64>,
}

impl GoSeconds {
    /// Those of the case among these that has so many Pods.
    pub(super) fn among(reports: &[CaseReport], agents: usize) -> Option<Self> {
        let is_it = |case: &Case| case.agents == agents && case.strategy.way() == Some(Way::Go);
        let report = reports.iter().find(|report| is_it(&report.figures.case))?;
        let go_restart_seconds: Vec<f64> = report.figures.restarts.iter().map(|restart| restart.seconds).collect();
        Some(Self { go_seconds: median(go_restart_seconds.iter().copied()), go_restart_seconds })
    }

    /// What part of it this time is.
    pub(super) fn ratio(&self, seconds: f64) -> f64 {
        rounded(seconds / self.go_seconds, 1e3)
    }
}

#[derive(Clone, Debug, Serialize)]
pub(super) struct Restart {
    /// In place from the failure, visible at the API server or reported over the stream, to the last agent that lifted its
    /// barrier; by recreation to the creation of the last Pod.
    pub(super) seconds: f64,
    pub(super) phases: Phases,
    /// Requests of all clients that the API server answered until the JobSet had settled, with ended watches.
    pub(super) api_requests: u64,
    /// Writes to the JobSet until it had settled.
    pub(super) jobset_writes: usize,
    pub(super) requests: ApiRequests,
    /// CPU of all processes from the failure to the end of the restart, without what settles afterwards.
    pub(super) cpu: CpuSeconds,
    /// Reports that failed, and that agents repeated.
    pub(super) failed_reports: usize,
}

impl CaseFigures {
    pub(super) fn median(&self, figure: impl Fn(&Restart) -> f64) -> f64 {
        median(self.restarts.iter().map(figure))
    }
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
            format!("{:.2} s", case.median(|restart| restart.cpu.of("controller"))),
            format!("{:.2} s", case.median(|restart| restart.cpu.of("api_server"))),
            format!("{:.1} MiB", number(case.controller_peak_rss_kib) / 1024.0),
        ]);
        let phases = Phases::medians(case.restarts.iter().map(|restart| &restart.phases));
        text.push(format!("{}: {phases}; {}", case.case, shares(report)));
    }
    figures.to_string() + &text.join("\n") + &stream_report::text(reports)
}

/// Which processes used the CPUs during the restarts.
fn shares(report: &CaseReport) -> String {
    let sum = |of: fn(&CpuSeconds) -> f64| report.figures.restarts.iter().map(|restart| of(&restart.cpu)).sum::<f64>();
    let all = sum(|cpu| cpu.of("elapsed")) * number(report.cpus);
    let shares = [
        ("API server", sum(|cpu| cpu.of("api_server"))),
        ("etcd", sum(|cpu| cpu.of("etcd"))),
        ("controller", sum(|cpu| cpu.of("controller"))),
        ("relays", sum(|cpu| cpu.of("relay"))),
        ("kube-controller-manager", sum(|cpu| cpu.of("controller_manager"))),
        ("load generator", sum(|cpu| cpu.of("load_generator"))),
        ("other processes and kernel", sum(CpuSeconds::others)),
        ("idle", (all - sum(|cpu| cpu.of("machine"))).max(0.0)),
    ];
    let has_part = |(who, _): &(&str, f64)| report.figures.stream.is_some() || *who != "relays";
    let shares = shares.into_iter().filter(has_part);
    shares.map(|(who, seconds)| format!("{who} {:.0} %", 100.0 * seconds / all)).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::Instant;

    use serde_json::{Value, json};

    use super::super::case::{Strategy, WatchMode};
    use super::super::in_place::PHASES;
    use super::*;
    use crate::report::tests::lines;

    /// A case with a restart for each number of seconds, on two CPUs.
    pub(in super::super) fn report(way: Way, watch: WatchMode, seconds: &[f64]) -> CaseReport {
        let now = Instant::now();
        let cpu = |seconds: f64| {
            let parts = [
                ("elapsed", 1.0),
                ("api_server", 2.0),
                ("controller", 10.0),
                ("load_generator", 5.0),
                ("machine", 1.0),
            ];
            CpuSeconds(parts.map(|(process, part)| (process, seconds / part)).into())
        };
        let restart = |seconds: &f64| Restart {
            seconds: *seconds,
            phases: Phases::new(PHASES, now, [now; 5]),
            api_requests: 10,
            jobset_writes: 2,
            requests: ApiRequests::default(),
            cpu: cpu(*seconds),
            failed_reports: 0,
        };
        let strategy = Strategy::InPlace { watch, way };
        let figures = CaseFigures {
            case: Case { agents: 100, strategy, foreign_pods: 0 },
            restarts: seconds.iter().map(restart).collect(),
            controller_peak_rss_kib: 20_480,
            stream: None,
            go: None,
        };
        Report { figures, build: "dev", cpus: 2 }
    }

    #[test]
    fn result_has_the_keys_that_others_read() {
        let json = serde_json::to_value(report(Way::Watch, WatchMode::New, &[1.5])).unwrap();
        assert_eq!((&json["agents"], &json["strategy"]), (&json!(100), &json!("InPlaceRestart")));
        assert_eq!((&json["watch"], &json["way"]), (&json!("new-watch"), &json!("watch")));
        assert!(json.get("go_seconds").is_none() && json.get("stream").is_none());
        assert_eq!((&json["build"], &json["cpus"], &json["foreign_pods"]), (&json!("dev"), &json!(2), &json!(0)));
        assert_eq!(json["controller_peak_rss_kib"], 20_480);
        let restart = &json["restarts"][0];
        let figures = ["/seconds", "/api_requests", "/jobset_writes", "/cpu/controller", "/cpu/api_server"];
        assert!(figures.iter().all(|key| restart.pointer(key).is_some_and(Value::is_number)), "{restart}");
        assert_eq!(restart["phases"].as_object().unwrap().len(), 5);
        let recreate = serde_json::to_value(Case { agents: 1, strategy: Strategy::Recreate, foreign_pods: 0 }).unwrap();
        assert_eq!(recreate, json!({"agents": 1, "strategy": "Recreate", "foreign_pods": 0}));
    }

    #[test]
    fn summary_has_medians_phases_and_shares() {
        let text = summary(&[report(Way::Watch, WatchMode::New, &[2.0, 1.0, 9.0])]);
        let figures = "100 Pods, in place dev 2.00 s 2.00 s 9.00 s 10 2 0.20 s 1.00 s 20.0 MiB";
        assert!(lines(&text).contains(&figures.to_owned()), "{text}");
        assert!(text.contains("detect 0 s, deprecate 0 s"), "{text}");
        // The machine was half busy; of the restarts' 12 s on two CPUs the API server used 6.
        assert!(text.contains("API server 25 %, etcd 0 %, controller 5 %"), "{text}");
        assert!(text.contains("load generator 10 %, other processes and kernel 10 %, idle 50 %"), "{text}");
    }

    #[test]
    fn restarts_of_go_manager_are_beside_those_of_the_stream() {
        let of = |way, seconds: &[f64]| report(way, WatchMode::New, seconds);
        let reports = [of(Way::Watch, &[7.0]), of(Way::Go, &[4.0, 2.0, 9.0])];
        let go = GoSeconds::among(&reports, 100).unwrap();
        assert!((go.ratio(1.0) - 0.25).abs() < 1e-9);
        assert_eq!(GoSeconds::among(&reports, 1000), None);
        let mut stream = of(Way::Stream, &[1.0]);
        stream.figures.go = Some(go);
        let json = serde_json::to_value(stream).unwrap();
        assert_eq!((&json["go_seconds"], &json["go_restart_seconds"]), (&json!(4.0), &json!([4.0, 2.0, 9.0])));
    }
}
