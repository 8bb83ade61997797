//! Pods that are not ready, and why. Pods with the same problem share a finding.

use std::collections::BTreeMap;

use kube::ResourceExt as _;

use super::problem::{self, PodProblem, ProblemKind, names};
use super::{Facts, Finding};
use crate::status::Epochs;

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let epochs = Epochs::of(&facts.jobset);
    let mut problems: BTreeMap<PodProblem, Vec<String>> = BTreeMap::new();
    for pod in &facts.pods {
        if let Some(problem) = problem::of(pod, epochs) {
            problems.entry(problem).or_default().push(pod.name_any());
        }
    }
    for pods in problems.values_mut() {
        pods.sort();
    }
    problems.iter().map(|(problem, pods)| finding(problem, pods, facts)).collect()
}

fn finding(problem: &PodProblem, pods: &[String], facts: &Facts) -> Finding {
    let first = pods.first().map(String::as_str).unwrap_or_default();
    let who = if pods.len() == 1 { format!("Pod {first}") } else { format!("{} Pods", pods.len()) };
    let (is, has) = if pods.len() == 1 { ("is", "has") } else { ("are", "have") };
    let PodProblem { kind, subject, message } = problem;
    let (what, advice) = match kind {
        ProblemKind::LeaderUnschedulable => (
            format!("{who}, which leads Job {subject} in exclusive placement, has no node; its followers wait for it."),
            "Free a whole topology domain, or add nodes: each Job needs one of its own.".to_owned(),
        ),
        ProblemKind::Unschedulable => (
            format!("{who} cannot be scheduled."),
            "Add or free the missing resources, or request less in the Pod template.".to_owned(),
        ),
        ProblemKind::SchedulingGated => (
            format!("{who} {is} held back by scheduling gates."),
            "The program that set the gates removes them: a queue such as Kueue, once there is quota.".to_owned(),
        ),
        ProblemKind::Unscheduled => (
            format!("{who} {has} no node, and no scheduler has reported why."),
            "Check that the scheduler of spec.schedulerName runs (`kubectl get pods -n kube-system`).".to_owned(),
        ),
        ProblemKind::ImagePull => (
            format!("{who} cannot get the image of container {subject}."),
            "Check the name and tag of the image, and the right to pull it (imagePullSecrets).".to_owned(),
        ),
        ProblemKind::ContainerConfig => (
            format!("{who} cannot create container {subject}."),
            "Fix the named problem: a missing Secret, ConfigMap or volume, or the container's command.".to_owned(),
        ),
        ProblemKind::InitContainerFails => {
            (format!("{who}: init container {subject} fails."), facts.kubectl(&format!("logs {first} -c {subject}")))
        }
        ProblemKind::ContainerFails => (
            format!("{who}: container {subject} fails."),
            facts.kubectl(&format!("logs {first} -c {subject}")) + " (with --previous after a restart)",
        ),
        ProblemKind::AgentSilent => (
            format!("{who} {is} started, but the agent has not reported to the barrier."),
            format!(
                "{}; the Pod's ServiceAccount needs the ClusterRole jobset-agent, and the Pod must reach the API server.",
                facts.kubectl(&format!("logs {first} --all-containers"))
            ),
        ),
        ProblemKind::Terminating => (
            format!("{who} {is} being deleted."),
            "Wait for the grace period. If the node does not come back, delete its Node object.".to_owned(),
        ),
        ProblemKind::Starting => (
            format!("{who} {is} starting: {subject}."),
            format!("Wait, or see `{}`.", facts.kubectl(&format!("describe pod {first}"))),
        ),
    };
    let mut details = Vec::new();
    if !message.is_empty() {
        details.push(message.clone());
    }
    if pods.len() > 1 {
        details.push(names(pods));
    }
    Finding::new(format!("{kind:?}"), what, advice).with(details)
}
