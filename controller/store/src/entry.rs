//! One JobSet with all that the engine observes of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jobset_api::{JobSet, conditions};
use k8s_openapi::jiff::Timestamp;

use crate::members::Members;
use crate::pods::{Extent, JobSetPods, ObservedEpochs};
use crate::stored::Unread;
use crate::verdict::{SpecVerdict, own_rule};
use crate::{Change, Findings, Finished, JobView, Ranges, dialect, differs_in_decisions};

/// A JobSet, or a name that children carry in their label before or after the JobSet exists.
#[derive(Debug, Default)]
pub struct Entry {
    pub jobset: Option<Arc<JobSet>>,
    /// Why not all of the JobSet was read, if so.
    pub(crate) unread: Option<Unread>,
    /// What of its specification cannot be carried out.
    pub(crate) verdict: SpecVerdict,
    /// The recorded members of each replicatedJob, by its name.
    pub(crate) members: HashMap<String, Members>,
    pub jobs: BTreeMap<String, JobView>,
    pub pods: JobSetPods,
    /// Names of Pods that no Job controls: a person created them.
    pub orphans: BTreeSet<String>,
    /// The requests that the API server refuses at present, each with its reason; `None` before the first request.
    pub refused: Option<Vec<String>>,
    /// What a Pod that does not start was warned of, when that was asked last.
    pub warning: Option<PodWarning>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodWarning {
    pub pod: String,
    pub uid: String,
    /// Since when Events were looked for.
    pub since: Timestamp,
    /// Reason and message of the newest one; empty if there is none.
    pub words: String,
}

impl Entry {
    /// The JobSet was observed, and perhaps not read whole. Returns what has changed.
    pub(crate) fn put_jobset(&mut self, mut jobset: Arc<JobSet>, unread: Option<Unread>) -> Change {
        if let Some(status) = &mut Arc::make_mut(&mut jobset).status {
            dialect::decode(status);
        }
        let status = jobset.status.as_ref();
        self.pods.set_epochs(status.map(ObservedEpochs::of).unwrap_or_default());
        match &unread {
            Some(unread) => self.verdict = SpecVerdict::of_unread(&unread.reason),
            // What was kept of a JobSet that was not read is no specification.
            None => self.verdict.renew(self.jobset.as_deref().filter(|_| self.unread.is_none()), &jobset),
        }
        let is_read_differently = std::mem::replace(&mut self.unread, unread) != self.unread;
        let before = self.jobset.replace(Arc::clone(&jobset));
        self.set_members(members(&jobset));
        let only_counts = before.is_some_and(|before| {
            let (one, other) = (&before.metadata, &jobset.metadata);
            let of = |jobset: &JobSet| jobset.status.clone().unwrap_or_default();
            one.generation == other.generation
                && one.deletion_timestamp == other.deletion_timestamp
                && (&one.annotations, &one.labels) == (&other.annotations, &other.labels)
                && !differs_in_decisions(&of(&before), &of(&jobset))
        });
        if only_counts && !is_read_differently { Change::Counts } else { Change::Decision }
    }

    /// Whether this JobSet has the name of the known one, and is another.
    pub(crate) fn is_replaced_by(&self, jobset: &JobSet) -> bool {
        self.jobset.as_ref().is_some_and(|known| known.metadata.uid != jobset.metadata.uid)
    }

    /// The JobSet is gone. Its children may still exist.
    pub(crate) fn remove_jobset(&mut self) {
        (self.jobset, self.unread, self.refused, self.warning) = (None, None, None, None);
        self.verdict = SpecVerdict::default();
        self.pods.set_epochs(ObservedEpochs::default());
        self.set_members(HashMap::new());
    }

    fn set_members(&mut self, members: HashMap<String, Members>) {
        if self.members != members {
            self.members = members;
            for job in self.jobs.values() {
                self.pods.set_extent(&job.uid, extent(&self.members, job));
            }
        }
    }

