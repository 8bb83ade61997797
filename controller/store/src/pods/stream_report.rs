//! Reports of agents over the stream.
//!
//! A report over the stream is worth what the annotation of the Pod is worth, and the larger epoch counts. The annotation follows
//! later. Until then, each observed state of the Pod is raised to the report.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;

use super::ObservedEpochs;
use super::failure::ReportedExit;
use super::progress::PodProgress;
use super::view::{Epoch, PodView};

/// Most reports of one JobSet that are kept of Pods that the watch has not shown. The annotation of such a Pod follows anyway.
const MOST_UNOBSERVED: usize = 16_384;

/// What the agent of a Pod reports over the stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct StreamReport {
    pub pod: String,
    pub pod_uid: String,
    pub epoch: i32,
    /// How the worker of the epoch before ended: the text of the annotation `worker-exit`.
    pub exit: Option<String>,
    pub started: Option<Timestamp>,
    /// What its worker has told of progress: the text of the annotation `progress`.
    pub progress: Option<String>,
}

/// The reports over the stream that the annotations have not reached, by the UID of the Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct StreamReports {
    observed: BTreeMap<Box<str>, NotedReport>,
    /// Of Pods that were not observed yet.
    unobserved: BTreeMap<Box<str>, NotedReport>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct NotedReport {
    pod: Box<str>,
    epoch: i32,
    started: Option<Timestamp>,
    exit: Option<Box<ReportedExit>>,
    progress: Option<Box<PodProgress>>,
}

impl NotedReport {
    /// Whether it says more than is known of the Pod: a later epoch, the same one in a later life, or later progress in the same life.
    fn is_newer_than(&self, pod: &PodView) -> bool {
        self.is_newer(pod.epoch.number(), pod.life, pod.progress.as_deref())
    }

    fn is_newer(&self, epoch: Option<i32>, life: Option<Timestamp>, progress: Option<&PodProgress>) -> bool {
        let (own, known) = ((Some(self.epoch), self.started), (epoch, life));
        own > known || own == known && PodProgress::is_newer(self.progress.as_deref(), progress)
    }

    /// Adds what an earlier report of the Pod has said, and this one leaves out.
    fn complete(&mut self, earlier: Self) {
        if self.epoch == earlier.epoch {
            self.exit = self.exit.take().or(earlier.exit);
        }
        if !PodProgress::is_newer(self.progress.as_deref(), earlier.progress.as_deref()) {
            self.progress = earlier.progress;
        }
    }
}

impl StreamReports {
    /// Notes a report. `pod` is the Pod with that UID as the engine knows it, if it was observed. Returns whether
    /// [`StreamReports::overlay`] may change that Pod.
    pub fn note(&mut self, report: StreamReport, pod: Option<&PodView>) -> bool {
        let StreamReport { pod: name, pod_uid, epoch, exit, started, progress } = report;
        let exit = exit.as_deref().and_then(ReportedExit::parse).map(Box::new);
        let progress = progress.as_deref().and_then(PodProgress::parse).map(Box::new);
        let mut report = NotedReport { pod: name.into(), epoch, started, exit, progress };
        if pod.is_some_and(|pod| !report.is_newer_than(pod)) {
            return false;
        }
        let is_full = self.unobserved.len() >= MOST_UNOBSERVED;
        let noted = if pod.is_some() { &mut self.observed } else { &mut self.unobserved };
        match noted.get(&*pod_uid) {
            Some(known) if !report.is_newer(Some(known.epoch), known.started, known.progress.as_deref()) => {
                return false;
            }
            None if pod.is_none() && is_full => return false,
            _ => {}
        }
        if let Some(earlier) = noted.remove(&*pod_uid) {
            report.complete(earlier);
        }
        noted.insert(pod_uid.into(), report);
        pod.is_some()
    }

    /// Takes a Pod in as its watch shows it. Forgets its report if the annotation has reached it.
    pub fn observe(&mut self, pod: &PodView) {
        if let Some(report) = self.unobserved.remove(&*pod.uid) {
            self.observed.insert(pod.uid.as_str().into(), report);
        }
        if self.observed.get(&*pod.uid).is_some_and(|report| !report.is_newer_than(pod)) {
            self.observed.remove(&*pod.uid);
        }
    }

    /// Raises an observed Pod to its report.
    ///
    /// An epoch above the next one does not count: the agent may have read a status that the watch of JobSets has not shown yet.
    /// It counts as soon as that status is observed, or as an annotation.
    pub fn overlay(&self, pod: &mut PodView, epochs: ObservedEpochs) {
        let Some(report) = self.observed.get(&*pod.uid) else { return };
        if report.epoch > epochs.synced.saturating_add(1) || !report.is_newer_than(pod) {
            return;
        }
        // The start beside the annotation is that of the agent that wrote the annotation.
        (pod.epoch, pod.life) = (Epoch::Reported(report.epoch), report.started);
        if report.exit.is_some() {
            pod.worker_exit.clone_from(&report.exit);
        }
        if PodProgress::is_newer(report.progress.as_deref(), pod.progress.as_deref()) {
            pod.progress.clone_from(&report.progress);
        }
    }

    /// Name and UID of each observed Pod whose report counts since the synced epoch has grown.
    pub fn counting_since(&self, from: ObservedEpochs, to: ObservedEpochs) -> Vec<(Box<str>, Box<str>)> {
        if from.synced >= to.synced {
            return Vec::new();
        }
        let new = from.synced.saturating_add(2)..=to.synced.saturating_add(1);
        let reports = self.observed.iter().filter(|(_, report)| new.contains(&report.epoch));
        reports.map(|(uid, report)| (report.pod.clone(), uid.clone())).collect()
    }

