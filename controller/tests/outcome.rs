//! What becomes of a JobSet, its Jobs and its Pods when something fails: more of what tests expect.

use anyhow::{Context, Result};
use jobset_api::{JobSetStatus, conditions};
use jobset_harness::wait::{self, Check};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use kube::api::ListParams;

use crate::fixture::{LIMIT, Space};

/// `restarts`, `restartsCountTowardsMax` and `groupRestarts`.
pub(crate) fn restarts(status: &JobSetStatus) -> (i32, i32, i32) {
    (status.restarts, status.restarts_count_towards_max, status.group_restarts)
}

/// `syncedEpoch`, `deprecatedEpoch`, `restartsCountTowardsMax` and `groupRestarts`.
pub(crate) fn epochs(status: &JobSetStatus) -> (i32, i32, i32, i32) {
    (status.synced_epoch, status.deprecated_epoch, status.restarts_count_towards_max, status.group_restarts)
}

pub(crate) fn condition<'a>(status: &'a JobSetStatus, type_: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|condition| condition.type_ == type_)
}

impl Space {
    pub(crate) async fn status(&self, jobset: &str) -> Result<JobSetStatus> {
        Ok(self.jobsets().get(jobset).await?.status.unwrap_or_default())
    }

    pub(crate) async fn restarted(&self, jobset: &str, wanted: (i32, i32, i32)) -> Result<JobSetStatus> {
        self.status_once(jobset, &format!("to have restarted {wanted:?}"), |status| restarts(status) == wanted).await
    }

    pub(crate) async fn in_epoch(&self, jobset: &str, wanted: (i32, i32, i32, i32)) -> Result<JobSetStatus> {
        self.status_once(jobset, &format!("in epochs {wanted:?}"), |status| epochs(status) == wanted).await
    }

    pub(crate) async fn ended(&self, jobset: &str) -> Result<(Condition, JobSetStatus)> {
        let status = self.status_once(jobset, "to end", |status| !status.terminal_state.is_empty()).await?;
        let end = conditions::terminal(&status.conditions).context("no final condition")?.clone();
        assert_eq!(end.type_, status.terminal_state);
        Ok((end, status))
    }

    /// The Job of this name, once it is there and another than this one.
    pub(crate) async fn job_after(&self, before: &Job) -> Result<Job> {
        let name = before.name_any();
        wait::until(LIMIT, format!("another Job {name}"), || async {
            Ok(self.jobs().get_opt(&name).await?.filter(|job| job.uid() != before.uid()))
        })
        .await
    }

    pub(crate) async fn job_where(&self, name: &str, what: &str, holds: impl Fn(&Job) -> bool) -> Result<Job> {
        wait::until_met(LIMIT, format!("Job {name} {what}"), || async {
            let job = self.jobs().get(name).await?;
            Ok(if holds(&job) { Check::Met(job) } else { Check::Unmet(format!("{:?}", job.status)) })
        })
        .await
    }

    pub(crate) async fn job(&self, name: &str) -> Result<Job> {
        self.job_where(name, "to be there", |_| true).await
    }

    /// Waits until the Job of this name is gone.
    pub(crate) async fn job_gone(&self, name: &str) -> Result<()> {
        wait::until(LIMIT, format!("Job {name} to go"), || async {
            Ok(self.jobs().get_opt(name).await?.is_none().then_some(()))
        })
        .await
    }

    /// The Pods of a JobSet that have not ended and are not going, by name, once this holds of them.
    pub(crate) async fn pods_where(
        &self,
        jobset: &str,
        what: &str,
        holds: impl Fn(&[Pod]) -> bool,
    ) -> Result<Vec<Pod>> {
        let params = ListParams::default().labels(&format!("jobset.sigs.k8s.io/jobset-name={jobset}"));
        wait::until_met(LIMIT, format!("Pods of {jobset} {what}"), || async {
            let mut pods = self.all_pods().list(&params).await?.items;
            pods.retain(|pod| pod.metadata.deletion_timestamp.is_none() && !has_ended(pod));
            pods.sort_by_key(ResourceExt::name_any);
            let names = || pods.iter().map(ResourceExt::name_any).collect::<Vec<_>>().join(", ");
            Ok(if holds(&pods) { Check::Met(pods) } else { Check::Unmet(names()) })
        })
        .await
    }

    /// The Pod that has taken the place of this one.
    pub(crate) async fn successor(&self, jobset: &str, before: &Pod) -> Result<Pod> {
        let takes_place = |pod: &Pod| place(pod) == place(before) && pod.uid() != before.uid();
        let what = format!("with a successor of {}", before.name_any());
        let pods = self.pods_where(jobset, &what, |pods| pods.iter().any(takes_place)).await?;
        pods.into_iter().find(takes_place).context("it was there")
    }
}

fn has_ended(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Failed" | "Succeeded"))
}

/// Job and completion index.
fn place(pod: &Pod) -> Option<(&String, &String)> {
    let label = |name: &str| pod.labels().get(name);
    Some((label("batch.kubernetes.io/job-name")?, label("batch.kubernetes.io/job-completion-index")?))
}
