//! The Pods of a JobSet, counted as they come.
//!
//! An event of a Pod changes the counts of one slot of one Job, whatever the size of the JobSet, and says whether a rule could
//! decide differently because of it: most events (a probe, a condition) change nothing. No rule walks over all Pods.

mod containers;
mod end;
mod failure;
mod job_pods;
mod life;
mod member;
mod progress;
mod slot;
mod stream_report;
mod unscheduled;
mod view;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use jobset_api::JobSetStatus;
use k8s_openapi::jiff::Timestamp;

pub use failure::shorten;
pub use failure::{Exit, PodFailure, ReportedExit};
pub(crate) use job_pods::Extent;
pub use job_pods::JobPods;
#[cfg(any(test, feature = "testing"))]
pub use job_pods::Kept;
pub use life::{EndedLife, parse as parse_start};
pub use progress::{PodProgress, PodStall};
pub use slot::{Blocked, FailedWorker};
pub use stream_report::StreamReport;
pub use stream_report::StreamReports;
pub use view::{Domain, Epoch, PodPhase, PodView, WaitingContainer};

#[derive(Debug, Default)]
pub struct JobSetPods {
    jobs: HashMap<Arc<str>, JobPods>,
    places: HashMap<Box<str>, PodPlace>,
    epochs: ObservedEpochs,
    /// Whether an agent of the Go JobSet has reported.
    report_attempts: bool,
    /// What agents have reported over the stream.
    reports: StreamReports,
}

/// `status.syncedEpoch` and `status.deprecatedEpoch` of a JobSet, as last observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObservedEpochs {
    /// The epoch whose workers may run.
    pub synced: i32,
    /// Epochs up to this one are over.
    pub deprecated: i32,
    /// When `synced` began, if the status says so.
    pub lifted_at: Option<Timestamp>,
}

impl ObservedEpochs {
    pub fn of(status: &JobSetStatus) -> Self {
        Self {
            synced: status.synced_epoch,
            deprecated: status.deprecated_epoch,
            lifted_at: status.epoch_transition_time.as_ref().map(|time| time.0),
        }
    }

    /// Whether workers run in this epoch: it has begun, and is not over.
    fn runs(self, epoch: i32) -> bool {
        epoch == self.synced && epoch > self.deprecated
    }
}

/// Job, completion index and node of a Pod.
#[derive(Clone, Debug)]
struct PodPlace {
    job: Arc<str>,
    index: Option<i32>,
    node: Option<Arc<str>>,
}

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct PodChange {
    /// A rule could decide differently.
    pub matters: bool,
    /// The Pod is gone, and its end is a failure.
    pub failed: bool,
    /// The node that the Pod is on now, and the one that it was on before.
    pub nodes: (Option<Arc<str>>, Option<Arc<str>>),
}

impl JobSetPods {
    pub fn of_job(&self, uid: &str) -> Option<&JobPods> {
        self.jobs.get(uid)
    }

    pub fn jobs(&self) -> impl Iterator<Item = (&str, &JobPods)> {
        self.jobs.iter().map(|(uid, pods)| (&**uid, pods))
    }

    /// Whether Pods exist whose Job is none of these.
    pub fn has_others_than(&self, is_one: impl Fn(&str) -> bool) -> bool {
        self.jobs.iter().any(|(uid, pods)| !pods.is_empty() && !is_one(uid))
    }

    /// Whether an agent of the Go JobSet has reported for one of these Pods.
    pub fn report_attempts(&self) -> bool {
        self.report_attempts
    }

