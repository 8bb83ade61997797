//! Lets the successors of failed Pods come at once.
//!
//! Where failures are counted by index, the Job controller delays the successor of a failed Pod by 10 s, and twice as long after
//! each further failure of the index, at most 10 minutes. A rule of the podFailurePolicy that ignores the failure does not change
//! that. Until the successor exists, the Job controller keeps its finalizer on the failed Pod, so that a drain waits, too. A
//! failed Pod without the finalizer delays nothing (`getPodsWithDelayedDeletionPerIndex` in Kubernetes).
//!
//! So this rule releases failed Pods: it removes the finalizer. The stored status is the write-ahead log here as well. A Pod that
//! ran is released once the stored status says that its epoch is over, so that its loss is counted whoever leads then. A Pod
//! that never ran waits for a back-off of our own. A Pod whose end the podFailurePolicy has to see is left to the Job controller.

use jobset_api::JobTemplateSpec;
use jobset_api::epoch::GroupEpochs;
use jobset_store::pods::{JobPods, PodPhase, PodView};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::reconciliation::{Current, Reconciliation};
use crate::types::Action;

/// Back-off after the second Pod of a slot in a row that failed before its worker ran. It doubles with each further one.
const RELEASE_BACKOFF: SignedDuration = SignedDuration::from_secs(10);
/// Longest back-off of a Pod that failed before its worker ran.
const RELEASE_CAP: SignedDuration = SignedDuration::from_mins(5);

pub(super) fn release(reconciliation: &mut Reconciliation<'_>) {
    let jobset = reconciliation.observed.jobset;
    if !reconciliation.in_place() || jobset.spec.is_suspended() {
        return;
    }
    let stored = reconciliation.observed.stored_epochs();
    let groups = reconciliation.groups();
    let spares = |current: &&Current<'_>| {
        let job = current.job;
        job.spares_failures && !current.is_over() && !job.failing && !job.suspended
    };
    let jobs: Vec<Current<'_>> = reconciliation.current.iter().filter(spares).copied().collect();
    let mut releases = Vec::new();
    for current in jobs {
        let template = &groups[current.group].template.spec;
        for slot in current.pods.into_iter().flat_map(JobPods::held) {
            for (place, pod) in slot.iter().enumerate().filter(|(_, pod)| may_be_released(pod, template)) {
                match due(pod, &slot[place + 1..], stored) {
                    Some(due) if reconciliation.now.0 < due => reconciliation.requeue_at(due),
                    Some(_) => releases.push(Action::ReleasePod { name: pod.name.clone(), uid: pod.uid.clone() }),
                    None => {}
                }
            }
        }
    }
    reconciliation.actions.extend(releases);
}

/// Whether the Job controller has no use for the end of the Pod.
fn may_be_released(pod: &PodView, template: &JobTemplateSpec) -> bool {
    let action = pod.failure.as_ref().and_then(|failure| failure.first_action(template));
    pod.delays_its_successor() && matches!(action, None | Some("Ignore"))
}

/// When the failed Pod is released; `None` before its loss is in the stored status. `older` are the Pods before it in its slot, the
/// newest first.
///
/// The back-off of a Pod that never ran begins with its creation: a Pod that took longer than that to fail has waited. Who deletes
/// a Pod waits for its end.
fn due(pod: &PodView, older: &[&PodView], stored: GroupEpochs) -> Option<Timestamp> {
    if has_begun(pod, stored) {
        let is_stored = pod.epoch.number().is_some_and(|epoch| epoch <= stored.deprecated);
        return is_stored.then_some(pod.created);
    }
    if pod.deleted_at.is_some() {
        return Some(pod.created);
    }
    let failed_before_worker =
        |pod: &&&PodView| pod.phase == PodPhase::Failed && pod.deleted_at.is_none() && !has_begun(pod, stored);
    Some(
        pod.created
            .saturating_add(backoff(older.iter().take_while(failed_before_worker).count()))
            .unwrap_or(pod.created),
    )
}

/// Whether the epoch that the Pod reports has begun. Otherwise its worker has never run.
fn has_begun(pod: &PodView, stored: GroupEpochs) -> bool {
    pod.epoch.number().is_some_and(|epoch| (1..=stored.synced).contains(&epoch))
}

/// The back-off after so many Pods in a row that failed before their worker ran.
fn backoff(before: usize) -> SignedDuration {
    let Some(doublings) = before.checked_sub(1) else { return SignedDuration::ZERO };
    let factor = 1 << doublings.min(16);
    RELEASE_BACKOFF.checked_mul(factor).unwrap_or(RELEASE_CAP).min(RELEASE_CAP)
}

#[cfg(test)]
mod tests {
    use jobset_store::pods::Epoch;
    use rstest::rstest;

    use super::*;

    const STORED: GroupEpochs = GroupEpochs { synced: 3, deprecated: 2 };

    fn failed(epoch: Epoch) -> PodView {
        PodView { phase: PodPhase::Failed, tracked: true, epoch, ..PodView::default() }
    }

    #[rstest]
    #[case::its_epoch_is_over(failed(Epoch::Reported(2)), true)]
    #[case::its_epoch_runs(failed(Epoch::Reported(3)), false)]
    #[case::it_waited_at_the_barrier(failed(Epoch::Reported(4)), true)]
    #[case::it_has_not_reported(failed(Epoch::Absent), true)]
    #[case::it_reports_no_number(failed(Epoch::Malformed("x".into())), true)]
    fn pod_that_ran_is_released_once_its_loss_is_stored(#[case] pod: PodView, #[case] released: bool) {
        assert_eq!(due(&pod, &[], STORED).is_some(), released);
    }

    #[rstest]
    #[case::first(0, 0)]
    #[case::second(1, 10)]
    #[case::third(2, 20)]
    #[case::fifth(4, 80)]
    #[case::seventh(6, 300)]
    #[case::extreme(usize::MAX, 300)]
    fn backoff_doubles_up_to_five_minutes(#[case] before: usize, #[case] seconds: i64) {
        assert_eq!(backoff(before), SignedDuration::from_secs(seconds));
    }

    #[rstest]
    #[case::failed_before_their_worker(&[failed(Epoch::Absent), failed(Epoch::Reported(4))], 20)]
    #[case::ran_between(&[failed(Epoch::Absent), failed(Epoch::Reported(2)), failed(Epoch::Absent)], 10)]
    #[case::was_deleted_between(&[PodView { deleted_at: Some(Timestamp::UNIX_EPOCH), ..failed(Epoch::Absent) }], 0)]
    fn pods_in_a_row_that_never_ran_back_off(#[case] older: &[PodView], #[case] seconds: i64) {
        let older: Vec<&PodView> = older.iter().collect();
        let expected = Timestamp::from_second(seconds).unwrap();
        assert_eq!(due(&failed(Epoch::Absent), &older, STORED), Some(expected));
    }

    #[test]
    fn deleted_pod_that_never_ran_does_not_back_off() {
        let older = failed(Epoch::Absent);
        let pod = PodView { deleted_at: Some(Timestamp::UNIX_EPOCH), ..failed(Epoch::Absent) };
        assert_eq!(due(&pod, &[&older, &older], STORED), Some(Timestamp::UNIX_EPOCH));
    }
}
