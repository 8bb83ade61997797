//! Workers that run and make no progress.

use jobset_api::{ProgressReport, Stall, conditions};
use jobset_objects::PartialPod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt as _;

use super::{Facts, Finding};

/// Pods whose evidence is shown.
const SHOWN: usize = 5;
/// Processes of a Pod that are shown.
const PROCESSES: usize = 2;
/// Lines of the output of a stall command that are shown: the last ones.
const LINES: usize = 10;

/// The controller says that the group stalls, or that a worker does while others go on. The annotations of the Pods show what was
/// seen.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    if let Some(condition) = facts.condition(conditions::PROGRESS_STALLED) {
        let advice = format!(
            "Look at the worker that is named, or at all of them if none is: {}. To restart the group in place: `{}`. With the annotation \
             jobset.sigs.k8s.io/on-stall: Restart, the next stall restarts it.",
            stack(facts),
            facts.kubectl(&format!("jobset restart {}", facts.jobset.name_any()))
        );
        let what = "All workers run, and none makes progress.";
        return vec![Finding::new("ProgressStalled", what, advice).with(details(facts, &condition.message))];
    }
    let conditions = facts.jobset.status.iter().flat_map(|status| &status.conditions);
    let straggles = |it: &&Condition| it.type_ == conditions::PROGRESS_STALLED && it.reason == conditions::STRAGGLER;
    let Some(condition) = conditions.into_iter().find(straggles) else { return Vec::new() };
    let advice =
        format!("Nothing restarts while a worker makes progress. Look at this one, and at its node: {}.", stack(facts));
    let what = "A worker makes no progress, and another one does.";
    vec![Finding::new(conditions::STRAGGLER, what, advice).with(details(facts, &condition.message))]
}

/// How to see what a worker does.
fn stack(facts: &Facts) -> String {
    let command = facts.kubectl("exec POD");
    format!("`{command} -- py-spy dump --pid PID`, where the PID is the number in parentheses, or 1 beside a sidecar")
}

/// What the condition says, and what the agents have seen.
fn details(facts: &Facts, message: &str) -> Vec<String> {
    let synced = facts.jobset.status.as_ref().map_or(0, |status| status.synced_epoch);
    let stalled = |pod: &PartialPod| {
        let report = ProgressReport::of(pod.annotations()).filter(|report| report.epoch == synced)?;
        Some((pod.name_any(), report.step, report.stall?, pod.spec.node_name.clone()))
    };
    let mut stalled: Vec<_> = facts.pods.iter().filter_map(|pod| stalled(pod)).collect();
    stalled.sort_by(|(a, ..), (b, ..)| a.cmp(b));
    let more = stalled.len().saturating_sub(SHOWN);
    let mut details = vec![message.to_owned()];
    for (pod, step, stall, node) in stalled.into_iter().take(SHOWN) {
        details.push(format!("{pod}: {}", evidence(node.as_deref(), step, &stall)));
        details.extend(output(&stall));
    }
    if more > 0 {
        details.push(format!("and {more} more Pods"));
    }
    details
}

/// What the agent has seen of a worker of this epoch that makes no progress.
fn evidence(node: Option<&str>, step: Option<i64>, stall: &Stall) -> String {
    let mut words = vec![format!("node {}", node.unwrap_or("unknown"))];
    words.extend(step.map(|step| format!("step {step}")));
    words.extend(stall.phase.as_ref().map(|phase| format!("phase {phase}")));
    words.extend(stall.within.as_ref().map(|within| format!("in {within}")));
    for process in stall.evidence.processes.iter().take(PROCESSES) {
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
    printable(&words.join(", "))
}

/// The last lines that the user's command wrote (`JOBSET_STALL_COMMAND`).
fn output(stall: &Stall) -> Vec<String> {
    let lines: Vec<&str> = stall.evidence.output.lines().filter(|line| !line.trim().is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(LINES)..];
    last.iter().map(|line| format!("| {}", printable(line.trim_end()))).collect()
}

fn printable(text: &str) -> String {
    text.replace(|letter: char| letter.is_control(), " ")
}
