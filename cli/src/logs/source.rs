//! Which logs there are: of which Pods, which of their containers, and of which epoch.

use jobset_api::{JobSet, RestartStrategy, labels};
use jobset_objects::{PartialContainerStatus, PartialPod, RESTARTING_ALL_CONTAINERS, WorkerExit};
use kube::ResourceExt as _;

use crate::status::{Epochs, epoch, is_own};

/// What the user asks for.
#[derive(Clone, Debug, Default)]
pub(super) struct LogChoice {
    pub epoch: Option<i32>,
    pub failed: bool,
    pub previous: bool,
    pub container: Option<String>,
}

/// The log of one container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LogSource {
    pub pod: String,
    pub container: String,
    /// The run of the container, which ends when it restarts; empty before the first.
    pub run: String,
    /// Whether the log is that of the run before.
    pub previous: bool,
    /// Whether the agent divides the log by epoch.
    pub is_divided: bool,
    /// The epoch of the log, if it has one as a whole.
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

/// The logs that the user asks for, in the order of Jobs and indexes.
///
/// # Errors
/// If there can be none: why not.
pub(super) fn sources(jobset: &JobSet, pods: &[&PartialPod], choice: &LogChoice) -> Result<LogSources, String> {
    let status = jobset.status.clone().unwrap_or_default();
    let in_place = jobset.spec.restart_strategy() == RestartStrategy::InPlaceRestart;
    if let Some(epoch) = choice.epoch {
        if !in_place {
            return Err("restarts by recreation, and has no epochs: leave --epoch out".to_owned());
        }
        if epoch > status.synced_epoch {
            return Err(format!("has not begun epoch {epoch}: the newest is {}", status.synced_epoch));
        }
    }
    let mut pods: Vec<&PartialPod> = pods.iter().copied().filter(|pod| is_own(jobset, *pod)).collect();
    pods.sort_by_cached_key(|pod| place(pod));
    let epochs = Epochs::of(jobset);
    let mut found = LogSources::default();
    for pod in pods {
        if choice.failed && !has_failed(jobset, pod, choice.epoch) {
            continue;
        }
        // An annotation of the agent stream may be old, and the status knows better.
        let reported = match epochs {
            Some(epochs) => epochs.of_pod(pod).and_then(|epoch| epoch.parse().ok()),
            None => reported(pod),
        };
        match source(pod, (in_place, status.synced_epoch), reported.filter(|_| in_place), choice) {
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

/// The log of a Pod. `reported` is its epoch, if it restarts in place and has one.
fn source(
    pod: &PartialPod,
    (in_place, synced): (bool, i32),
    reported: Option<i32>,
    choice: &LogChoice,
) -> Result<LogSource, String> {
    if pod.spec.node_name.is_none() {
        return Err("has no node, and no log".to_owned());
    }
    let containers: Vec<&str> = pod.spec.containers.iter().map(|container| container.name.as_str()).collect();
    let container = match &choice.container {
        Some(name) => {
            let init = pod.spec.init_containers.iter().map(|container| container.name.as_str());
            let all: Vec<&str> = containers.iter().copied().chain(init).collect();
            if !all.contains(&name.as_str()) {
                return Err(format!("has no container {name}, but {}", all.join(", ")));
            }
            name.clone()
        }
        None => containers.first().map(|it| (*it).to_owned()).unwrap_or_default(),
    };
    let run = status_of(pod, &container).map(|it| it.container_id.clone()).unwrap_or_default();
    let is_divided = in_place && is_supervised(pod, &container);
    let base =
        LogSource { pod: pod.name_any(), container, run, previous: false, is_divided, epoch: reported, only: None };
    // A Pod that reports the next epoch waits for it, and its worker has not started in it.
    let last_run = reported.map(|reported| reported.min(synced));
    if is_divided {
        let before = last_run.map(|last| if reported > Some(synced) { last } else { last - 1 });
        let only = choice.epoch.or_else(|| before.filter(|_| choice.previous));
        return Ok(LogSource { only, ..base });
    }
    match choice.epoch {
        Some(wanted) if reported == Some(wanted) => Ok(base),
        Some(wanted) if reported == wanted.checked_add(1) => {
            Ok(LogSource { previous: true, epoch: Some(wanted), ..base })
        }
        Some(wanted) => Err(format!(
            "its log of epoch {wanted} is gone with its container; under a supervisor, logs of all epochs stay"
        )),
        None if choice.previous => {
            Ok(LogSource { previous: true, epoch: reported.map(|reported| reported - 1), ..base })
        }
        None => Ok(base),
    }
}

/// The epoch that the Pod reports.
pub(super) fn reported(pod: &PartialPod) -> Option<i32> {
    epoch(pod)?.parse().ok()
}

/// The status of a container of any kind.
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

/// Whether the worker of the Pod has failed, in this epoch or in any, as far as the Pod and the last restarts tell.
fn has_failed(jobset: &JobSet, pod: &PartialPod, of_epoch: Option<i32>) -> bool {
    let is_of_epoch = |epoch: i32| of_epoch.is_none_or(|wanted| wanted == epoch);
    let name = pod.name_any();
    let restarts = jobset.status.iter().flat_map(|status| &status.recent_restarts);
    let is_named = restarts.into_iter().any(|restart| {
        let of_epoch = of_epoch.is_none_or(|epoch| restart.message.contains(&format!(" in epoch {epoch}")));
        of_epoch && restart.message.split([' ', ',', ';']).any(|word| word == name)
    });
    let exit = WorkerExit::of(pod.annotations()).is_some_and(|exit| exit.code != 0 && is_of_epoch(exit.epoch));
    let statuses = || pod.status.container_statuses.iter();
    let ends = statuses().flat_map(|it| [&it.state.terminated, &it.last_state.terminated]).flatten();
    let has_exited = ends.into_iter().any(|end| end.exit_code != 0 && end.reason != RESTARTING_ALL_CONTAINERS);
    let now = reported(pod).is_none_or(is_of_epoch);
    is_named || exit || now && (has_exited || pod.status.phase == "Failed")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    fn jobset(strategy: &str) -> JobSet {
        let restart = json!({"number": 1, "strategy": "InPlaceRestart", "startTime": "2026-01-01T00:00:00.000000Z",
            "message": "Pod train-w-0-1-a on node n failed in epoch 3, container worker exited with code 1 (Error)"});
        serde_json::from_value(json!({
            "metadata": {"name": "train", "uid": "u"},
            "spec": {"replicatedJobs": [], "failurePolicy": {"restartStrategy": strategy}},
            "status": {"syncedEpoch": 4, "deprecatedEpoch": 3, "recentRestarts": [restart]}}))
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
    #[case::present(at(4), Ok((false, Some(4), None)))]
    #[case::before(at(3), Ok((true, Some(3), None)))]
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
