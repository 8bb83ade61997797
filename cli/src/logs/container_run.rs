//! The runs of a container, each of which has a log.

use jobset_objects::{PartialContainerStatus, PartialPod, RESTARTING_ALL_CONTAINERS};

use super::source::status_of;

/// The run whose log the kubelet gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ContainerRun {
    /// Identity of the container.
    pub id: String,
    /// Whether it has ended, and its log with it.
    pub has_ended: bool,
}

/// What to do for a log that is followed, once what there was of it has been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LogStep {
    /// Read on: the run goes on, it has ended since, or there is another one.
    Open(ContainerRun),
    /// There is nothing new.
    Wait,
    /// There will be no more.
    Over,
}

impl ContainerRun {
    /// The run by the status of a container; none if it has no log. Of a container that waits, the kubelet gives the log of the run
    /// before, unless the restart of the Pod has erased it.
    pub(super) fn of(status: &PartialContainerStatus) -> Option<Self> {
        let run = |has_ended| Some(Self { id: status.container_id.clone(), has_ended });
        if status.state.running.is_some() {
            return run(false);
        }
        let end = status.state.terminated.as_ref().or(status.last_state.terminated.as_ref())?;
        if end.reason == RESTARTING_ALL_CONTAINERS { None } else { run(true) }
    }
}

impl LogStep {
    /// What to do after this run was read to its end. The connection may have broken instead: the API server ends an answer in both
    /// cases. A run that had ended before it was read is complete.
    pub(super) fn next(read: Option<&ContainerRun>, pod: Option<&PartialPod>, container: &str) -> Self {
        let Some(pod) = pod else { return Self::Over };
        match status_of(pod, container).and_then(ContainerRun::of) {
            Some(run) if !run.has_ended || read != Some(&run) => Self::Open(run),
            _ if pod.has_ended() => Self::Over,
            _ => Self::Wait,
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn run(id: &str, has_ended: bool) -> ContainerRun {
        ContainerRun { id: id.to_owned(), has_ended }
    }

    fn running(id: &str) -> Value {
        json!({"containerID": id, "state": {"running": {}}})
    }

    fn ended(id: &str) -> Value {
        json!({"containerID": id, "state": {"terminated": {"exitCode": 1}}})
    }

    fn backs_off(id: &str) -> Value {
        json!({"containerID": id, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 1}}})
    }

    #[rstest]
    #[case::starts(None, running("a"), LogStep::Open(run("a", false)))]
    #[case::connection_broke(Some(run("a", false)), running("a"), LogStep::Open(run("a", false)))]
    #[case::ended_since(Some(run("a", false)), ended("a"), LogStep::Open(run("a", true)))]
    #[case::read_to_its_end(Some(run("a", true)), ended("a"), LogStep::Wait)]
    #[case::another_runs(Some(run("a", true)), running("b"), LogStep::Open(run("b", false)))]
    #[case::another_has_ended(Some(run("a", true)), ended("b"), LogStep::Open(run("b", true)))]
    #[case::another_has_ended_and_waits(Some(run("a", true)), backs_off("b"), LogStep::Open(run("b", true)))]
    #[case::waits_for_its_restart(Some(run("b", true)), backs_off("b"), LogStep::Wait)]
    #[case::has_not_started(None, json!({"state": {"waiting": {"reason": "PodInitializing"}}}), LogStep::Wait)]
    #[case::erased_by_restart(Some(run("a", true)), json!({"state": {"waiting": {}}, "lastState": {"terminated": {"exitCode": 137, "reason": "RestartingAllContainers"}}}), LogStep::Wait)]
    fn log_is_read_on_while_there_is_more(
        #[case] read: Option<ContainerRun>,
        #[case] mut status: Value,
        #[case] expected: LogStep,
    ) {
        status["name"] = json!("worker");
        let pod = |phase: &str| -> PartialPod {
            serde_json::from_value(
                json!({"metadata": {"name": "p"}, "status": {"phase": phase, "containerStatuses": [status]}}),
            )
            .unwrap()
        };
        let next = |pod: Option<&PartialPod>| LogStep::next(read.as_ref(), pod, "worker");
        assert_eq!(next(Some(&pod("Running"))), expected);
        assert_eq!(next(None), LogStep::Over, "the Pod is gone");
        let after = if expected == LogStep::Wait { LogStep::Over } else { expected };
        assert_eq!(next(Some(&pod("Failed"))), after, "the Pod has ended, and its log may not have been read");
    }
}
