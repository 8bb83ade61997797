//! Pods that are not ready, and why. Pods with the same problem share a finding.

use std::collections::BTreeMap;

use kube::ResourceExt as _;

use super::problem::{self, PodProblem, names};
use super::{Facts, Finding};

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let epochs = facts.epochs();
    let mut problems: BTreeMap<PodProblem, Vec<String>> = BTreeMap::new();
    for pod in &facts.pods {
        if let Some(problem) = problem::of(pod, epochs) {
            problems.entry(problem).or_default().push(pod.name_any());
        }
    }
    problems
        .into_iter()
        .map(|(problem, mut pods)| {
            pods.sort();
            finding(&problem, &pods, facts)
        })
        .collect()
}

fn finding(problem: &PodProblem, pods: &[String], facts: &Facts) -> Finding {
    let first = pods.first().map(String::as_str).unwrap_or_default();
    let who = if pods.len() == 1 { format!("Pod {first}") } else { format!("{} Pods", pods.len()) };
    let (is, has) = if pods.len() == 1 { ("is", "has") } else { ("are", "have") };
    let (reason, what, words, advice): (_, _, Option<&str>, _) = match problem {
        PodProblem::Leader(job, message) => (
            "LeaderUnschedulable",
            format!("{who}, which leads Job {job} in exclusive placement, has no node; its followers wait for it."),
            Some(message),
            "Free a whole topology domain, or add nodes: each Job needs one of its own.".to_owned(),
        ),
        PodProblem::Unschedulable(message) => (
            "Unschedulable",
            format!("{who} cannot be scheduled."),
            Some(message),
            "Add or free the missing resources, or request less in the Pod template.".to_owned(),
        ),
        PodProblem::Gated(message) => (
            "SchedulingGated",
            format!("{who} {is} held back by scheduling gates."),
            Some(message),
            "The program that set the gates removes them: a queue such as Kueue, once there is quota.".to_owned(),
        ),
        PodProblem::Unscheduled => (
            "Unscheduled",
            format!("{who} {has} no node, and no scheduler has reported why."),
            None,
            "Check that the scheduler of spec.schedulerName runs (`kubectl get pods -n kube-system`).".to_owned(),
        ),
        PodProblem::Image(container, words) => (
            "ImagePull",
            format!("{who} cannot get the image of container {container}."),
            Some(words),
            "Check the name and tag of the image, and the right to pull it (imagePullSecrets).".to_owned(),
        ),
        PodProblem::Config(container, words) => (
            "ContainerConfig",
            format!("{who} cannot create container {container}."),
            Some(words),
            "Fix the named problem: a missing Secret, ConfigMap or volume, or the container's command.".to_owned(),
        ),
        PodProblem::Init(container, words) => (
            "InitContainerFails",
            format!("{who}: init container {container} fails."),
            Some(words),
            facts.kubectl(&format!("logs {first} -c {container}")),
        ),
        PodProblem::Crash(container, words) => (
            "ContainerFails",
            format!("{who}: container {container} fails."),
            Some(words),
            facts.kubectl(&format!("logs {first} -c {container}")) + " (with --previous after a restart)",
        ),
        PodProblem::Silent => (
            "AgentSilent",
            format!("{who} {is} started, but the agent has not reported to the barrier."),
            None,
            format!(
                "{}; the Pod's ServiceAccount needs the ClusterRole jobset-agent, and the Pod must reach the API server.",
                facts.kubectl(&format!("logs {first} --all-containers"))
            ),
        ),
        PodProblem::Terminating => (
            "Terminating",
            format!("{who} {is} being deleted."),
            None,
            "Wait for the grace period. If the node does not come back, delete its Node object.".to_owned(),
        ),
        PodProblem::Starting(what) => (
            "Starting",
            format!("{who} {is} starting: {what}."),
            None,
            format!("Wait, or see `{}`.", facts.kubectl(&format!("describe pod {first}"))),
        ),
    };
    let mut details: Vec<String> = words.filter(|words| !words.is_empty()).map(str::to_owned).into_iter().collect();
    if pods.len() > 1 {
        details.push(names(pods));
    }
    Finding::new(reason, what, advice).with(details)
}
