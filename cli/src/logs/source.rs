//! Which logs there are: of which Pods, which of their containers, and of which epoch.

use jobset_api::{JobSet, RestartStrategy, labels};
use jobset_objects::{PartialContainerStatus, PartialPod};
use kube::ResourceExt as _;

use super::container_run::ContainerRun;
use super::failed::has_failed;
use crate::status::{Epochs, epoch, is_own};

#[derive(Clone, Debug, Default)]
pub(super) struct LogChoice {
    pub epoch: Option<i32>,
    pub failed: bool,
    pub previous: bool,
    pub container: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LogSource {
    pub pod: String,
    pub container: String,
    /// The run of the container whose log it is; none before the first.
    pub run: Option<ContainerRun>,
    /// Whether the log is that of the run before.
    pub previous: bool,
    pub is_divided: bool,
    /// The epoch of the log as a whole, if it has one; of a log that is divided, that in which the worker runs, or ran last.
    pub epoch: Option<i32>,
    /// The only epoch to show.
    pub only: Option<i32>,
}

/// The logs of a JobSet, and what to say of those that there are not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LogSources {
    pub sources: Vec<LogSource>,
    pub missing: Vec<String>,
}

/// What tells the epochs of the JobSet's logs.
struct GroupState {
    in_place: bool,
    synced: i32,
    epochs: Option<Epochs>,
}

impl GroupState {
    fn of(jobset: &JobSet) -> Self {
        Self {
            in_place: jobset.spec.restart_strategy() == RestartStrategy::InPlaceRestart,
            synced: jobset.status.as_ref().map_or(0, |status| status.synced_epoch),
            epochs: Epochs::of(jobset),
        }
    }

    /// The epoch that the Pod is in or waits for. An annotation of the agent stream may be old, and the status knows better.
    fn reported(&self, pod: &PartialPod) -> Option<i32> {
        let reported = match self.epochs {
            Some(epochs) => epochs.of_pod(pod).and_then(|epoch| epoch.parse().ok()),
            None => reported(pod),
        };
        reported.filter(|_| self.in_place)
    }

    /// The epoch in which the worker runs, or ran last. Its Pod may wait for the next one; nor has the worker begun it while the
    /// kubelet has not started it.
    fn epoch_of_run(&self, pod: &PartialPod, container: &str) -> Option<i32> {
        let reported = self.reported(pod)?;
        let last = if waits(pod, container) { reported.checked_sub(1)? } else { reported };
        Some(last.min(self.synced)).filter(|epoch| *epoch > 0)
    }
}

/// Whether a container waits to be started for the epoch of its Pod. One that backs off has run in it.
fn waits(pod: &PartialPod, container: &str) -> bool {
    let waiting = status_of(pod, container).and_then(|status| status.state.waiting.as_ref());
    waiting.is_some_and(|waiting| waiting.reason != "CrashLoopBackOff")
}

/// The epoch of the log that the kubelet gives of a container beside a sidecar.
pub(super) fn epoch_of_run(jobset: &JobSet, pod: &PartialPod, container: &str) -> Option<i32> {
    GroupState::of(jobset).epoch_of_run(pod, container)
}

/// The logs that the user asks for, in the order of Jobs and indexes.
///
/// # Errors
/// If there can be none: why not.
pub(super) fn sources(jobset: &JobSet, pods: &[&PartialPod], choice: &LogChoice) -> Result<LogSources, String> {
    let group = GroupState::of(jobset);
    if let Some(epoch) = choice.epoch {
        if !group.in_place {
            return Err("restarts by recreation, and has no epochs: leave --epoch out".to_owned());
        }
        if epoch > group.synced {
            return Err(format!("has not begun epoch {epoch}: the newest is {}", group.synced));
        }
    }
    let mut pods: Vec<&PartialPod> = pods.iter().copied().filter(|pod| is_own(jobset, *pod)).collect();
    pods.sort_by_cached_key(|pod| place(pod));
    let mut found = LogSources::default();
    for pod in pods {
        if choice.failed && !has_failed(jobset, pod, choice.epoch) {
            continue;
        }
        match source(pod, &group, choice) {
            Ok(source) => found.sources.push(source),
            Err(why) => found.missing.push(format!("Pod {}: {why}", pod.name_any())),
        }
    }
    Ok(found)
}