    pub fn named(&self, name: &str) -> Option<(&str, &PodView)> {
        let place = self.places.get(name)?;
        Some((&*place.job, self.jobs.get(&place.job)?.find(name, place.index)?))
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = Arc<str>> {
        self.places.values().filter_map(|place| place.node.clone())
    }

    pub fn count_nodes(&self) -> usize {
        let nodes: HashSet<&Arc<str>> = self.places.values().filter_map(|place| place.node.as_ref()).collect();
        nodes.len()
    }

    /// The Pods on the nodes for which `is_one` is true, each with the UID of its Job, in the order of their names.
    pub fn on_nodes(&self, is_one: impl Fn(&str) -> bool) -> Vec<(&str, &PodView)> {
        let on = |place: &PodPlace| place.node.as_deref().is_some_and(&is_one);
        let places = self.places.iter().filter(|(_, place)| on(place));
        let pods = places.filter_map(|(name, place)| {
            let pods = self.jobs.get(&place.job)?;
            Some((&*place.job, pods.find(name, place.index)?))
        });
        let mut pods: Vec<_> = pods.collect();
        pods.sort_unstable_by(|(_, a), (_, b)| a.name.cmp(&b.name));
        pods
    }

    pub(crate) fn apply(&mut self, mut view: PodView) -> PodChange {
        self.report_attempts |= view.reports_attempt;
        self.forget_replaced(&view);
        self.reports.observe(&view);
        self.reports.overlay(&mut view, self.epochs);
        let uid = view.job_uid.take().unwrap_or_default();
        let job = self.jobs.get_key_value(uid.as_str()).map_or_else(|| Arc::from(uid), |(job, _)| job.clone());
        let place = PodPlace { job: job.clone(), index: view.index, node: view.node.clone() };
        let before = self.places.insert(view.name.as_str().into(), place);
        if let Some(before) = before.as_ref().filter(|before| before.job != job || before.index != view.index) {
            self.remove_from_job(&view.name, before);
        }
        let is_new = before.is_none();
        let nodes = (view.node.clone(), before.and_then(|before| before.node));
        let changed = self.jobs.entry(job).or_default().apply(view, self.epochs);
        PodChange { matters: changed || is_new || nodes.0 != nodes.1, failed: false, nodes }
    }

    /// An agent has reported over the stream. Returns whether a rule could decide differently.
    pub(crate) fn apply_report(&mut self, report: StreamReport) -> bool {
        let (pod, uid) = (report.pod.clone(), report.pod_uid.clone());
        let jobs = &self.jobs;
        let known = self.places.get(&*pod).and_then(|place| jobs.get(&place.job)?.find_uid(&pod, &uid, place.index));
        self.reports.note(report, known) && self.raise(&pod, &uid)
    }

    /// The connection of an agent has ended.
    pub(crate) fn agent_gone(&mut self, pod_uid: &str) {
        self.reports.agent_gone(pod_uid);
    }

    /// What agents have reported over the stream, for a value to which no Pod was shown yet.
    pub(crate) fn reports(&self) -> StreamReports {
        self.reports.clone().unobserved()
    }

    /// A value to which no Pod was shown yet.
    pub(crate) fn with_reports(reports: StreamReports) -> Self {
        Self { reports, ..Self::default() }
    }

    /// Raises a known Pod to its report. Returns whether a rule could decide differently.
    fn raise(&mut self, pod: &str, uid: &str) -> bool {
        let Some(PodPlace { job, index, .. }) = self.places.get(pod) else { return false };
        let Some(pods) = self.jobs.get_mut(job) else { return false };
        let Some(mut view) = pods.find_uid(pod, uid, *index).cloned() else { return false };
        self.reports.overlay(&mut view, self.epochs);
        pods.apply(view, self.epochs)
    }

    /// Forgets the report of the Pod that another one has replaced under its name.
    fn forget_replaced(&mut self, view: &PodView) {
        let known =
            self.places.get(&*view.name).and_then(|place| self.jobs.get(&place.job)?.find(&view.name, place.index));
        if let Some(replaced) = known.filter(|known| known.uid != view.uid) {
            self.reports.forget(&replaced.uid);
        }
    }

    pub(crate) fn remove(&mut self, name: &str) -> PodChange {
        let Some(place) = self.places.remove(name) else { return PodChange::default() };
        if let Some(pod) = self.jobs.get(&place.job).and_then(|pods| pods.find(name, place.index)) {
            self.reports.forget(&pod.uid);
        }
        let failed = self.remove_from_job(name, &place);
        PodChange { matters: true, failed, nodes: (None, place.node) }
    }

    /// Returns whether the end of the Pod is a failure.
    fn remove_from_job(&mut self, name: &str, place: &PodPlace) -> bool {
        let Some(pods) = self.jobs.get_mut(&place.job) else { return false };
        let failed = pods.remove(name, place.index, self.epochs);
        if pods.is_forgettable() {
            self.jobs.remove(&place.job);
        }
        failed
    }

    pub(crate) fn set_epochs(&mut self, epochs: ObservedEpochs) {
        let before = std::mem::replace(&mut self.epochs, epochs);
        self.jobs.values_mut().for_each(|job| job.turn(epochs));
        for (pod, uid) in self.reports.counting_since(before, epochs) {
            self.raise(&pod, &uid);
        }
    }

    /// Which slots of a Job count, whenever it was observed.
    pub(crate) fn set_extent(&mut self, job: &str, extent: Extent) {
        if let Some(pods) = self.jobs.get_mut(job) {
            pods.set_extent(Some(extent));
        } else {
            self.jobs.entry(Arc::from(job)).or_default().set_extent(Some(extent));
        }
    }

    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn insert_job(&mut self, job: &str, pods: JobPods) {
        self.jobs.insert(Arc::from(job), pods);
    }

    /// A Job is gone, with all that its slots remember.
    pub(crate) fn forget_job(&mut self, job: &str) {
        if let Some(pods) = self.jobs.get_mut(job) {
            pods.set_extent(None);
            if pods.is_empty() {
                self.jobs.remove(job);
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }
}
