//! The barrier of a JobSet with in-place restart. It follows from epochs alone: those that the Pods report, and the synced and
//! deprecated epoch of the JobSet's status.
//!
//! With the agent stream, the annotation of a Pod follows its report later. The status says more: an epoch begins only when all members
//! of the group have reported it.

use std::borrow::Cow;

use jobset_api::agent::{annotation_delays, uses_relay};
use jobset_api::epoch::{EpochVerdict, GroupEpochs};
use jobset_api::{JobSet, JobSetStatus, RestartStrategy, labels};
use jobset_objects::PartialPod;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::pod::epoch;

/// The epochs of a JobSet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Epochs {
    /// The epoch whose workers may run; 0 before the first start. The controller writes it.
    pub synced: i32,
    /// Pods at this or an earlier epoch restart. The controller writes it.
    pub deprecated: i32,
    /// If agents report over the stream: how long annotations of Pods may follow later. The log of a relay alone knows whether it serves
    /// them.
    #[serde(skip)]
    pub lag: Option<SignedDuration>,
    /// When one of the two epochs last rose.
    #[serde(skip)]
    pub since: Option<Timestamp>,
}

/// Creation times have whole seconds: a Pod may be so much younger than they say.
const CREATION: SignedDuration = SignedDuration::from_secs(1);

impl Epochs {
    /// The epochs of a JobSet; none without in-place restart, or if it is switched off for the agents.
    pub fn of(jobset: &JobSet) -> Option<Self> {
        let GroupEpochs { synced, deprecated } = jobset.status.as_ref().map(JobSetStatus::epochs).unwrap_or_default();
        let annotations = jobset.metadata.annotations.as_ref();
        let switched_off = annotations.is_some_and(|it| it.contains_key(labels::DISABLE_IN_PLACE_RESTART));
        let in_place = jobset.spec.restart_strategy() == RestartStrategy::InPlaceRestart && !switched_off;
        let mut pods = jobset.spec.replicated_jobs.iter().filter_map(|it| it.template.spec.template.spec.as_ref());
        let delays = || annotation_delays(u32::try_from(jobset.spec.expected_pods()).unwrap_or(u32::MAX));
        let lag =
            pods.any(uses_relay).then(|| SignedDuration::try_from(*delays().end()).unwrap_or(SignedDuration::MAX));
        let since = jobset.status.as_ref().and_then(|status| status.epoch_transition_time.as_ref()).map(|time| time.0);
        in_place.then_some(Self { synced, deprecated, lag, since })
    }

    /// The epoch of a Pod, as far as annotation and status tell. An annotation of the stream may be old, but a Pod that has reported any
    /// epoch, or is older than the epoch that runs or than its end, was a member when that began: it has reported it.
    pub fn of_pod(self, pod: &PartialPod) -> Option<Cow<'_, str>> {
        let reported = epoch(pod);
        let is_member = match reported.as_deref().map(str::parse::<i32>) {
            Some(Ok(number)) => (1..self.synced).contains(&number),
            Some(Err(_)) => false,
            None => self.synced > 0 && self.is_older_than_epoch(pod),
        };
        if self.lag.is_some() && is_member { Some(Cow::Owned(self.synced.to_string())) } else { reported }
    }

    /// Whether a Pod was there when the epoch that runs began, or when it ended: the successor of a lost Pod comes after that.
    fn is_older_than_epoch(self, pod: &PartialPod) -> bool {
        match (self.since, &pod.metadata.creation_timestamp) {
            (Some(since), Some(created)) => created.0.duration_until(since) >= CREATION,
            // A controller of before does not say when.
            _ => pod.is_ready(),
        }
    }

    /// The epoch that Pods report when they wait at the barrier.
    pub fn next(self) -> i32 {
        self.group().next().unwrap_or(i32::MAX)
    }

    /// Whether no worker may run: before the first start and during a restart.
    pub fn is_closed(self) -> bool {
        self.group().is_closed()
    }

    fn group(self) -> GroupEpochs {
        GroupEpochs { synced: self.synced, deprecated: self.deprecated }
    }
}

/// The barrier of the whole group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Barrier {
    /// Whether workers may run.
    pub lifted: bool,
    /// The running epoch if the barrier is lifted, or else the next one.
    pub epoch: i32,
    /// Pods that have reported the next epoch.
    pub reported: usize,
    /// Pods that the barrier waits for.
    pub expected: i64,
}