    pub fn forget(&mut self, pod_uid: &str) {
        self.observed.remove(pod_uid);
    }

    /// The connection of the Pod's agent has ended. A report of an observed Pod stays: it was counted.
    pub fn agent_gone(&mut self, pod_uid: &str) {
        self.unobserved.remove(pod_uid);
    }

    /// The same reports, as if no Pod had been observed.
    pub fn unobserved(mut self) -> Self {
        self.unobserved.append(&mut self.observed);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(uid: &str, epoch: i32) -> StreamReport {
        StreamReport {
            pod: "pod".to_owned(),
            pod_uid: uid.to_owned(),
            epoch,
            exit: None,
            started: None,
            progress: None,
        }
    }

    fn pod(uid: &str, epoch: Epoch) -> PodView {
        PodView { name: "pod".to_owned(), uid: uid.to_owned(), epoch, ..PodView::default() }
    }

    fn synced(synced: i32) -> ObservedEpochs {
        ObservedEpochs { synced, ..ObservedEpochs::default() }
    }

    fn observed(reports: &mut StreamReports, mut pod: PodView, epochs: ObservedEpochs) -> Epoch {
        reports.observe(&pod);
        reports.overlay(&mut pod, epochs);
        pod.epoch
    }

    #[test]
    fn report_raises_annotation_until_that_follows() {
        let mut reports = StreamReports::default();
        let before = pod("a", Epoch::Reported(1));
        assert!(reports.note(report("a", 2), Some(&before)));
        assert!(!reports.note(report("a", 2), Some(&before)), "it is known");
        assert_eq!(observed(&mut reports, before, synced(1)), Epoch::Reported(2));
        assert_eq!(observed(&mut reports, pod("a", Epoch::Malformed("x".into())), synced(1)), Epoch::Reported(2));
        assert_eq!(observed(&mut reports, pod("a", Epoch::Reported(2)), synced(1)), Epoch::Reported(2));
        assert_eq!(reports, StreamReports::default(), "nothing is kept");
    }

    #[test]
    fn report_of_later_life_in_same_epoch_raises_life() {
        let second = |second| Some(Timestamp::from_second(second).unwrap());
        let of_life = |started| StreamReport { started, ..report("a", 2) };
        let mut reports = StreamReports::default();
        let before = PodView { life: second(10), ..pod("a", Epoch::Reported(2)) };
        assert!(!reports.note(of_life(second(10)), Some(&before)), "it is known");
        assert!(!reports.note(of_life(None), Some(&before)), "an agent or a relay that does not say so");
        assert!(reports.note(of_life(second(20)), Some(&before)));
        assert!(!reports.note(of_life(second(10)), Some(&before)), "it came late");
        let mut raised = before.clone();
        reports.overlay(&mut raised, synced(1));
        assert_eq!((raised.epoch, raised.life), (Epoch::Reported(2), second(20)));
        reports.observe(&PodView { life: second(20), ..before });
        assert_eq!(reports, StreamReports::default(), "nothing is kept");
    }

    #[test]
    fn later_epoch_without_life_is_not_of_life_before() {
        let mut reports = StreamReports::default();
        let mut before = PodView { life: Some(Timestamp::UNIX_EPOCH), ..pod("a", Epoch::Reported(2)) };
        reports.note(report("a", 3), Some(&before));
        reports.overlay(&mut before, synced(2));
        assert_eq!((before.epoch, before.life), (Epoch::Reported(3), None));
    }

    #[test]
    fn report_of_another_uid_does_not_touch_the_pod() {
        let mut reports = StreamReports::default();
        reports.note(report("old", 2), None);
        assert_eq!(observed(&mut reports, pod("new", Epoch::Reported(1)), synced(1)), Epoch::Reported(1));
        assert_eq!(observed(&mut reports, pod("new", Epoch::Absent), synced(1)), Epoch::Absent);
    }

    #[test]
    fn epoch_above_next_counts_once_synced_epoch_grows() {
        let mut reports = StreamReports::default();
        let before = pod("a", Epoch::Reported(2));
        reports.note(report("a", 3), Some(&before));
        assert_eq!(observed(&mut reports, before.clone(), synced(1)), Epoch::Reported(2));
        assert_eq!(reports.counting_since(synced(0), synced(1)), []);
        assert_eq!(reports.counting_since(synced(1), synced(2)), [("pod".into(), "a".into())]);
        assert_eq!(reports.counting_since(synced(2), synced(3)), [], "it counts already");
        assert_eq!(observed(&mut reports, before, synced(2)), Epoch::Reported(3));
    }

    #[test]
    fn unobserved_reports_are_bounded_and_end_with_their_connection() {
        let mut reports = StreamReports::default();
        for number in 0..=MOST_UNOBSERVED {
            reports.note(report(&number.to_string(), 1), None);
        }
        assert_eq!(reports.unobserved.len(), MOST_UNOBSERVED);
        reports.note(report("0", 2), None);
        assert_eq!(observed(&mut reports, pod("0", Epoch::Absent), synced(1)), Epoch::Reported(2));
        reports.agent_gone("0");
        assert_eq!(observed(&mut reports, pod("0", Epoch::Absent), synced(1)), Epoch::Reported(2), "it was counted");
        reports.agent_gone("1");
        assert_eq!(observed(&mut reports, pod("1", Epoch::Absent), synced(1)), Epoch::Absent);
    }
}
