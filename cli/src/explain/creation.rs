//! Pods that cannot be created: what the Job controller was told. Among it what the followers of exclusive placement wait for.

use std::collections::BTreeMap;

use jobset_api::labels;
use jobset_objects::PartialJob;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;

use super::{Facts, Finding};

/// What the Job controller's words begin with.
const PREFIX: &str = "Error creating: ";
/// What is told of at most so many Jobs.
const SHOWN: usize = 3;

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    // What was told of several Jobs in the same words is one finding.
    let mut told: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let short = facts.jobs.iter().filter(|job| lacks_pods(job, facts));
    for job in short {
        if let Some(event) = newest(&job.name_any(), &facts.refusals) {
            let note = event.note.as_deref().unwrap_or_default();
            told.entry(note.strip_prefix(PREFIX).unwrap_or(note)).or_default().push(job.name_any());
        }
    }
    told.into_iter().map(|(message, jobs)| finding(message, &jobs, facts)).collect()
}

fn lacks_pods(job: &PartialJob, facts: &Facts) -> bool {
    if job.is_finished() || job.spec.suspend == Some(true) || job.metadata.deletion_timestamp.is_some() {
        return false;
    }
    let name = job.name_any();
    let pods = facts.pods.iter().filter(|pod| pod.labels().get(labels::JOB_NAME) == Some(&name));
    let there = pods.filter(|pod| pod.status.phase != "Failed" && pod.metadata.deletion_timestamp.is_none()).count();
    i32::try_from(there).is_ok_and(|there| there < job.pods())
}

fn newest<'a>(job: &str, events: &'a [Event]) -> Option<&'a Event> {
    let about = |event: &&Event| event.regarding.as_ref().is_some_and(|object| object.name.as_deref() == Some(job));
    events.iter().filter(about).max_by_key(|event| last_seen(event))
}

fn last_seen(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref().map(|series| series.last_observed_time.0);
    let old = event.deprecated_last_timestamp.as_ref().map(|time| time.0);
    series.or(old).or(event.event_time.as_ref().map(|time| time.0))
}

fn finding(message: &str, jobs: &[String], facts: &Facts) -> Finding {
    let names = match jobs {
        [job] => format!("Job {job}"),
        jobs => {
            let more = if jobs.len() > SHOWN { ", ..." } else { "" };
            let shown: Vec<&str> = jobs.iter().take(SHOWN).map(String::as_str).collect();
            format!("{} Jobs ({}{more})", jobs.len(), shown.join(", "))
        }
    };
    let (reason, what, advice) = if message.contains("waits for the leader") {
        (
            "LeaderNotPlaced",
            format!("Pods of {names} wait for the leader of exclusive placement to get a node."),
            "See below what the scheduler says of the leader; free a whole topology domain, or add one.".to_owned(),
        )
    } else if message.contains("failed calling webhook") {
        (
            "WebhookUnreachable",
            format!("Pods of {names} cannot be created: an admission webhook does not answer."),
            "See whether the named service has Pods that are ready. The Job controller tries again by itself."
                .to_owned(),
        )
    } else if message.contains("exceeded quota") {
        (
            "QuotaExceeded",
            format!("Pods of {names} cannot be created: the quota of the namespace is spent."),
            format!("Free some of it, or have it raised: `{}`.", facts.kubectl("describe quota")),
        )
    } else {
        (
            "PodsRefused",
            format!("Pods of {names} cannot be created."),
            "Mend what is named. The Job controller tries again by itself, after up to ten minutes.".to_owned(),
        )
    };
    Finding::new(reason, what, advice).with(vec![message.to_owned()])
}
