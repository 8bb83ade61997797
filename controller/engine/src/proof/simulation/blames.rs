//! On whom incidents are blamed, against who has truly failed first: a strike is of the first failure of its epoch, as far as what the
//! controller has observed can show that, or of a node that proves to be bad.

use jobset_api::{JobSetStatus, LaterFields, NodeStrike};
use jobset_rules::{ExitClass, Plan, Trigger};
use jobset_store::Observed;
use jobset_store::pods::{JobPods, PodPhase, PodView};
use k8s_openapi::jiff::Timestamp;

use super::cluster::{BEGINNING, SimulatedCluster};

/// Exit codes that a worker has which was asked to end, too: they do not show that it has failed.
const OF_ASKED: [i32; 2] = [137, 143];

/// A worker has failed.
#[derive(Clone, Debug)]
pub(super) struct TrueEnd {
    /// UID of its Pod.
    uid: String,
    /// Job, index and node.
    place: (String, i32, String),
    epoch: Option<i32>,
    /// On the clock of the simulation, in milliseconds.
    at: i64,
}

impl TrueEnd {
    fn is_of(&self, strike: &NodeStrike) -> bool {
        (&self.place.0, self.place.1, &self.place.2) == (&strike.job, strike.index, &strike.node)
    }
}

impl SimulatedCluster {
    /// The worker of the Pod has failed.
    pub(super) fn note_end(&mut self, uid: &str) {
        let Some(place) = self.place_of(uid) else { return };
        let epoch = self.machines.get(uid).and_then(|machine| machine.runs_in().or(machine.epoch));
        let end = TrueEnd { uid: uid.to_owned(), place, epoch, at: self.clock };
        self.controller.planner.ends.borrow_mut().push(end);
    }

    /// When the worker of the Pod has failed last, as its agent says it.
    pub(super) fn last_end(&self, uid: &str) -> String {
        let ends = self.controller.planner.ends.borrow();
        let at = ends.iter().rev().find(|end| end.uid == uid).map_or(self.clock, |end| end.at);
        format!("{:.6}", Timestamp::from_millisecond(BEGINNING * 1_000 + at).unwrap_or_default())
    }
}

/// Blames the Pod that is the first to report the next epoch, if there is one, and nobody else.
pub(in crate::proof) fn blame_first_to_report(
    observed: &Observed<'_>,
    before: &JobSetStatus,
    status: &mut JobSetStatus,
) {
    let next = before.synced_epoch + 1;
    let first = observed.jobs().find_map(|(name, job)| Some((name, observed.pods_of(job)?.first_to_report(next)?)));
    let Some((job, pod)) = first else { return };
    let (Some(node), Some(index), Some(restart)) = (&pod.node, pod.index, status.recent_restarts.last()) else {
        return;
    };
    status.node_strikes.clone_from(&before.node_strikes);
    status.node_strikes.push(NodeStrike {
        node: node.to_string(),
        time: restart.start_time.clone(),
        job: job.to_owned(),
        index,
        reason: Trigger::ContainerExit(ExitClass::Unknown).word().to_owned(),
        later: LaterFields::new(),
    });
}

/// A strike that the plan makes, or begins the next epoch with, although it is observed that another worker has failed before.
pub(super) fn wrong(observed: &Observed<'_>, plan: &Plan, ends: &[TrueEnd]) -> Option<String> {
    let before = observed.status();
    let (epoch, lifts) = (before.synced_epoch, plan.status.synced_epoch > before.synced_epoch);
    let of_epoch = |end: &&TrueEnd| end.epoch == Some(epoch);
    let kinds =
        [Trigger::ContainerExit(ExitClass::Unknown), Trigger::PodFailed(ExitClass::Unknown), Trigger::JobFailed];
    let of_failures = plan.status.node_strikes.iter().filter(|it| kinds.iter().any(|kind| kind.word() == it.reason));
    let judged = of_failures.filter(|it| lifts || !before.node_strikes.contains(it));
    // Workers of a Job that has succeeded, or is about to, fail for that, and are nobody's failure.
    let open =
        || observed.jobs().filter(|(_, job)| job.finished.is_none()).filter_map(|(_, job)| observed.pods_of(job));
    let pods = || open().filter(|pods| pods.done().is_empty()).flat_map(JobPods::all);
    judged.into_iter().find_map(|strike| {
        ends.iter().filter(of_epoch).find(|end| end.is_of(strike) && is_about(strike, end.at))?;
        let own = ends.iter().filter(of_epoch).filter(|end| end.place.2 == strike.node).map(|end| end.at).min()?;
        let ended =
            |pod: &PodView| ends.iter().filter(of_epoch).filter(|end| end.uid == pod.uid).map(|end| end.at).max();
        let is_elsewhere = |pod: &&PodView| pod.node.as_deref() != Some(&*strike.node);
        let ended = pods().filter(is_elsewhere).filter_map(|pod| Some((pod, ended(pod)?)));
        if let Some((pod, at)) = ended.filter(|(pod, at)| shows_failure(pod, epoch, *at)).find(|(_, at)| *at < own) {
            let what = if lifts { "the next epoch begins with" } else { "the plan makes" };
            return Some(format!("{what} {strike:?} of {own}, and {} has failed at {at}", pod.name));
        }
        let lost = observed.unreachable().into_iter().find(|it| it.pod.phase == PodPhase::Open)?;
        Some(format!("{strike:?}, and the node of {} is lost", lost.pod.name))
    })
}

/// Whether the strike may be of what has happened at this time. An earlier one of the same place is of an earlier epoch.
fn is_about(strike: &NodeStrike, at: i64) -> bool {
    (strike.time.0.as_millisecond() - BEGINNING * 1_000 - at).abs() < 60_000
}

/// Whether the Pod shows that its worker has failed in this epoch, at this time. The status of one whose supervisor has failed since shows
/// that.
fn shows_failure(pod: &PodView, epoch: i32, at: i64) -> bool {
    let status = pod.failure.as_ref().filter(|_| pod.epoch.number() == Some(epoch));
    let exit = status.and_then(|failure| failure.exit.as_ref());
    let is_its = |finished: Timestamp| (BEGINNING * 1_000 + at - finished.as_millisecond()).abs() < 1_000;
    let is_failure = exit
        .is_some_and(|exit| exit.code != 0 && !OF_ASKED.contains(&exit.code) && exit.finished_at.is_some_and(is_its));
    let is_reported = pod.worker_exit.as_ref().is_some_and(|reported| reported.epoch == epoch);
    pod.deleted_at.is_none() && !pod.is_disrupted() && (is_failure || is_reported)
}
