//! Workers that run and make no progress.

use jobset_api::{ProgressReport, conditions};
use kube::ResourceExt as _;

use super::{Facts, Finding};

/// Pods whose evidence is shown.
const SHOWN: usize = 5;

/// The controller says that the group stalls. The annotations of the Pods show what was seen.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let Some(condition) = facts.condition(conditions::PROGRESS_STALLED) else { return Vec::new() };
    let synced = facts.jobset.status.as_ref().map_or(0, |status| status.synced_epoch);
    let mut details = vec![condition.message.clone()];
    let mut seen: Vec<String> = facts
        .pods
        .iter()
        .filter_map(|pod| Some((pod, evidence(pod, synced)?)))
        .map(|(pod, evidence)| format!("{}: {evidence}", pod.name_any()))
        .collect();
    seen.sort();
    let more = seen.len().saturating_sub(SHOWN);
    details.extend(seen.into_iter().take(SHOWN));
    if more > 0 {
        details.push(format!("and {more} more Pods"));
    }
    let name = facts.jobset.name_any();
    let advice = format!(
        "Look at the worker that is named, or at all of them if none is: `{} -- py-spy dump --pid 1`. To restart the group in place: `{}`. With the annotation \
         jobset.sigs.k8s.io/on-stall: Restart, the next stall restarts it.",
        facts.kubectl("exec POD"),
        facts.kubectl(&format!("jobset restart {name}"))
    );
    vec![Finding::new("ProgressStalled", "All workers run, and none makes progress.", advice).with(details)]
}

/// What the agent of the Pod has seen of a worker of this epoch that makes no progress.
fn evidence(pod: &jobset_objects::PartialPod, synced: i32) -> Option<String> {
    let report = ProgressReport::of(pod.annotations()).filter(|report| report.epoch == synced)?;
    let stall = report.stall?;
    let node = pod.spec.node_name.as_deref().unwrap_or("unknown");
    let mut words = vec![format!("node {node}")];
    words.extend(report.step.map(|step| format!("step {step}")));
    words.extend(stall.phase.map(|phase| format!("phase {phase}")));
    words.extend(stall.within.map(|within| format!("in {within}")));
    for process in stall.evidence.processes.iter().take(2) {
        let channel = Some(&process.wait_channel).filter(|it| !it.is_empty()).map(|it| format!(" in {it}"));
        words.push(format!(
            "{} ({}) in state {}{}, {} ms of CPU in {} ms",
            process.name,
            process.pid,
            process.state,
            channel.unwrap_or_default(),
            process.cpu_milliseconds,
            process.looked_milliseconds
        ));
    }
    Some(words.join(", ").replace(|letter: char| letter.is_control(), " "))
}
