//! The state of each JobSet, where it is asked for (`--metrics-per-jobset`).
//!
//! Only a JobSet as the last pass saw it is kept, which costs a pointer; the series are made of that when they are
//! scraped. So none outlives its JobSet, its replicatedJob or its condition, and a JobSet that replaces another of its name
//! has none of the other's. A replica that stands by makes no passes and has no such series: those of the leader are the
//! only ones, and no sum counts a JobSet twice.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use jobset_api::{JobSet, JobSetStatus, RestartBudget};
use jobset_metrics::Family;
use prometheus::Registry;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;

use crate::engine::Key;
use crate::plan::Barrier;
use crate::shell::error::Error;

/// What is known of JobSets, shared with those who scrape it.
pub(in crate::shell) struct ObjectMetrics(Arc<Mutex<HashMap<Key, ObservedJobSet>>>);

#[derive(Clone)]
struct ObservedJobSet {
    jobset: Arc<JobSet>,
    barrier: Option<Barrier>,
}

impl ObjectMetrics {
    pub(in crate::shell) fn register(registry: &Registry) -> Result<Self, Error> {
        let known = Arc::new(Mutex::new(HashMap::new()));
        let register = || {
            let descs =
                Families::new().all().map(|family| family.desc()).into_iter().collect::<prometheus::Result<_>>()?;
            registry.register(Box::new(Scraped { descs, known: Arc::clone(&known) }))
        };
        register().map_err(Error::Metrics)?;
        Ok(Self(known))
    }

    /// A pass begins with this.
    pub(in crate::shell) fn see(&self, key: &Key, jobset: &Arc<JobSet>, barrier: Option<Barrier>) {
        let seen = ObservedJobSet { jobset: Arc::clone(jobset), barrier };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(key.clone(), seen);
    }

    /// The JobSet is gone.
    pub(in crate::shell) fn forget(&self, key: &Key) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

struct Scraped {
    descs: Vec<Desc>,
    known: Arc<Mutex<HashMap<Key, ObservedJobSet>>>,
}

impl Collector for Scraped {
    fn desc(&self) -> Vec<&Desc> {
        self.descs.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        // The loop shall not wait for text to be made.
        let known: Vec<(Key, ObservedJobSet)> = {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.iter().map(|(key, seen)| (key.clone(), seen.clone())).collect()
        };
        let mut families = Families::new();
        for (key, seen) in &known {
            families.add(key, seen);
        }
        families.all().into_iter().map(Into::into).collect()
    }
}

/// Labels of the metrics of a replicatedJob: those that kube-state-metrics of GKE gives them.
const OF_REPLICATED_JOB: &[&str] = &["jobset_name", "namespace", "replicated_job_name"];
const OF_JOBSET: &[&str] = &["jobset_name", "namespace"];
const OF_CONDITION: &[&str] = &["condition", "jobset_name", "namespace", "status"];

struct Families {
    specified: Family,
    ready: Family,
    succeeded: Family,
    failed: Family,
    active: Family,
    suspended: Family,
    condition: Family,
    restarts: Family,
    max_restarts: Family,
    restarts_counted: Family,
    barrier_waiting: Family,
    barrier_open: Family,
}

impl Families {
    fn new() -> Self {
        let jobs = |name, help| Family::gauge(name, help, OF_REPLICATED_JOB);
        let jobset = |name, help| Family::gauge(name, help, OF_JOBSET);
        Self {
            specified: jobs("kube_jobset_specified_replicas", "Jobs that the replicatedJob shall have."),
            ready: jobs("kube_jobset_ready_replicas", "Jobs of which all Pods are ready or have succeeded."),
            succeeded: jobs("kube_jobset_succeeded_replicas", "Jobs that have completed."),
            failed: jobs("kube_jobset_failed_replicas", "Jobs that have failed."),
            active: jobs("kube_jobset_active_replicas", "Jobs that run or will."),
            suspended: jobs("kube_jobset_suspended_replicas", "Jobs that are suspended."),
            condition: Family::gauge(
                "kube_jobset_status_condition",
                "1 while the condition is True, 0 while it is there and is not; the label status is always true.",
                OF_CONDITION,
            ),
            restarts: jobset("kube_jobset_restarts", "Restarts of the whole group, by recreation or in place."),
            max_restarts: jobset("jobset_max_restarts", "Restarts that the JobSet may have: maxRestarts."),
            restarts_counted: jobset(
                "jobset_restarts_counted",
                "Restarts that count towards maxRestarts; of separate budgets, those of the one of which most is spent.",
            ),
            barrier_waiting: jobset(
                "jobset_barrier_waiting_pods",
                "Pods that the barrier of a JobSet that restarts in place waits for; 0 while it is open.",
            ),
            barrier_open: jobset(
                "jobset_barrier_open",
                "1 while the barrier of a JobSet that restarts in place is lifted, 0 while Pods wait at it.",
            ),
        }
    }

    fn all(self) -> [Family; 12] {
        [
            self.specified,
            self.ready,
            self.succeeded,
            self.failed,
            self.active,
            self.suspended,
            self.condition,
            self.restarts,
            self.max_restarts,
            self.restarts_counted,
            self.barrier_waiting,
            self.barrier_open,
        ]
    }

    fn add(&mut self, key: &Key, seen: &ObservedJobSet) {
        let nothing = JobSetStatus::default();
        let (spec, status) = (&seen.jobset.spec, seen.jobset.status.as_ref().unwrap_or(&nothing));
        let labels = [&key.name[..], &key.namespace];
        for group in &spec.replicated_jobs {
            let labels = [&key.name[..], &key.namespace, &group.name];
            self.specified.add(&labels, group.replicas().into());
            let Some(counted) = status.replicated_job(&group.name) else { continue };
            self.ready.add(&labels, counted.ready.into());
            self.succeeded.add(&labels, counted.succeeded.into());
            self.failed.add(&labels, counted.failed.into());
            self.active.add(&labels, counted.active.into());
            self.suspended.add(&labels, counted.suspended.into());
        }
        for condition in &status.conditions {
            let labels = [&condition.type_[..], &key.name, &key.namespace, "true"];
            self.condition.add(&labels, flag(condition.status == "True"));
        }
        self.restarts.add(&labels, status.group_restarts.into());
        self.max_restarts.add(&labels, spec.max_restarts().into());
        self.restarts_counted.add(&labels, RestartBudget::of(&seen.jobset).most_spent(status).1.into());
        if let Some(barrier) = seen.barrier {
            let waiting = u32::try_from(barrier.waiting).unwrap_or(u32::MAX);
            self.barrier_waiting.add(&labels, waiting.into());
            self.barrier_open.add(&labels, flag(barrier.open));
        }
    }
}

fn flag(is_so: bool) -> f64 {
    if is_so { 1.0 } else { 0.0 }
}
