//! Pods that are not ready, and why. Pods with the same problem share a finding.

use std::collections::BTreeMap;

use jobset_api::labels;
use jobset_objects::{PartialCondition, PartialJob, PartialPod};
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt as _;

use super::creation::newest;
use super::problem::{self, PodProblem, ProblemClass, ProblemKind, names};
use super::topology::Topology;
use super::{Facts, Finding};
use crate::output::one_line;
use crate::status::is_agent;

/// Advice for a problem of the Pod template.
const RECREATE: &str = "The Pod template is immutable: to change it, delete the JobSet and create it again.";

/// Condition of a Job whose failure is decided, while its Pods end.
const FAILURE_TARGET: &str = "FailureTarget";

/// Jobs that are about to fail.
pub(super) fn failing_jobs(facts: &Facts) -> Vec<Finding> {
    let failing = facts.jobs.iter().map(|job| &**job).filter(|job| !job.is_finished());
    let failing = failing.filter_map(|job| Some((job, job.condition(FAILURE_TARGET)?)));
    let finding = |(job, condition): (&PartialJob, &PartialCondition)| {
        let what = format!("Job {} is about to fail, and its Pods end.", job.name_any());
        let advice = "Wait: once it has failed, the failure policy of the JobSet decides.";
        let message = format!("{}: {}", condition.reason, condition.message);
        Finding::new("JobFailing", what, advice).with(vec![message])
    };
    failing.map(finding).collect()
}

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let failed = facts.pods.iter().filter(|pod| is_unanswered(pod, facts)).map(|pod| (&**pod, problem::of_failed(pod)));
    let mut all: Vec<(&PartialPod, PodProblem)> = facts.problems().chain(failed).collect();
    all.sort_by_cached_key(|(pod, _)| pod.name_any());
    let mut shared: BTreeMap<ProblemClass, (PodProblem, Vec<&PartialPod>)> = BTreeMap::new();
    for (pod, problem) in all {
        let class = problem.class(image(facts, pod, &problem.subject));
        shared.entry(class).or_insert_with(|| (problem, Vec::new())).1.push(pod);
    }
    shared.values().map(|(problem, pods)| finding(problem, pods, facts)).collect()
}

/// The image of a container, by the template of the Pod.
fn image<'a>(facts: &'a Facts, pod: &PartialPod, container: &str) -> Option<&'a str> {
    let group = pod.labels().get(labels::REPLICATED_JOB_NAME)?;
    let group = facts.jobset.spec.replicated_jobs.iter().find(|it| it.name == *group)?;
    let template = group.template.spec.template.spec.as_ref()?;
    let mut containers = template.containers.iter().chain(template.init_containers.iter().flatten());
    containers.find(|it| it.name == container)?.image.as_deref()
}

/// Whether a Pod has failed, and its Job has neither created another one in its place nor failed.
fn is_unanswered(pod: &PartialPod, facts: &Facts) -> bool {
    let place = |pod: &PartialPod| {
        let index = pod.annotations().get(labels::COMPLETION_INDEX).cloned();
        (pod.labels().get(labels::JOB_NAME).cloned(), index)
    };
    let is_open = |job: &PartialJob| !job.is_finished() && job.condition(FAILURE_TARGET).is_none();
    let runs = |name: &String| facts.jobs.iter().any(|job| job.name_any() == *name && is_open(job));
    let is_replaced = || facts.pods.iter().any(|other| !other.has_ended() && place(other) == place(pod));
    pod.status.phase == "Failed" && pod.labels().get(labels::JOB_NAME).is_some_and(runs) && !is_replaced()
}

