//! What tests expect: each waits until it is so, and says at the limit what was there instead.

use anyhow::Result;
use jobset_api::JobSetStatus;
use jobset_harness::wait::{self, Check};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::fixture::{LIMIT, Space};
use crate::jobsets::{group, jobset};

impl Space {
    /// Edits a JobSet by a merge patch (RFC 7386).
    pub(crate) async fn edit(&self, jobset: &str, patch: Value) -> Result<()> {
        self.jobsets().patch(jobset, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    pub(crate) async fn suspend(&self, jobset: &str, suspend: bool) -> Result<()> {
        self.edit(jobset, json!({"spec": {"suspend": suspend}})).await
    }

    /// The status of a JobSet, once it is so.
    pub(crate) async fn status_once(
        &self,
        jobset: &str,
        what: &str,
        is_so: impl Fn(&JobSetStatus) -> bool,
    ) -> Result<JobSetStatus> {
        wait::until_met(LIMIT, format!("{jobset}: {what}"), || async {
            let status = self.jobsets().get(jobset).await?.status.unwrap_or_default();
            Ok(if is_so(&status) { Check::Met(status) } else { Check::Unmet(format!("{status:?}")) })
        })
        .await
    }

    /// A condition of a JobSet, once it is `True` or `False`.
    pub(crate) async fn condition(&self, jobset: &str, type_: &str, status: &str) -> Result<Condition> {
        wait::until_met(LIMIT, format!("{jobset}: {type_} {status}"), || async {
            let all = self.jobsets().get(jobset).await?.status.unwrap_or_default().conditions;
            let found = all.iter().find(|condition| condition.type_ == type_ && condition.status == status);
            Ok(found.cloned().map_or_else(|| Check::Unmet(format!("{all:?}")), Check::Met))
        })
        .await
    }

    /// The Jobs of a JobSet by name, once they are these and no others. What is being deleted does not count.
    pub(crate) async fn jobs_of(&self, jobset: &str, names: &[&str]) -> Result<Vec<Job>> {
        let labels = ListParams::default().labels(&format!("jobset.sigs.k8s.io/jobset-name={jobset}"));
        wait::until_met(LIMIT, format!("{jobset}: the Jobs {names:?}"), || async {
            let mut found = self.jobs().list(&labels).await?.items;
            found.retain(|job| job.metadata.deletion_timestamp.is_none());
            found.sort_by_key(ResourceExt::name_any);
            let found_names: Vec<String> = found.iter().map(ResourceExt::name_any).collect();
            Ok(if found_names == names { Check::Met(found) } else { Check::Unmet(format!("{found_names:?}")) })
        })
        .await
    }

    /// Waits until of the Jobs of a JobSet, in order of their names, these and no others are not suspended.
    pub(crate) async fn only_run(&self, jobset: &str, names: &[&str]) -> Result<()> {
        let labels = ListParams::default().labels(&format!("jobset.sigs.k8s.io/jobset-name={jobset}"));
        wait::until_met(LIMIT, format!("{jobset}: only {names:?} to run"), || async {
            let mut jobs = self.jobs().list(&labels).await?.items;
            jobs.retain(|job| job.spec.as_ref().is_some_and(|spec| spec.suspend != Some(true)));
            jobs.sort_by_key(ResourceExt::name_any);
            let running: Vec<String> = jobs.iter().map(ResourceExt::name_any).collect();
            Ok(if running == names { Check::Met(()) } else { Check::Unmet(format!("{running:?}")) })
        })
        .await
    }

    /// Waits until the JobSet counts the Jobs of a replicatedJob so: active, ready, suspended, succeeded, failed. The pass
    /// that counts so has requested what follows from it.
    pub(crate) async fn counts(&self, jobset: &str, group: &str, wanted: [i32; 5]) -> Result<JobSetStatus> {
        let is_so = |status: &JobSetStatus| {
            let counted = status.replicated_job(group);
            counted.map(|it| [it.active, it.ready, it.suspended, it.succeeded, it.failed]) == Some(wanted)
        };
        self.status_once(jobset, &format!("{group} counted as {wanted:?}"), is_so).await
    }

    /// The Pods of a Job by name, once there are so many. What is being deleted does not count.
    pub(crate) async fn pods_of(&self, job: &str, count: usize) -> Result<Vec<Pod>> {
        let labels = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={job}"));
        wait::until_met(LIMIT, format!("{job}: {count} Pods"), || async {
            let mut found = self.all_pods().list(&labels).await?.items;
            found.retain(|pod| pod.metadata.deletion_timestamp.is_none());
            found.sort_by_key(ResourceExt::name_any);
            Ok(if found.len() == count { Check::Met(found) } else { Check::Unmet(found.len().to_string()) })
        })
        .await
    }

    /// The note of an Event with this reason that contains the text.
    pub(crate) async fn note(&self, reason: &str, text: &str) -> Result<String> {
        wait::until_met(LIMIT, format!("an Event {reason} about {text}"), || async {
            let all = self.events().await?;
            let notes = all.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
            let notes: Vec<String> = notes.filter_map(|event| event.note).collect();
            let found = notes.iter().find(|note| note.contains(text)).cloned();
            Ok(found.map_or_else(|| Check::Unmet(format!("{notes:?}")), Check::Met))
        })
        .await
    }

    /// The notes of all warnings that the controller has given in this namespace, with their reasons.
    pub(crate) async fn warnings(&self) -> Result<Vec<String>> {
        let warnings = self.events().await?.into_iter().filter(|event| {
            event.type_.as_deref() == Some("Warning")
                && event.reporting_controller.as_deref() == Some("jobset-controller")
        });
        let text = |event: Event| format!("{}: {}", event.reason.unwrap_or_default(), event.note.unwrap_or_default());
        Ok(warnings.map(text).collect())
    }

    pub(crate) async fn events(&self) -> Result<Vec<Event>> {
        let events: Api<Event> = Api::default_namespaced(self.client.clone());
        Ok(events.list(&ListParams::default()).await?.items)
    }

    /// Waits until the controller has had its turn with everything that has happened so far: what is not there
    /// afterwards does not come. JobSets take turns, and one that is created now comes last.
    pub(crate) async fn settle(&self) -> Result<()> {
        let last = json!({"metadata": {"name": null, "generateName": "last-"}});
        let last = crate::jobsets::with(jobset("", &[group("w", 1, 1)]), &last);
        let last = self.create(last).await?.name_any();
        self.pods_of(&format!("{last}-w-0"), 1).await?;
        self.jobsets().delete(&last, &DeleteParams::background()).await?;
        Ok(())
    }
}

/// The UIDs of objects, to see whether they are still the same.
pub(crate) fn uids<K: ResourceExt>(objects: &[K]) -> Vec<Option<String>> {
    objects.iter().map(ResourceExt::uid).collect()
}
