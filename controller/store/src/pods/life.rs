//! The lives of an agent: each start of its container is one, and a report is of the life that wrote it.
//!
//! Report and status have two writers, so a status that shows an end may be of a life before or after the one that has reported.
//! Both say when their life began, by the clock of one node: the agent in microseconds, the kubelet in whole seconds.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use jobset_api::labels;
use jobset_objects::{PartialContainerStatus, PartialPod};
use jobset_stream::STARTED_BYTES;
use k8s_openapi::jiff::Timestamp;

use super::containers::{
    container, is_of_agent, is_supervised, restarts_pod_at_end, restarts_supervisor_on, supervisors,
};

/// How much later than its container an agent says that it started, in microseconds. The kubelet cuts the time of the container to
/// seconds. Containers start again no sooner than 1.6 s after an end.
const AFTER_CONTAINER: RangeInclusive<i64> = -500_000..=1_500_000;

/// The life of an agent that is over, or will be at once, as the status shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EndedLife {
    /// When the container of the agent started.
    pub started: Timestamp,
    /// When it ended, or the worker that takes it along.
    pub ended: Timestamp,
}

/// When the agent started that has reported the epoch.
pub(super) fn reported(annotations: &BTreeMap<String, String>) -> Option<Timestamp> {
    parse(annotations.get(labels::AGENT_STARTED)?)
}

/// The start of an agent as it says it. `None` if it is malformed.
pub fn parse(text: &str) -> Option<Timestamp> {
    (text.len() <= STARTED_BYTES).then(|| text.parse().ok())?
}

impl EndedLife {
    /// Reads the status. `None` if it shows no end, or one that leaves the Pod to its Job.
    pub(super) fn of(pod: &PartialPod) -> Option<Self> {
        if is_supervised(pod) { of_supervisor(pod) } else { of_sidecar(pod) }
    }

    /// Whether it is that of the agent that started at this time.
    ///
    /// A clock that is off, as that of a virtual machine in which the containers run, makes it none: that proves nothing.
    pub(super) fn is_of(&self, agent: Timestamp) -> bool {
        let after = agent.as_microsecond().saturating_sub(self.started.as_microsecond());
        AFTER_CONTAINER.contains(&after) && self.ended.as_second() >= agent.as_second()
    }
}

/// A supervisor that fails takes its worker along.
fn of_supervisor(pod: &PartialPod) -> Option<EndedLife> {
    let restarts = |status: &&PartialContainerStatus| {
        let end = status.state.terminated.as_ref().filter(|end| end.exit_code != 0);
        end.zip(container(pod, status)).is_some_and(|(end, container)| restarts_supervisor_on(container, end.exit_code))
    };
    ended(supervisors(pod).find(restarts)?)
}

/// A worker, or its agent, that ends with a code that restarts the Pod takes the others along.
fn of_sidecar(pod: &PartialPod) -> Option<EndedLife> {
    let restarts_pod = |status: &&PartialContainerStatus| restarts_pod_at_end(pod, status);
    let agent = pod.status.init_container_statuses.iter().find(|status| is_of_agent(pod, status))?;
    if restarts_pod(&agent) {
        return ended(agent);
    }
    let state = &agent.state;
    let running = state.running.as_ref().and_then(|it| it.started_at.as_ref());
    let started = running.or_else(|| state.terminated.as_ref()?.started_at.as_ref())?.0;
    let workers = pod.status.container_statuses.iter().filter(restarts_pod);
    let ended = workers.filter_map(|it| it.state.terminated.as_ref()?.finished_at.as_ref()).map(|time| time.0).max()?;
    Some(EndedLife { started, ended })
}

