//! What a swap must not touch: Jobs and Pods by their UID, restarts of containers, and what the JobSets have counted.

use std::collections::BTreeMap;

use anyhow::Result;
use jobset_api::{JobSet, JobSetStatus, labels};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};

use super::manifests::{EXCLUSIVE, NAMESPACE, RECREATING};

/// A Pod that is not being replaced.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PodState {
    pub uid: String,
    pub restarts: i32,
    /// What the Go JobSet's agent has reported.
    pub attempt: Option<i32>,
    pub ready: bool,
}

/// Counters that the Go JobSet and this one share.
pub(super) type Counters = (i32, i32, Vec<Vec<i32>>, Option<i32>, Option<i32>);

/// Everything in the namespaces of the test, but for the JobSet that is being recreated.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Snapshot {
    pub jobs: BTreeMap<String, String>,
    pub pods: BTreeMap<String, PodState>,
    pub counters: BTreeMap<String, Counters>,
}

impl Snapshot {
    pub(super) async fn take(client: &Client) -> Result<Self> {
        let mut snapshot = Self::default();
        for namespace in [NAMESPACE, EXCLUSIVE] {
            let settled = |labels: &BTreeMap<String, String>| {
                labels.get(labels::JOBSET_NAME).is_some_and(|jobset| jobset != RECREATING)
            };
            let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
            let jobs = jobs.list(&ListParams::default()).await?.items;
            let jobs = jobs.iter().filter(|job| settled(job.labels()));
            snapshot.jobs.extend(jobs.map(|job| (job.name_any(), job.uid().unwrap_or_default())));
            let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
            let pods = pods.list(&ListParams::default()).await?.items;
            let pods = pods.iter().filter(|pod| settled(pod.labels()));
            snapshot.pods.extend(pods.map(|pod| (pod.name_any(), state(pod))));
            let jobsets: Api<JobSet> = Api::namespaced(client.clone(), namespace);
            let jobsets = jobsets.list(&ListParams::default()).await?.items;
            let jobsets = jobsets.into_iter().filter(|jobset| jobset.name_any() != RECREATING);
            snapshot.counters.extend(jobsets.map(|it| (it.name_any(), counters(&it.status.unwrap_or_default()))));
        }
        Ok(snapshot)
    }

    /// Jobs that are gone since, and Pods that are gone or whose containers restarted.
    pub(super) fn touched(&self, now: &Self) -> (Vec<&str>, Vec<&str>) {
        let jobs = self.jobs.iter().filter(|(name, uid)| now.jobs.get(*name) != Some(*uid));
        let same = |pod: &PodState, now: &PodState| pod.uid == now.uid && pod.restarts == now.restarts;
        let pods = self.pods.iter().filter(|(name, pod)| !now.pods.get(*name).is_some_and(|now| same(pod, now)));
        (jobs.map(|(name, _)| name.as_str()).collect(), pods.map(|(name, _)| name.as_str()).collect())
    }

    pub(super) fn pods_of(&self, jobset: &str) -> BTreeMap<String, PodState> {
        let prefix = format!("{jobset}-");
        self.pods.iter().filter(|(name, _)| name.starts_with(&prefix)).map(|(n, p)| (n.clone(), p.clone())).collect()
    }
}

fn state(pod: &Pod) -> PodState {
    let status = pod.status.as_ref();
    let init = status.and_then(|it| it.init_container_statuses.as_ref()).into_iter().flatten();
    let main = status.and_then(|it| it.container_statuses.as_ref()).into_iter().flatten();
    let attempt = pod.annotations().get(labels::IN_PLACE_RESTART_ATTEMPT);
    PodState {
        uid: pod.uid().unwrap_or_default(),
        restarts: init.chain(main).map(|container| container.restart_count).sum(),
        attempt: attempt.and_then(|attempt| attempt.parse().ok()),
        ready: jobset_harness::workload::is_ready(pod),
    }
}

fn counters(status: &JobSetStatus) -> Counters {
    // Zeros behind the last restart count for nothing.
    let trimmed = |counts: &Vec<i32>| {
        let length = counts.iter().rposition(|count| *count != 0).map_or(0, |last| last + 1);
        counts[..length].to_vec()
    };
    let groups = status.replicated_jobs_status.iter();
    (
        status.restarts,
        status.restarts_count_towards_max,
        groups.flat_map(|it| [trimmed(&it.job_restarts), trimmed(&it.job_restarts_count_towards_max)]).collect(),
        status.current_in_place_restart_attempt,
        status.previous_in_place_restart_attempt,
    )
}