    /// A Job was observed. It may follow another one of its name. Returns what has changed.
    pub(crate) fn put_job(&mut self, name: String, job: JobView) -> Change {
        let has_failed = |job: &JobView| job.failing || matches!(job.finished, Some(Finished::Failed { .. }));
        let before = self.jobs.remove(&name);
        let change = match &before {
            Some(before) if has_failed(&job) && !has_failed(before) => Change::Decision,
            Some(before) if !before.differs_in_decisions(&job) => Change::Counts,
            _ => Change::Child,
        };
        if let Some(before) = before {
            if before.uid != job.uid {
                self.pods.forget_job(&before.uid);
            }
            if before.uid != job.uid || before.finished != job.finished {
                self.verdict.own_rules.remove(&before.uid);
            }
        }
        self.pods.set_extent(&job.uid, extent(&self.members, &job));
        self.jobs.insert(name, job);
        change
    }

    /// A Job is gone, with all that its slots remember.
    pub(crate) fn remove_job(&mut self, name: &str) {
        if let Some(job) = self.jobs.remove(name) {
            self.verdict.own_rules.remove(&job.uid);
            self.pods.forget_job(&job.uid);
        }
    }

    /// What is found wrong with the specification. The first call judges it.
    pub fn findings(&self) -> Option<&Findings> {
        Some(self.verdict.findings(self.jobset.as_ref()?))
    }

    /// Whether the specification was not read, so that the JobSet has none.
    pub fn is_unread(&self) -> bool {
        self.unread.is_some()
    }

    /// Whether the status was not read, so that none may be written.
    pub fn is_status_missing(&self) -> bool {
        self.unread.as_ref().is_some_and(|unread| unread.is_status_missing)
    }

    /// Whether the specification was judged, so that [`Entry::findings`] costs nothing.
    pub fn is_judged(&self) -> bool {
        self.verdict.is_given()
    }

    /// The index of the first rule of the failure policy that the failed Job matches, if any.
    pub fn own_rule(&self, job: &JobView) -> Option<usize> {
        let jobset = self.jobset.as_ref()?;
        let noted = self.verdict.own_rules.get(&job.uid).copied();
        noted.unwrap_or_else(|| own_rule(jobset, self.verdict.patterns(jobset), job))
    }

    /// Number of failed Jobs of which it is noted which rule they match.
    pub fn noted_own_rules(&self) -> usize {
        self.verdict.own_rules.len()
    }

    /// Notes the own rules of at most so many failed Jobs: to compare messages with patterns can take long. Returns whether those
    /// of all Jobs are noted.
    pub(crate) fn note_own_rules(&mut self, mut at_most: usize) -> bool {
        let Some(jobset) = &self.jobset else { return true };
        let has_failed = |job: &&JobView| matches!(job.finished, Some(Finished::Failed { .. }));
        for job in self.jobs.values().filter(has_failed) {
            if self.verdict.patterns(jobset).is_empty() {
                return true;
            }
            if self.verdict.own_rules.contains_key(&job.uid) {
                continue;
            }
            if at_most == 0 {
                return false;
            }
            at_most -= 1;
            let rule = own_rule(jobset, self.verdict.patterns(jobset), job);
            self.verdict.own_rules.insert(job.uid.clone(), rule);
        }
        true
    }

    /// Notes the requests that the API server refuses at present, in a stable order. Returns whether the rules must look
    /// again: they name the refused requests in a condition, which may come from an earlier start of the controller.
    pub(crate) fn set_refused(&mut self, refused: Vec<String>) -> bool {
        let Some(jobset) = &self.jobset else { return false };
        let conditions = jobset.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        let concerns_rules = !refused.is_empty() || conditions::is_true(conditions, conditions::CHILD_REFUSED);
        let changed = self.refused.as_ref() != Some(&refused);
        self.refused = Some(refused);
        changed && concerns_rules
    }

    /// Whether nothing is observed of it any more.
    pub(crate) fn is_empty(&self) -> bool {
        self.jobset.is_none() && self.jobs.is_empty() && self.orphans.is_empty() && self.pods.is_empty()
    }
}

/// Which Pods of a Job count, and which of them are members of these.
fn extent(members: &HashMap<String, Members>, job: &JobView) -> Extent {
    let members = members.get(&job.replicated_job).map(|members| members.of_job(job.index.unwrap_or(-1)));
    Extent { size: job.pods, completed: job.completed.clone(), members: members.unwrap_or_else(Ranges::all) }
}

/// The members of each replicatedJob, by its name.
fn members(jobset: &JobSet) -> HashMap<String, Members> {
    let status = jobset.status.iter().flat_map(|status| &status.replicated_jobs_status);
    status.map(|status| (status.name.clone(), Members::of(Some(status)))).collect()
}