fn ended(status: &PartialContainerStatus) -> Option<EndedLife> {
    let end = status.state.terminated.as_ref()?;
    Some(EndedLife { started: end.started_at.as_ref()?.0, ended: end.finished_at.as_ref()?.0 })
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn at(text: &str) -> Timestamp {
        format!("2026-01-01T00:00:{text}Z").parse().unwrap()
    }

    #[rstest]
    #[case::same_second("10", "60", "10.2", true)]
    #[case::cut_to_the_second("10", "60", "10.999", true)]
    #[case::slow_start("10", "60", "11.5", true)]
    #[case::start_observed_late("10", "60", "09.5", true)]
    #[case::starved_agent("10", "60", "11.6", false)]
    #[case::later_life("10", "12", "13.7", false)]
    #[case::earlier_life("20", "60", "10.2", false)]
    #[case::life_after_one_that_died_at_birth("10", "10", "11.2", false)]
    #[case::died_at_birth("10", "10", "10.9", true)]
    #[case::clock_an_hour_off("10", "60", "59.0", false)]
    fn ended_life_is_of_the_agent_that_started_with_it(
        #[case] started: &str,
        #[case] ended: &str,
        #[case] agent: &str,
        #[case] expected: bool,
    ) {
        let ended = if ended == "60" { "2026-01-01T00:01:00Z".parse().unwrap() } else { at(ended) };
        assert_eq!(EndedLife { started: at(started), ended }.is_of(at(agent)), expected);
    }

    #[test]
    fn extreme_times_are_of_no_life() {
        let life = EndedLife { started: Timestamp::MIN, ended: Timestamp::MIN };
        assert!(!life.is_of(Timestamp::MAX));
        assert!(!EndedLife { started: Timestamp::MAX, ended: Timestamp::MAX }.is_of(Timestamp::MIN));
    }

    #[rstest]
    #[case("2026-01-01T00:00:10.200000Z", true)]
    #[case("2026-01-01", false)]
    #[case("", false)]
    #[case(&format!("2026-01-01T00:00:10.2Z{}", " ".repeat(64)), false)]
    fn start_malformed_is_none(#[case] text: &str, #[case] is_read: bool) {
        assert_eq!(parse(text).is_some(), is_read);
    }

    fn pod(init: &Value, workers: &Value, status: &Value) -> PartialPod {
        serde_json::from_value(json!({"spec": {"initContainers": init, "containers": workers}, "status": status}))
            .unwrap()
    }

    fn rule(action: &str) -> Value {
        json!([{"action": action, "exitCodes": {"operator": "NotIn", "values": [0, 42]}}])
    }

    fn terminated(code: i32) -> Value {
        json!({"terminated": {"exitCode": code, "startedAt": "2026-01-01T00:00:10Z", "finishedAt": "2026-01-01T00:00:40Z"}})
    }

    fn running() -> Value {
        json!({"running": {"startedAt": "2026-01-01T00:00:05Z"}})
    }

    #[rstest]
    #[case::worker_failed(running(), terminated(7), Some("05"))]
    #[case::worker_succeeded(running(), terminated(0), None)]
    #[case::worker_ended_for_good(running(), terminated(42), None)]
    #[case::agent_restarts_the_pod(terminated(81), running(), Some("10"))]
    #[case::agent_restarts_alone(terminated(0), running(), None)]
    #[case::both_run(running(), running(), None)]
    #[case::reset(json!({"waiting": {}}), terminated(7), None)]
    #[case::never_ran(running(), json!({"terminated": {"exitCode": 137}}), None)]
    fn sidecar_life_ends_with_code_that_restarts_pod(
        #[case] agent: Value,
        #[case] worker: Value,
        #[case] started: Option<&str>,
    ) {
        let rules = rule("RestartAllContainers");
        let pod = pod(
            &json!([{"name": "agent", "restartPolicy": "Always", "restartPolicyRules": rules}]),
            &json!([{"name": "w", "restartPolicyRules": rules}]),
            &json!({"initContainerStatuses": [{"name": "agent", "state": agent}],
                "containerStatuses": [{"name": "w", "state": worker}]}),
        );
        let expected = started.map(|started| EndedLife { started: at(started), ended: at("40") });
        assert_eq!(EndedLife::of(&pod), expected);
    }

    #[rstest]
    #[case::killed(terminated(137), json!({}), true)]
    #[case::done(terminated(0), json!({}), false)]
    #[case::ended_for_good(terminated(42), json!({}), false)]
    #[case::helper_ended(running(), terminated(1), false)]
    #[case::runs(running(), running(), false)]
    fn life_of_a_supervisor_ends_with_its_container(
        #[case] worker: Value,
        #[case] helper: Value,
        #[case] expected: bool,
    ) {
        let pod = pod(
            &json!([]),
            &json!([{"name": "helper"}, {"name": "w", "restartPolicy": "Never", "restartPolicyRules": rule("Restart")}]),
            &json!({"containerStatuses": [{"name": "helper", "state": helper}, {"name": "w", "state": worker}]}),
        );
        assert_eq!(EndedLife::of(&pod).is_some(), expected);
    }
}
