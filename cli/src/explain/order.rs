//! A replicatedJob waits for another one, by the startup policy or by dependsOn.

use jobset_api::{DependsOnStatus, ReplicatedJob, ReplicatedJobStatus, StartupPolicyOrder};

use super::{Facts, Finding};

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let spec = &facts.jobset.spec;
    let order = spec.startup_policy.as_ref().map(|policy| policy.startup_policy_order);
    if order == Some(StartupPolicyOrder::InOrder) { in_order(facts) } else { depends_on(facts) }
}

/// The first replicatedJob that has not started blocks the following ones.
fn in_order(facts: &Facts) -> Vec<Finding> {
    let groups = &facts.jobset.spec.replicated_jobs;
    let Some(index) = groups.iter().position(|group| started(facts, group) < group.replicas()) else {
        return Vec::new();
    };
    let after: Vec<&str> = groups[index + 1..].iter().map(|group| group.name.as_str()).collect();
    if after.is_empty() {
        return Vec::new();
    }
    let group = &groups[index];
    let what = format!(
        "The startup policy is InOrder, and {} waits for replicatedJob {}: {} of {} Jobs are ready.",
        after.join(", "),
        group.name,
        started(facts, group),
        group.replicas()
    );
    vec![Finding::new("StartupOrder", what, advice(&group.name))]
}

fn depends_on(facts: &Facts) -> Vec<Finding> {
    let groups = &facts.jobset.spec.replicated_jobs;
    let mut findings = Vec::new();
    for group in groups {
        for dependency in &group.depends_on {
            let Some(target) = groups.iter().find(|target| target.name == dependency.name) else { continue };
            let (reached, word) = match dependency.status {
                DependsOnStatus::Ready => (started(facts, target), "ready"),
                DependsOnStatus::Complete => (counts(facts, target).succeeded, "complete"),
            };
            if reached < target.replicas() {
                let what = format!(
                    "replicatedJob {} waits for {} to be {word}: {reached} of {} Jobs are.",
                    group.name,
                    target.name,
                    target.replicas()
                );
                findings.push(Finding::new("DependsOn", what, advice(&target.name)));
            }
        }
    }
    findings
}

fn advice(group: &str) -> String {
    format!("The findings below say what {group} waits for. If there are none, wait.")
}

fn counts(facts: &Facts, group: &ReplicatedJob) -> ReplicatedJobStatus {
    facts.jobset.status.as_ref().and_then(|status| status.replicated_job(&group.name).cloned()).unwrap_or_default()
}

fn started(facts: &Facts, group: &ReplicatedJob) -> i32 {
    let counts = counts(facts, group);
    counts.ready + counts.succeeded + counts.failed
}
