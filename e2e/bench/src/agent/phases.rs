//! Where the time of a restart by sidecars goes. Pure.

use std::ops::Range;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::requests::Request;
use crate::phases::between;

/// The phases of one restart, in seconds. They add up to the restart's duration.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Phases {
    /// From the worker's exit to `deprecatedEpoch` seen raised: the kubelet sees the exit and the controller its status.
    pub(super) detect: f64,
    /// To the end of the last agent's watch: agents are told, and exit.
    pub(super) exit: f64,
    /// To the begin of the last new agent's watch: kubelets see the exits, stop the workers, and start the Pods' containers.
    pub(super) reset: f64,
    /// To the answer to the last new agent's report.
    pub(super) report: f64,
    /// To `syncedEpoch` seen raised: the controller sees that all are there.
    pub(super) sync: f64,
    /// To the last worker's start: kubelets see that the startup probes succeed, and start the workers.
    pub(super) start: f64,
}

/// When what happened in one restart, in seconds since 1970.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Seen {
    /// From this worker's exit to that of the next restart.
    pub(super) time: Range<f64>,
    /// When `deprecatedEpoch` was seen raised.
    pub(super) deprecated: f64,
    /// When `syncedEpoch` was seen raised.
    pub(super) synced: f64,
    /// When the last worker started.
    pub(super) started: f64,
}

impl Phases {
    /// From what was seen of the restart, and the requests of all agents. `None` if they have made none.
    pub(super) fn of(seen: &Seen, requests: &[Request]) -> Option<Self> {
        let during = |time: Option<f64>| time.filter(|time| seen.time.contains(time));
        let last = |verb: &str, when: fn(&Request) -> Option<f64>| {
            requests.iter().filter(|request| request.verb == verb).filter_map(|it| during(when(it))).reduce(f64::max)
        };
        let exits = last("watch", |watch| watch.ended)?;
        let begins = last("watch", |watch| Some(watch.received))?;
        let reports = last("patch", |patch| patch.ended)?;
        let origin = Instant::now();
        let instants = [seen.time.start, seen.deprecated, exits, begins, reports, seen.synced, seen.started]
            .map(|time| origin + Duration::try_from_secs_f64(time - seen.time.start).unwrap_or_default());
        let [detect, exit, reset, report, sync, start] = between(instants);
        Some(Self { detect, exit, reset, report, sync, start })
    }

    /// Names and seconds, in their order.
    pub(super) fn named(&self) -> [(&'static str, f64); 6] {
        let Self { detect, exit, reset, report, sync, start } = *self;
        [("detect", detect), ("exit", exit), ("reset", reset), ("report", report), ("sync", sync), ("start", start)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(pod: &str, verb: &str, received: f64, ended: Option<f64>) -> Request {
        Request { pod: pod.into(), verb: verb.into(), received, ended }
    }

    /// The failed worker's agent is killed first and is back before the other is told.
    fn requests() -> Vec<Request> {
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

    #[test]
    fn phases_end_with_the_last_agent_and_add_up() {
        let seen = Seen { time: 10.0..20.0, deprecated: 10.5, synced: 12.0, started: 13.0 };
        let phases = Phases::of(&seen, &requests()).unwrap();
        let wanted = [("detect", 0.5), ("exit", 0.2), ("reset", 0.8), ("report", 0.4), ("sync", 0.1), ("start", 1.0)];
        for (phase, wanted) in phases.named().into_iter().zip(wanted) {
            assert!(phase.0 == wanted.0 && (phase.1 - wanted.1).abs() < 1e-3, "{phase:?} instead of {wanted:?}");
        }
    }

    /// The journal's times are rounded, and the watch's are those of another clock.
    #[test]
    fn what_was_seen_before_the_exit_took_no_time() {
        let seen = Seen { time: 10.0..20.0, deprecated: 9.0, synced: 12.0, started: 13.0 };
        let phases = Phases::of(&seen, &requests()).unwrap();
        assert!(phases.detect == 0.0 && (phases.exit - 0.7).abs() < 1e-3, "{phases:?}");
    }

    #[test]
    fn without_agents_there_are_no_phases() {
        let seen = Seen { time: 30.0..40.0, deprecated: 30.5, synced: 31.0, started: 32.0 };
        assert_eq!(Phases::of(&seen, &requests()), None);
        // Nor where one of the three times is missing.
        let seen = Seen { time: 10.0..20.0, deprecated: 10.5, synced: 12.0, started: 13.0 };
        let ended = request("a", "watch", 1.0, Some(10.4));
        let begun = request("a", "watch", 10.5, None);
        let patched = request("a", "patch", 10.6, Some(10.7));
        for [one, other] in [[&ended, &begun], [&ended, &patched], [&begun, &patched]] {
            assert_eq!(Phases::of(&seen, &[one.clone(), other.clone()]), None);
        }
        assert!(Phases::of(&seen, &[ended, begun, patched]).is_some());
    }
}