fn place(pod: &PartialPod) -> (Option<u32>, Option<u32>, String) {
    let number = |text: Option<&String>| text.and_then(|text| text.parse().ok());
    let job = number(pod.labels().get(labels::JOB_GLOBAL_INDEX));
    (job, number(pod.annotations().get(labels::COMPLETION_INDEX)), pod.name_any())
}

fn source(pod: &PartialPod, group: &GroupState, choice: &LogChoice) -> Result<LogSource, String> {
    if pod.spec.node_name.is_none() {
        return Err("has no node, and no log".to_owned());
    }
    let container = container(pod, choice.container.as_deref())?;
    let run = status_of(pod, &container).and_then(ContainerRun::of);
    let is_divided = group.in_place && is_supervised(pod, &container);
    let base = LogSource { pod: pod.name_any(), container, run, is_divided, ..LogSource::default() };
    if is_divided {
        let reported = group.reported(pod);
        // A Pod that reports the next epoch waits for it, and its worker has not started in it.
        let epoch = reported.map(|reported| reported.min(group.synced));
        let before = epoch.map(|epoch| if reported > Some(group.synced) { epoch } else { epoch - 1 });
        let only = choice.epoch.or_else(|| before.filter(|_| choice.previous));
        return Ok(LogSource { epoch, only, ..base });
    }
    let epoch = group.epoch_of_run(pod, &base.container);
    // Of a container that waits, the kubelet gives the log of the run before, whether it is asked for that or not.
    let before = if waits(pod, &base.container) {
        epoch
    } else {
        epoch.and_then(|epoch| epoch.checked_sub(1)).filter(|epoch| *epoch > 0)
    };
    let only = choice.epoch;
    match choice.epoch {
        Some(_) if epoch == only => Ok(LogSource { epoch, only, ..base }),
        Some(_) if before == only => Ok(LogSource { previous: true, epoch: before, only, ..base }),
        Some(wanted) => Err(format!(
            "its log of epoch {wanted} is gone with its container; under a supervisor, logs of all epochs stay"
        )),
        None if choice.previous => Ok(LogSource { previous: true, epoch: before, ..base }),
        None => Ok(LogSource { epoch, ..base }),
    }
}

/// The container of this name, or the first one.
fn container(pod: &PartialPod, name: Option<&str>) -> Result<String, String> {
    let containers = || pod.spec.containers.iter().map(|container| container.name.as_str());
    let Some(name) = name else { return Ok(containers().next().unwrap_or_default().to_owned()) };
    let init = pod.spec.init_containers.iter().map(|container| container.name.as_str());
    let all: Vec<&str> = containers().chain(init).collect();
    if all.contains(&name) {
        Ok(name.to_owned())
    } else {
        Err(format!("has no container {name}, but {}", all.join(", ")))
    }
}

pub(super) fn reported(pod: &PartialPod) -> Option<i32> {
    epoch(pod)?.parse().ok()
}

pub(super) fn status_of<'a>(pod: &'a PartialPod, container: &str) -> Option<&'a PartialContainerStatus> {
    let mut statuses = pod.status.container_statuses.iter().chain(&pod.status.init_container_statuses);
    statuses.find(|status| status.name == container)
}

