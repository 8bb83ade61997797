//! Where the time of a restart by sidecars goes. Pure.

use std::time::{Duration, Instant};

use super::failures::Failure;
use super::requests::AgentRequest;
use crate::phases::Phases;

/// The phases of a restart by sidecars, in seconds.
///
/// - `detect`: from the worker's exit to the raised `deprecatedEpoch`: the kubelet sees the exit, the controller the status.
/// - `exit`: to the end of the last agent's watch: agents receive the epoch, and exit.
/// - `reset`: to the begin of the last new agent's watch: kubelets see the exits, stop the workers and start the containers.
/// - `report`: to the answer to the last new agent's report.
/// - `sync`: to the raised `syncedEpoch`: the controller sees that all agents have reported.
/// - `start`: to the last worker's start: kubelets see that the startup probes succeed, and start the workers.
const PHASES: [&str; 6] = ["detect", "exit", "reset", "report", "sync", "start"];

/// The phases of a failure, from the requests of all agents before `end`, the next failure. `None` if a part is missing.
pub(super) fn of_sidecars(failure: &Failure, end: f64, requests: &[AgentRequest]) -> Option<Phases> {
    let during = |time: Option<f64>| time.filter(|time| (failure.exited..end).contains(time));
    let last = |verb: &str, when: fn(&AgentRequest) -> Option<f64>| {
        requests.iter().filter(|request| request.verb == verb).filter_map(|it| during(when(it))).reduce(f64::max)
    };
    let origin = Instant::now();
    let ends = [
        failure.deprecated?,
        last("watch", |watch| watch.ended)?,
        last("watch", |watch| Some(watch.received))?,
        last("patch", |patch| patch.ended)?,
        failure.synced?,
        failure.started,
    ];
    let ends = ends.map(|end| origin + Duration::try_from_secs_f64(end - failure.exited).unwrap_or_default());
    Some(Phases::new(PHASES, origin, ends))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(pod: &str, verb: &str, received: f64, ended: Option<f64>) -> AgentRequest {
        AgentRequest { pod: pod.into(), verb: verb.into(), received, ended }
    }

    /// The failed worker's agent ends first, and starts before the other receives the epoch.
    fn requests() -> Vec<AgentRequest> {
        vec![
            request("a", "watch", 1.0, Some(10.4)),
            request("b", "watch", 1.0, Some(10.7)),
            request("a", "watch", 10.5, Some(20.4)),
            request("a", "patch", 10.5, Some(10.6)),
            request("b", "watch", 11.5, Some(20.5)),
            request("b", "patch", 11.6, Some(11.9)),
            request("a", "watch", 20.5, None),
        ]
    }

    fn failure(exited: f64, deprecated: f64) -> Failure {
        Failure { exited, started: 13.0, deprecated: Some(deprecated), synced: Some(12.0) }
    }

    #[test]
    fn phases_end_with_last_agent() {
        let phases = of_sidecars(&failure(10.0, 10.5), 20.0, &requests()).unwrap();
        let expected = [("detect", 0.5), ("exit", 0.2), ("reset", 0.8), ("report", 0.4), ("sync", 0.1), ("start", 1.0)];
        for (phase, expected) in phases.0.into_iter().zip(expected) {
            assert!(phase.0 == expected.0 && (phase.1 - expected.1).abs() < 1e-3, "{phase:?} instead of {expected:?}");
        }
    }

    /// The journal's times are rounded, and another clock gives those of the watch.
    #[test]
    fn phase_observed_before_exit_took_no_time() {
        let phases = of_sidecars(&failure(10.0, 9.0), 20.0, &requests()).unwrap();
        assert!(phases.0[0].1 == 0.0 && (phases.0[1].1 - 0.7).abs() < 1e-3, "{phases:?}");
    }

    #[test]
    fn phases_without_all_requests_are_none() {
        assert_eq!(of_sidecars(&failure(30.0, 30.5), 40.0, &requests()), None);
        let ended = request("a", "watch", 1.0, Some(10.4));
        let begun = request("a", "watch", 10.5, None);
        let patched = request("a", "patch", 10.6, Some(10.7));
        let phases = |requests: &[AgentRequest]| of_sidecars(&failure(10.0, 10.5), 20.0, requests);
        for [one, other] in [[&ended, &begun], [&ended, &patched], [&begun, &patched]] {
            assert_eq!(phases(&[one.clone(), other.clone()]), None);
        }
        assert!(phases(&[ended, begun, patched]).is_some());
    }
}