fn finding(problem: &PodProblem, pods: &[&PartialPod], facts: &Facts) -> Finding {
    let first = pods.first().map(|pod| pod.name_any()).unwrap_or_default();
    let who = if pods.len() == 1 { format!("Pod {first}") } else { format!("{} Pods", pods.len()) };
    let (is, has) = if pods.len() == 1 { ("is", "has") } else { ("are", "have") };
    let PodProblem { kind, subject, .. } = problem;
    let (what, advice) = match kind {
        ProblemKind::LeaderUnschedulable => (
            format!("{who}, which leads Job {subject} in exclusive placement, has no node; its followers wait for it."),
            match unlabelled(facts, pods) {
                None if never_fit(facts, pods).is_some() => add_nodes(),
                Some(key) => format!(
                    "Label the nodes (`kubectl label node NODE {key}=DOMAIN`), or delete the JobSet and create it again with \
                     a label that nodes have."
                ),
                None => "Free a whole topology domain, or add nodes: each Job needs one of its own.".to_owned(),
            },
        ),
        ProblemKind::Unschedulable => match never_fit(facts, pods) {
            Some(why) => (format!("{who} cannot be scheduled on any node that there is: {why}."), add_nodes()),
            None => (
                format!("{who} cannot be scheduled now."),
                format!("Free what is missing, or add nodes: the scheduler tries again. {RECREATE}"),
            ),
        },
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
            format!("Check the name and tag of the image, and the right to pull it (imagePullSecrets). {RECREATE}"),
        ),
        ProblemKind::ContainerConfig => (
            format!("{who} cannot create container {subject}."),
            format!("Create the missing Secret, ConfigMap or volume. {RECREATE}"),
        ),
        ProblemKind::InitContainerFails => {
            (format!("{who}: init container {subject} fails."), facts.kubectl(&format!("logs {first} -c {subject}")))
        }
        ProblemKind::ContainerFails => (
            format!("{who}: container {subject} fails."),
            facts.kubectl(&format!("logs {first} -c {subject}")) + " (with --previous after a restart)",
        ),
        ProblemKind::PodFailed => {
            let container = if subject.is_empty() { String::new() } else { format!(" (container {subject})") };
            (
                format!("{who} {has} failed{container}, and the Job controller has not reacted yet."),
                "It creates another Pod, or fails the Job after some seconds: then the failure policy decides.".to_owned(),
            )
        }
        ProblemKind::AgentSilent => match facts.denied.get(subject).filter(|denied| !denied.is_empty()) {
            Some(denied) => (
                format!("{who} cannot report to the barrier: ServiceAccount {subject} may not {}.", denied.join(" or ")),
                facts.kubectl(&format!(
                    "create rolebinding jobset-agent-{subject} --clusterrole=jobset-agent --serviceaccount={}:{subject}",
                    facts.jobset.namespace().unwrap_or_default()
                )),
            ),
            None => (
                format!("{who} {is} started, but the agent has not reported to the barrier."),
                format!(
                    "{}; ServiceAccount {subject} needs the ClusterRole jobset-agent, and the Pod must reach the API server.",
                    facts.kubectl(&format!("logs {first} --all-containers"))
                ),
            ),
        },
        ProblemKind::Held => (
            format!("{who} {is} being deleted, and the finalizer {subject} keeps {}.", if pods.len() == 1 { "it" } else { "them" }),
            format!(
                "Find the program that sets {subject}, and have it finish. To let the Pod go without it: `{}`.",
                facts.kubectl(&format!("patch pod {first} --type=merge -p '{{\"metadata\":{{\"finalizers\":null}}}}'"))
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
    Finding::new(format!("{kind:?}"), what, advice).with(details(problem, pods, facts))
}

/// What to do for a Pod that no node can ever hold.
fn add_nodes() -> String {
    format!("Nothing that is freed helps: add nodes that can hold it, or ask for less. {RECREATE}")
}

fn details(problem: &PodProblem, pods: &[&PartialPod], facts: &Facts) -> Vec<String> {
    let PodProblem { kind, message, .. } = problem;
    let mut details = Vec::new();
    if !message.is_empty() {
        details.push(message.clone());
    }
    if *kind == ProblemKind::LeaderUnschedulable {
        details.extend(never_fit(facts, pods).map(|why| format!("no node can ever hold it: {why}")));
    }
    if kind.is_told_by_events() {
        details.extend(newest_warning(facts, pods));
    }
    if let (Some(topology), Some(pod)) = (Topology::of(facts), pods.first()) {
        details.extend(of_nodes(*kind, pod, &topology));
    }
    if pods.len() > 1 {
        details.push(names(&pods.iter().map(|pod| pod.name_any()).collect::<Vec<_>>()));
    }
    details
}

/// Why no node that there is can ever hold these Pods.
fn never_fit(facts: &Facts, pods: &[&PartialPod]) -> Option<String> {
    let group = pods.first()?.labels().get(labels::REPLICATED_JOB_NAME)?;
    facts.requests.get(group)?.never_fit(facts.nodes.as_deref()?)
}

/// What the kubelet, or another program, has warned of last about one of these Pods.
fn newest_warning(facts: &Facts, pods: &[&PartialPod]) -> Option<String> {
    let event = newest(pods, facts.warnings.iter().filter(|event| !is_of_barrier(event, pods)))?;
    let pod = event.regarding.as_ref().and_then(|object| object.name.as_deref()).unwrap_or_default();
    let reason = event.reason.as_deref().unwrap_or_default();
    Some(format!("{pod}: {reason}: {}", one_line(event.note.as_deref().unwrap_or_default())))
}

/// Whether the kubelet warns of the startup probe of an agent, which fails as long as the barrier is closed.
fn is_of_barrier(event: &Event, pods: &[&PartialPod]) -> bool {
    let field = event.regarding.as_ref().and_then(|object| object.field_path.as_deref()).unwrap_or_default();
    let agents = pods.iter().flat_map(|pod| pod.spec.init_containers.iter().filter(|it| is_agent(it)));
    event.reason.as_deref() == Some("Unhealthy")
        && agents.map(|agent| format!("spec.initContainers{{{}}}", agent.name)).any(|agent| agent == field)
}

/// The key of exclusive placement that no node has as a label.
fn unlabelled<'a>(facts: &Facts, pods: &[&'a PartialPod]) -> Option<&'a str> {
    let key = pods.first()?.annotations().get(labels::EXCLUSIVE_TOPOLOGY)?;
    Topology::of(facts)?.has_no_domain(key).then_some(key.as_str())
}

/// What the nodes say about a Pod that cannot be scheduled.
fn of_nodes(kind: ProblemKind, pod: &PartialPod, topology: &Topology<'_>) -> Vec<String> {
    if !matches!(kind, ProblemKind::LeaderUnschedulable | ProblemKind::Unschedulable) {
        return Vec::new();
    }
    let missing = topology.missing_labels(pod);
    let mut details: Vec<String> = missing.iter().map(|label| format!("no node has the label {label}")).collect();
    if let Some(key) = pod.annotations().get(labels::EXCLUSIVE_TOPOLOGY).filter(|_| problem::leads(pod)) {
        if topology.has_no_domain(key) {
            details.push(format!("no node has the label {key}, which names the domains of exclusive placement"));
        } else {
            details.extend(topology.occupied(key, pod));
        }
    }
    details
}