/// Whether an agent is the parent of the worker in this container: the container restarts alone, by rules of its own.
fn is_supervised(pod: &PartialPod, container: &str) -> bool {
    let has_sidecar = pod.spec.init_containers.iter().any(|it| it.is_sidecar() && !it.restart_policy_rules.is_empty());
    let mut containers = pod.spec.containers.iter();
    !has_sidecar && containers.any(|it| it.name == container && it.restart_policy.is_some())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn jobset(strategy: &str) -> JobSet {
        let restarts = [
            "Pod train-w-0-1-a on node n failed in epoch 3, container worker exited with code 1 (Error)",
            "restart requested: train-w-0-0-a hangs in epoch 3; Pod train-w-0-0-a on node n; request a",
            "Pod train-w-0-9-a on node n failed in epoch 12, container worker exited with code 1 (Error)",
        ];
        let restart = |message| json!({"number": 1, "strategy": "InPlaceRestart", "startTime": "2026-01-01T00:00:00.000000Z", "message": message});
        serde_json::from_value(json!({
            "metadata": {"name": "train", "uid": "u"},
            "spec": {"replicatedJobs": [], "failurePolicy": {"restartStrategy": strategy}},
            "status": {"syncedEpoch": 4, "deprecatedEpoch": 3, "recentRestarts": restarts.map(restart)}}))
        .unwrap()
    }

    /// A Pod of index 0 or 1 that reports this epoch.
    fn pod(index: i32, epoch: &str, supervised: bool) -> PartialPod {
        let rules = json!([{"action": "Restart", "exitCodes": {"operator": "NotIn", "values": [0]}}]);
        let mut worker = json!({"name": "worker"});
        let mut spec = json!({});
        if supervised {
            worker["restartPolicy"] = json!("Never");
            worker["restartPolicyRules"] = rules;
        } else {
            spec["initContainers"] = json!([{"name": "agent", "restartPolicy": "Always", "restartPolicyRules": rules}]);
        }
        spec["containers"] = json!([worker, {"name": "sync"}]);
        spec["nodeName"] = json!("n");
        serde_json::from_value(json!({
            "metadata": {
                "name": format!("train-w-0-{index}-a"),
                "labels": {"jobset.sigs.k8s.io/jobset-name": "train", "jobset.sigs.k8s.io/jobset-uid": "u"},
                "annotations": {"jobset.sigs.k8s.io/epoch": epoch, "batch.kubernetes.io/job-completion-index": index.to_string()}},
            "spec": spec, "status": {"phase": "Running", "containerStatuses": [{"name": "worker", "containerID": "c"}]}}))
        .unwrap()
    }

    fn only(pod: &PartialPod, choice: &LogChoice) -> Result<LogSource, String> {
        let mut found = sources(&jobset("InPlaceRestart"), &[pod], choice).unwrap();
        found.sources.pop().ok_or_else(|| found.missing.concat())
    }

    fn at(epoch: i32) -> LogChoice {
        LogChoice { epoch: Some(epoch), ..LogChoice::default() }
    }

    #[rstest]
    #[case::present(at(4), Ok((false, Some(4), Some(4))))]
    #[case::before(at(3), Ok((true, Some(3), Some(3))))]
    #[case::long_before(at(2), Err("its log of epoch 2 is gone with its container"))]
    #[case::all(LogChoice::default(), Ok((false, Some(4), None)))]
    #[case::previous(LogChoice { previous: true, ..LogChoice::default() }, Ok((true, Some(3), None)))]
    fn log_beside_sidecar_is_that_of_a_container(
        #[case] choice: LogChoice,
        #[case] expected: Result<(bool, Option<i32>, Option<i32>), &str>,
    ) {
        let found = only(&pod(0, "4", false), &choice).map(|it| (it.previous, it.epoch, it.only));
        match expected {
            Ok(expected) => assert_eq!(found, Ok(expected)),
            Err(why) => assert!(found.as_ref().is_err_and(|text| text.contains(why)), "{found:?}"),
        }
    }

    /// The kubelet gives the log of the run before, also without being asked for it.
    #[rstest]
    #[case::at_the_barrier("5", "PodInitializing", 4)]
    #[case::lifted_and_not_started("4", "PodInitializing", 3)]
    #[case::backs_off("4", "CrashLoopBackOff", 4)]
    fn log_of_worker_that_waits_is_of_its_last_run(#[case] epoch: &str, #[case] reason: &str, #[case] expected: i32) {
        let mut waiting = pod(0, epoch, false);
        let state = json!({"name": "worker", "containerID": "c", "state": {"waiting": {"reason": reason}}, "lastState": {"terminated": {"exitCode": 1}}});
        waiting.status.container_statuses = vec![serde_json::from_value(state).unwrap()];
        for choice in [LogChoice::default(), at(expected)] {
            let found = only(&waiting, &choice).unwrap();
            assert_eq!((found.previous, found.epoch), (false, Some(expected)), "{choice:?}");
        }
        let previous = only(&waiting, &LogChoice { previous: true, ..LogChoice::default() }).unwrap();
        assert_eq!(previous.epoch, Some(if reason == "PodInitializing" { expected } else { expected - 1 }));
    }

    #[test]
    fn annotation_of_stream_behind_status_is_no_other_epoch() {
        let relay = json!({"name": "relay", "projected": {"sources": [{"configMap": {"name": "jobset-relay-ca"}}]}});
        let spec = json!({"containers": [{"name": "worker"}], "volumes": [relay]});
        let group = json!({"name": "w", "template": {"spec": {"template": {"spec": spec}}}});
        let mut streamed = jobset("InPlaceRestart");
        streamed.spec.replicated_jobs = vec![serde_json::from_value(group).unwrap()];
        let of = |epoch| sources(&streamed, &[&pod(0, "2", false)], &at(epoch)).unwrap().sources;
        assert_eq!(of(4).iter().map(|it| (it.previous, it.epoch)).collect::<Vec<_>>(), [(false, Some(4))]);
        assert_eq!(of(2), [], "its container runs in epoch 4");
    }

    #[rstest]
    #[case::one_epoch(at(2), "4", Some(2))]
    #[case::all(LogChoice::default(), "4", None)]
    #[case::previous(LogChoice { previous: true, ..LogChoice::default() }, "4", Some(3))]
    #[case::previous_at_the_barrier(LogChoice { previous: true, ..LogChoice::default() }, "5", Some(4))]
    fn log_of_supervised_worker_is_divided(
        #[case] choice: LogChoice,
        #[case] epoch: &str,
        #[case] expected: Option<i32>,
    ) {
        let found = only(&pod(0, epoch, true), &choice).unwrap();
        assert_eq!((found.is_divided, found.previous, found.only), (true, false, expected));
        let beside = LogChoice { container: Some("sync".to_owned()), ..LogChoice::default() };
        assert!(!only(&pod(0, epoch, true), &beside).unwrap().is_divided, "another container has no agent");
    }

    #[rstest]
    #[case::recreated("Recreate", 1, "restarts by recreation, and has no epochs")]
    #[case::not_begun("InPlaceRestart", 5, "has not begun epoch 5: the newest is 4")]
    fn epoch_that_cannot_be_is_an_error(#[case] strategy: &str, #[case] epoch: i32, #[case] expected: &str) {
        let found = sources(&jobset(strategy), &[], &at(epoch));
        assert!(found.as_ref().is_err_and(|text| text.starts_with(expected)), "{found:?}");
    }

    #[test]
    fn failed_pods_are_those_that_say_so_or_are_named() {
        let failed = |epoch| LogChoice { failed: true, epoch, ..LogChoice::default() };
        let (quiet, named, mut exited) = (pod(0, "4", true), pod(1, "4", true), pod(2, "4", true));
        let exit = json!({"epoch": 2, "code": 1}).to_string();
        exited.metadata.annotations.get_or_insert_default().insert(labels::WORKER_EXIT.to_owned(), exit);
        let chosen = |choice: &LogChoice| -> Vec<String> {
            let found = sources(&jobset("InPlaceRestart"), &[&exited, &named, &quiet], choice).unwrap();
            found.sources.into_iter().map(|it| it.pod).collect()
        };
        assert_eq!(chosen(&LogChoice::default()), ["train-w-0-0-a", "train-w-0-1-a", "train-w-0-2-a"]);
        assert_eq!(chosen(&failed(None)), ["train-w-0-1-a", "train-w-0-2-a"]);
        assert_eq!(chosen(&failed(Some(3))), ["train-w-0-1-a"]);
        assert_eq!(chosen(&failed(Some(2))), ["train-w-0-2-a"]);
        assert_eq!(chosen(&failed(Some(1))), [""; 0], "epoch 1 is no part of epoch 12");
    }

    #[test]
    fn pod_of_earlier_jobset_of_the_name_is_left_out() {
        let mut old = pod(0, "4", true);
        old.metadata.labels.get_or_insert_default().insert(labels::JOBSET_UID.to_owned(), "old".to_owned());
        assert!(only(&old, &LogChoice::default()).is_err());
        let missing = LogChoice { container: Some("x".to_owned()), ..LogChoice::default() };
        let found = sources(&jobset("InPlaceRestart"), &[&pod(0, "4", false)], &missing).unwrap();
        assert_eq!(found.missing, ["Pod train-w-0-0-a: has no container x, but worker, sync, agent"]);
    }
}
