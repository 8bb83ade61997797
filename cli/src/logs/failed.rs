//! Which workers have failed, as far as their Pods and the last restarts tell.

use jobset_api::JobSet;
use jobset_objects::{PartialPod, RESTARTING_ALL_CONTAINERS, WorkerExit};
use kube::ResourceExt as _;

use super::source::reported;

/// Begin of the message of a restart that somebody has requested: no worker has failed as far as the controller knows.
const REQUESTED: &str = "restart requested: ";

/// Whether the worker of the Pod has failed, in this epoch or in any.
pub(super) fn has_failed(jobset: &JobSet, pod: &PartialPod, of_epoch: Option<i32>) -> bool {
    let is_of_epoch = |epoch: i32| of_epoch.is_none_or(|wanted| wanted == epoch);
    let name = pod.name_any();
    let restarts = jobset.status.iter().flat_map(|status| &status.recent_restarts);
    let is_blamed = restarts
        .filter_map(|restart| blamed(&restart.message))
        .any(|(pod, epoch)| pod == name && (of_epoch.is_none() || epoch == of_epoch));
    let exit = WorkerExit::of(pod.annotations()).is_some_and(|exit| exit.code != 0 && is_of_epoch(exit.epoch));
    let statuses = || pod.status.container_statuses.iter();
    let ends = statuses().flat_map(|it| [&it.state.terminated, &it.last_state.terminated]).flatten();
    let has_exited = ends.into_iter().any(|end| end.exit_code != 0 && end.reason != RESTARTING_ALL_CONTAINERS);
    let now = reported(pod).is_none_or(is_of_epoch);
    is_blamed || exit || now && (has_exited || pod.status.phase == "Failed")
}

/// The Pod whose worker made the group restart, and the epoch that it was in, by the message of a restart. What the worker or a user
/// has said comes behind both, and is not read: it may name any Pod, and the epochs of a training.
fn blamed(message: &str) -> Option<(&str, Option<i32>)> {
    if message.starts_with(REQUESTED) {
        return None;
    }
    let (_, rest) = message.split_once("Pod ")?;
    let end = rest.find([' ', ',', ';']).unwrap_or(rest.len());
    let (pod, rest) = rest.split_at(end);
    // The Job controller puts the namespace before the name.
    let pod = pod.rsplit('/').next().unwrap_or(pod);
    let words = rest.split([',', '(', ':', ';']).next().unwrap_or_default();
    let number = |after: &str| words.split_once(after)?.1.split(' ').next()?.parse::<i32>().ok();
    let begun = || number(" restarted into epoch ")?.checked_sub(1);
    Some((pod, number(" in epoch ").or_else(begun)))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::failed("Pod w-0 on node n failed in epoch 12, container worker exited with code 1 (Error): Pod w-1 in epoch 1", Some(("w-0", Some(12))))]
    #[case::disrupted("Pod w-0 on node n failed in epoch 3, disrupted (EvictionByEvictionAPI: in epoch 9)", Some(("w-0", Some(3))))]
    #[case::refused("Pod w-0 was refused by node n in epoch 3 (OutOfcpu: no)", Some(("w-0", Some(3))))]
    #[case::lost("Pod w-0 was lost in epoch 3: its node n has restarted", Some(("w-0", Some(3))))]
    #[case::deleted("Pod w-0 on node n was deleted in epoch 3 by a user or another program, exit code unknown", Some(("w-0", Some(3))))]
    #[case::unobserved("Pod w-0 on node n restarted into epoch 4, its failure was not observed, exit code unknown", Some(("w-0", Some(3))))]
    #[case::loss("the worker of Pod w-0 on node n exited 0 because the Pod was deleted: its work is lost", Some(("w-0", None)))]
    #[case::of_a_job("Job train-w-0 failed (BackoffLimitExceeded: no); Pod w-0 on node n failed, exit code 1: loss is NaN in epoch 9", Some(("w-0", None)))]
    #[case::by_the_job_controller("Job train-w-0 failed (PodFailurePolicy: Pod ml/w-0 has condition DisruptionTarget matching FailJob rule at index 0)", Some(("w-0", None)))]
    #[case::requested("restart requested: Pod w-0 failed in epoch 3; Pod w-1 on node n; request a", None)]
    #[case::nobody("workers restarted, their failures were not observed", None)]
    #[case::cut("Pod w-0", Some(("w-0", None)))]
    fn blamed_pod_and_epoch_are_those_of_controllers_words(
        #[case] message: &str,
        #[case] expected: Option<(&str, Option<i32>)>,
    ) {
        assert_eq!(blamed(message), expected);
    }
}
