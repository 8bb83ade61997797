//! One JobSet and what belongs to it, taken out of the store for one pass of the rules.

use std::collections::BTreeMap;
use std::sync::Arc;

use jobset_api::{JobSet, JobSetStatus};
use kube::ResourceExt;

use crate::store::{JobView, Key, PodView, ServiceView, Store};

/// What the rules see of one JobSet.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The JobSet.
    pub jobset: Arc<JobSet>,
    /// Its own Jobs, of whatever attempt, by name.
    pub jobs: BTreeMap<String, JobView>,
    /// Jobs that carry its label but are controlled by something else, by name: those of a JobSet of the same name that
    /// was deleted, for instance.
    pub foreign_jobs: BTreeMap<String, JobView>,
    /// Pods that carry its label.
    pub pods: Vec<PodView>,
    /// Services that carry its label, by name.
    pub services: BTreeMap<String, ServiceView>,
}

impl Observed {
    /// Takes the JobSet out of the store; `None` if it is not there.
    pub fn of(store: &Store, key: &Key) -> Option<Self> {
        let (_, jobset) = store.jobsets.of(key).next()?;
        let uid = jobset.uid();
        let own = |job: &JobView| uid.is_some() && job.controller.as_ref().map(|owner| &owner.uid) == uid.as_ref();
        let (jobs, foreign_jobs) =
            store.jobs.of(key).map(|(name, job)| (name.to_owned(), job.clone())).partition(|(_, job)| own(job));
        Some(Self {
            jobset: jobset.clone(),
            jobs,
            foreign_jobs,
            pods: store.pods.of(key).map(|(_, pod)| pod.clone()).collect(),
            services: store.services.of(key).map(|(name, service)| (name.to_owned(), service.clone())).collect(),
        })
    }

    /// The stored status; an empty one before the first write.
    pub fn status(&self) -> JobSetStatus {
        self.jobset.status.clone().unwrap_or_default()
    }
}