impl Barrier {
    /// The barrier of a group of `expected` Pods, of which `reported` have reported the next epoch.
    pub fn of(epochs: Epochs, reported: usize, expected: i64) -> Self {
        let lifted = !epochs.is_closed();
        let epoch = if lifted { epochs.synced } else { epochs.next() };
        Self { lifted, epoch, reported, expected }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub enum PodBarrier {
    /// The agent has not reported an epoch yet.
    Unreported,
    /// The Pod waits for the other Pods.
    Waiting,
    /// The worker may run.
    Lifted,
    /// The epoch is deprecated: the Pod restarts or is about to.
    Restarting,
    /// The reported value is no epoch, or an impossible one.
    Invalid,
}

impl PodBarrier {
    /// The barrier of a Pod that reports this epoch.
    pub fn of(epoch: Option<&str>, epochs: Epochs) -> Self {
        let Some(text) = epoch else { return Self::Unreported };
        match text.parse::<i32>() {
            Ok(epoch) if epoch < 1 || epoch > epochs.next() => Self::Invalid,
            Ok(epoch) if epoch == epochs.next() => Self::Waiting,
            Ok(epoch) if epochs.group().verdict(epoch) == EpochVerdict::Restart => Self::Restarting,
            Ok(_) => Self::Lifted,
            Err(_) => Self::Invalid,
        }
    }

    /// The barrier of a Pod, by its epoch.
    pub fn of_pod(pod: &PartialPod, epochs: Epochs) -> Self {
        Self::of(epochs.of_pod(pod).as_deref(), epochs)
    }

    /// The name in tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unreported => "not reported",
            Self::Waiting => "waiting",
            Self::Lifted => "lifted",
            Self::Restarting => "restarting",
            Self::Invalid => "invalid epoch",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::first_start(None, (0, 0), PodBarrier::Unreported)]
    #[case::reported_first(Some("1"), (0, 0), PodBarrier::Waiting)]
    #[case::runs(Some("1"), (1, 0), PodBarrier::Lifted)]
    #[case::failed_and_is_back(Some("2"), (1, 0), PodBarrier::Waiting)]
    #[case::has_to_restart(Some("1"), (1, 1), PodBarrier::Restarting)]
    #[case::is_back(Some("2"), (1, 1), PodBarrier::Waiting)]
    #[case::runs_again(Some("2"), (2, 1), PodBarrier::Lifted)]
    #[case::slept_through_it(Some("1"), (2, 1), PodBarrier::Restarting)]
    #[case::nothing(Some("0"), (2, 1), PodBarrier::Invalid)]
    #[case::too_far(Some("4"), (2, 1), PodBarrier::Invalid)]
    #[case::no_number(Some("many"), (2, 1), PodBarrier::Invalid)]
    #[case::last_of_all(Some("2147483647"), (i32::MAX, 1), PodBarrier::Waiting)]
    fn pod_barrier_follows_from_epoch(
        #[case] epoch: Option<&str>,
        #[case] (synced, deprecated): (i32, i32),
        #[case] expected: PodBarrier,
    ) {
        assert_eq!(PodBarrier::of(epoch, Epochs { synced, deprecated, ..Epochs::default() }), expected);
    }

    /// Epoch 3 began at 10:00:00.5, or has ended then.
    #[rstest]
    #[case::old_annotation(Some("1"), "09:00:00", false, Some("3"))]
    #[case::no_annotation_yet(None, "09:00:00", false, Some("3"))]
    #[case::came_when_it_began(None, "10:00:00", true, None)]
    #[case::came_later_and_supervises(None, "10:00:07", true, None)]
    #[case::annotation_of_a_restart(Some("4"), "09:00:00", true, Some("4"))]
    #[case::nonsense(Some("many"), "09:00:00", true, Some("many"))]
    #[case::impossible(Some("0"), "09:00:00", true, Some("0"))]
    fn epoch_of_stream_member_is_at_least_the_synced_one(
        #[case] annotation: Option<&str>,
        #[case] created: &str,
        #[case] is_ready: bool,
        #[case] expected: Option<&str>,
    ) {
        let pod = pod(annotation, created, is_ready);
        let running =
            Epochs { synced: 3, deprecated: 2, lag: Some(SignedDuration::from_secs(11)), since: Some(since()) };
        assert_eq!(running.of_pod(&pod).as_deref(), expected);
        assert_eq!(Epochs { lag: None, ..running }.of_pod(&pod).as_deref(), annotation, "a watch reports at once");
    }

    /// In a restart the status does not say who has reported the next epoch.
    #[rstest]
    #[case::old_annotation(Some("1"), Some("3"), PodBarrier::Restarting)]
    #[case::reported(Some("4"), Some("4"), PodBarrier::Waiting)]
    #[case::no_annotation_yet(None, Some("3"), PodBarrier::Restarting)]
    #[case::successor_of_lost_pod(None, None, PodBarrier::Unreported)]
    fn epoch_of_stream_member_in_restart(
        #[case] annotation: Option<&str>,
        #[case] expected: Option<&str>,
        #[case] barrier: PodBarrier,
    ) {
        let created = if expected.is_some() { "09:00:00" } else { "10:00:01" };
        let pod = pod(annotation, created, false);
        let closed =
            Epochs { synced: 3, deprecated: 3, lag: Some(SignedDuration::from_secs(11)), since: Some(since()) };
        assert_eq!(closed.of_pod(&pod).as_deref(), expected);
        assert_eq!(PodBarrier::of_pod(&pod, closed), barrier);
    }

    fn since() -> Timestamp {
        "2026-11-22T10:00:00.5Z".parse().unwrap()
    }

    fn pod(annotation: Option<&str>, created: &str, is_ready: bool) -> PartialPod {
        let ready = if is_ready { "True" } else { "False" };
        serde_json::from_value(serde_json::json!({
            "metadata": {
                "name": "p", "creationTimestamp": format!("2026-11-22T{created}Z"),
                "annotations": annotation.map(|epoch| BTreeMap::from([(labels::EPOCH, epoch)])),
            },
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }))
        .unwrap()
    }

    #[test]
    fn barrier_next_epoch_is_expected_until_synced() {
        let of = |synced, deprecated| Barrier::of(Epochs { synced, deprecated, ..Epochs::default() }, 1, 3);
        assert_eq!(of(0, 0), Barrier { lifted: false, epoch: 1, reported: 1, expected: 3 });
        assert_eq!(of(2, 1), Barrier { lifted: true, epoch: 2, reported: 1, expected: 3 });
        assert_eq!(of(2, 2), Barrier { lifted: false, epoch: 3, reported: 1, expected: 3 });
    }
}
