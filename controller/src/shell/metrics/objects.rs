//! The state of each JobSet, as an option (`--metrics-per-jobset`).
//!
//! Each reconciliation keeps a pointer to its JobSet, and a scrape makes the series from it. So no series outlives its JobSet, its
//! replicatedJob or its condition. A standby replica does not reconcile and has no series, so no sum counts a JobSet twice.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use jobset_api::{JobSet, JobSetStatus, ReplicatedJobStatus, RestartBudget};
use jobset_metrics::{Family, register_families};
use jobset_program::lock;
use jobset_rules::Barrier;
use jobset_store::Key;
use prometheus::Registry;

/// The JobSets as of their last reconciliation, shared with the scrapes.
#[derive(Clone, Default)]
pub(in crate::shell) struct ObjectMetrics(Arc<Mutex<HashMap<Key, ReconciledJobSet>>>);

#[derive(Clone)]
struct ReconciledJobSet {
    jobset: Arc<JobSet>,
    barrier: Option<Barrier>,
}

impl ObjectMetrics {
    pub(in crate::shell) fn register(registry: &Registry) -> prometheus::Result<Self> {
        let metrics = Self::default();
        let scraped = metrics.clone();
        register_families(registry, move || {
            // The copy is short. The loop does not wait until the series are made.
            let jobsets = scraped.lock().clone();
            families(&jobsets)
        })?;
        Ok(metrics)
    }

    /// A reconciliation of the JobSet begins.
    pub(in crate::shell) fn see(&self, key: &Key, jobset: &Arc<JobSet>, barrier: Option<Barrier>) {
        self.lock().insert(key.clone(), ReconciledJobSet { jobset: Arc::clone(jobset), barrier });
    }

    /// The JobSet is gone.
    pub(in crate::shell) fn forget(&self, key: &Key) {
        self.lock().remove(key);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, ReconciledJobSet>> {
        lock(&self.0)
    }
}

/// Labels of the metrics of a replicatedJob, as in the kube-state-metrics of GKE.
const OF_REPLICATED_JOB: &[&str] = &["jobset_name", "namespace", "replicated_job_name"];
const OF_JOBSET: &[&str] = &["jobset_name", "namespace"];
const OF_CONDITION: &[&str] = &["condition", "jobset_name", "namespace", "status"];

fn families(jobsets: &HashMap<Key, ReconciledJobSet>) -> Vec<Family> {
    let mut specified =
        Family::gauge("kube_jobset_specified_replicas", "Jobs that the replicatedJob shall have.", OF_REPLICATED_JOB);
    let mut condition = Family::gauge(
        "kube_jobset_status_condition",
        "1 while the condition is True, 0 while it is there and is not; the label status is always true.",
        OF_CONDITION,
    );
    for (Key { namespace, name }, ReconciledJobSet { jobset, .. }) in jobsets {
        for group in &jobset.spec.replicated_jobs {
            specified.add(&[name, namespace, &group.name], group.replicas().into());
        }
        for found in jobset.status.iter().flat_map(|status| &status.conditions) {
            condition.add(&[&found.type_, name, namespace, "true"], flag(found.status == "True"));
        }
    }
    let jobs = |name, help, count: fn(&ReplicatedJobStatus) -> i32| {
        let mut family = Family::gauge(name, help, OF_REPLICATED_JOB);
        for (Key { namespace, name }, ReconciledJobSet { jobset, .. }) in jobsets {
            for counts in jobset.status.iter().flat_map(|status| &status.replicated_jobs_status) {
                family.add(&[name, namespace, &counts.name], count(counts).into());
            }
        }
        family
    };
    let jobset = |name, help, value: fn(&ReconciledJobSet, &JobSetStatus) -> Option<f64>| {
        let (mut family, nothing) = (Family::gauge(name, help, OF_JOBSET), JobSetStatus::default());
        for (Key { namespace, name }, reconciled) in jobsets {
            if let Some(value) = value(reconciled, reconciled.jobset.status.as_ref().unwrap_or(&nothing)) {
                family.add(&[name, namespace], value);
            }
        }
        family
    };
    vec![
        specified,
        condition,
        jobs("kube_jobset_ready_replicas", "Jobs of which all Pods are ready or have succeeded.", |it| it.ready),
        jobs("kube_jobset_succeeded_replicas", "Jobs that have completed.", |it| it.succeeded),
        jobs("kube_jobset_failed_replicas", "Jobs that have failed.", |it| it.failed),
        jobs("kube_jobset_active_replicas", "Jobs that run or will.", |it| it.active),
        jobs("kube_jobset_suspended_replicas", "Jobs that are suspended.", |it| it.suspended),
        jobset("kube_jobset_restarts", "Restarts of the whole group, by recreation or in place.", |_, status| {
            Some(status.group_restarts.into())
        }),
        jobset(
            "jobset_max_restarts",
            "Restarts that the JobSet may have: maxRestarts and additional ones.",
            |it, _| Some(it.jobset.allowed_restarts().into()),
        ),
        jobset(
            "jobset_restarts_counted",
            "Restarts that count towards maxRestarts; of separate budgets, those of the one of which most is spent.",
            |it, status| Some(RestartBudget::of(&it.jobset).most_spent(status).1.into()),
        ),
        jobset(
            "jobset_barrier_waiting_pods",
            "Pods that the barrier of a JobSet that restarts in place waits for; 0 while it is open.",
            |it, _| Some(u32::try_from(it.barrier?.waiting).unwrap_or(u32::MAX).into()),
        ),
        jobset(
            "jobset_barrier_open",
            "1 while the barrier of a JobSet that restarts in place is lifted, 0 while Pods wait at it.",
            |it, _| Some(flag(it.barrier?.open)),
        ),
    ]
}

fn flag(is_so: bool) -> f64 {
    if is_so { 1.0 } else { 0.0 }
}
