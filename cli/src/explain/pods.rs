//! Pods that are not ready, and why: the same trouble of many of them once.

use std::collections::BTreeMap;

use kube::ResourceExt as _;

use super::trouble::{self, Trouble, names};
use super::{Facts, Finding};

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let epochs = facts.epochs();
    let mut troubles: BTreeMap<Trouble, Vec<String>> = BTreeMap::new();
    for pod in &facts.pods {
        if let Some(trouble) = trouble::of(pod, epochs) {
            troubles.entry(trouble).or_default().push(pod.name_any());
        }
    }
    troubles
        .into_iter()
        .map(|(trouble, mut pods)| {
            pods.sort();
            finding(&trouble, &pods, facts)
        })
        .collect()
}

fn finding(trouble: &Trouble, pods: &[String], facts: &Facts) -> Finding {
    let first = pods.first().map(String::as_str).unwrap_or_default();
    let who = if pods.len() == 1 { format!("Pod {first}") } else { format!("{} Pods", pods.len()) };
    let (is, has) = if pods.len() == 1 { ("is", "has") } else { ("are", "have") };
    let (reason, what, words, advice): (_, _, Option<&str>, _) = match trouble {
        Trouble::Leader(job, message) => (
            "LeaderUnschedulable",
            format!("{who}, which leads Job {job} in exclusive placement, has no node; its followers wait for it."),
            Some(message),
            "Free a whole topology domain, or add nodes: each Job needs one of its own.".to_owned(),
        ),
        Trouble::Unschedulable(message) => (
            "Unschedulable",
            format!("{who} cannot be scheduled."),
            Some(message),
            "Free or add what the scheduler misses, or ask for less in the Pod template.".to_owned(),
        ),
        Trouble::Gated(message) => (
            "SchedulingGated",
            format!("{who} {is} held back by scheduling gates."),
            Some(message),
            "Whoever set the gates takes them away: a queue such as Kueue, once there is room.".to_owned(),
        ),
        Trouble::Unscheduled => (
            "Unscheduled",
            format!("{who} {has} no node, and no scheduler has said why."),
            None,
            "See whether the scheduler runs that spec.schedulerName names (`kubectl get pods -n kube-system`)."
                .to_owned(),
        ),
        Trouble::Image(container, words) => (
            "ImagePull",
            format!("{who} cannot get the image of container {container}."),
            Some(words),
            "Check the image's name and tag, and the right to pull it (imagePullSecrets).".to_owned(),
        ),
        Trouble::Config(container, words) => (
            "ContainerConfig",
            format!("{who} cannot create container {container}."),
            Some(words),
            "Mend what is named: a Secret, a ConfigMap or a volume that is missing, or the container's command."
                .to_owned(),
        ),
        Trouble::Init(container, words) => (
            "InitContainerFails",
            format!("{who}: init container {container} fails."),
            Some(words),
            facts.kubectl(&format!("logs {first} -c {container}")),
        ),
        Trouble::Crash(container, words) => (
            "ContainerFails",
            format!("{who}: container {container} fails."),
            Some(words),
            facts.kubectl(&format!("logs {first} -c {container}")) + " (add --previous if it runs again)",
        ),
        Trouble::Silent => (
            "AgentSilent",
            format!("{who} {is} started, and the agent has not reported to the barrier."),
            None,
            format!(
                "{}; an agent needs the ClusterRole jobset-agent, bound to the Pod's ServiceAccount, and a way to the \
                 API server.",
                facts.kubectl(&format!("logs {first} --all-containers"))
            ),
        ),
        Trouble::Terminating => (
            "Terminating",
            format!("{who} {is} being deleted and not gone yet."),
            None,
            "Wait for the grace period. If a node is gone for good, delete its Node object.".to_owned(),
        ),
        Trouble::Starting(what) => (
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
