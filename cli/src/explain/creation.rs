//! Pods that the API server refuses to create, by the Events of the Job controller. A webhook also refuses followers of
//! exclusive placement until their leader has a node.

use std::collections::BTreeMap;

use jobset_api::labels;
use jobset_objects::{PartialJob, last_observed, why_refused};
use k8s_openapi::api::events::v1::Event;
use kube::{Resource, ResourceExt as _};

use super::{Facts, Finding};
use crate::status::{JobSetState, state};

/// The most names of Jobs in a finding.
const SHOWN: usize = 3;

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    // The same message about several Jobs is one finding.
    let mut messages: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (job, event) in refused(facts) {
        messages.entry(why_refused(event)).or_default().push(job.name_any());
    }
    messages.into_iter().map(|(message, jobs)| finding(message, &jobs, facts)).collect()
}

/// The Jobs that lack Pods because the API server refuses them, each with the newest refusal.
fn refused(facts: &Facts) -> impl Iterator<Item = (&PartialJob, &Event)> {
    let short = facts.jobs.iter().filter(|job| lacks_pods(job, facts));
    short.filter_map(|job| Some((&**job, newest(&[&**job], facts.refusals.iter())?)))
}

/// Whether the controller says in a condition what is said of Pods here.
pub(super) fn is_about_pods(message: &str, facts: &Facts) -> bool {
    refused(facts).any(|(_, event)| message.ends_with(why_refused(event)))
}

/// Jobs and Pods that do not exist, although all Jobs were ready. If the API server refuses Pods, [`check`] says so.
pub(super) fn missing(facts: &Facts) -> Vec<Finding> {
    if state(&facts.jobset) != JobSetState::Running || !facts.jobset.is_managed_here() {
        return Vec::new();
    }
    let jobs = facts.jobset.spec.global_replicas() - i64::try_from(facts.jobs.len()).unwrap_or(i64::MAX);
    let mut findings = Vec::new();
    if jobs > 0 {
        let what = format!("{jobs} of {} Jobs do not exist.", facts.jobset.spec.global_replicas());
        findings.push(Finding::new("JobsMissing", what, "The controller creates them, if it leads and runs."));
    }
    let refused = |job: &PartialJob| newest(&[job], facts.refusals.iter()).is_some();
    let short = facts.jobs.iter().filter(|job| lacks_pods(job, facts) && !refused(job));
    let short: Vec<String> = short.map(|job| job.name_any()).collect();
    if !short.is_empty() {
        let (has, it) = if short.len() == 1 { ("has", "it") } else { ("have", "they") };
        let what = format!("{} {has} fewer Pods than {it} should run.", listed(&short));
        let advice = "The Job controller of kube-controller-manager creates them, after a delay if Pods fail.";
        findings.push(Finding::new("PodsMissing", what, advice));
    }
    findings
}

fn lacks_pods(job: &PartialJob, facts: &Facts) -> bool {
    if job.is_finished() || job.spec.suspend == Some(true) || job.metadata.deletion_timestamp.is_some() {
        return false;
    }
    let name = job.name_any();
    let pods = facts.pods.iter().filter(|pod| pod.labels().get(labels::JOB_NAME) == Some(&name));
    let there = pods.filter(|pod| !pod.has_ended() && pod.metadata.deletion_timestamp.is_none()).count();
    i32::try_from(there).is_ok_and(|there| there < job.remaining_pods())
}

/// The newest Event about one of these objects, and not about an earlier one of its name.
pub(super) fn newest<'a>(objects: &[&impl Resource], events: impl Iterator<Item = &'a Event>) -> Option<&'a Event> {
    let is_about = |event: &&Event| {
        let Some(regarding) = &event.regarding else { return false };
        let metas = objects.iter().map(|object| object.meta());
        metas.into_iter().any(|meta| regarding.name == meta.name && regarding.uid == meta.uid)
    };
    events.filter(is_about).max_by_key(|event| last_observed(event))
}

/// `Job a`, or `7 Jobs (a, b, c, ...)`.
fn listed(jobs: &[String]) -> String {
    match jobs {
        [job] => format!("Job {job}"),
        jobs => {
            let more = if jobs.len() > SHOWN { ", ..." } else { "" };
            let shown: Vec<&str> = jobs.iter().take(SHOWN).map(String::as_str).collect();
            format!("{} Jobs ({}{more})", jobs.len(), shown.join(", "))
        }
    }
}

fn finding(message: &str, jobs: &[String], facts: &Facts) -> Finding {
    let names = listed(jobs);
    let (reason, what, advice) = if message.contains("waits for the leader") {
        (
            "LeaderNotPlaced",
            format!("Pods of {names} wait for the leader of exclusive placement to get a node."),
            "See the scheduler's message about the leader below. Free a whole topology domain, or add one.".to_owned(),
        )
    } else if message.contains("failed calling webhook") {
        (
            "WebhookUnreachable",
            format!("Pods of {names} cannot be created: an admission webhook does not answer."),
            "Check that the named Service has ready Pods. The Job controller retries.".to_owned(),
        )
    } else if message.contains("exceeded quota") {
        (
            "QuotaExceeded",
            format!("Pods of {names} cannot be created: the quota of the namespace is exceeded."),
            format!("Free resources or raise the quota; see `{}`.", facts.kubectl("describe quota")),
        )
    } else {
        (
            "PodsRefused",
            format!("Pods of {names} cannot be created."),
            "Fix the named problem. The Job controller retries, after up to ten minutes.".to_owned(),
        )
    };
    Finding::new(reason, what, advice).with(vec![message.to_owned()])
}
