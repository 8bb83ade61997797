//! Compares a group before and after a fault with what must have become of it. Pure.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::expectation::Expectation;
use super::facts::{Facts, PodFacts, slot};

/// A broken rule of the protocol.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Violation {
    /// The rule, in words for a person.
    pub(super) text: String,
    /// Whether the group may only be on its way: the rule is broken if this lasts.
    pub(super) may_pass: bool,
}

impl Violation {
    fn lasting(text: impl Into<String>) -> Self {
        Self { text: text.into(), may_pass: false }
    }

    fn passing(text: impl Into<String>) -> Self {
        Self { text: text.into(), may_pass: true }
    }
}

fn name(epoch: Option<i32>) -> String {
    epoch.map_or_else(|| "no epoch".to_owned(), |epoch| format!("epoch {epoch}"))
}

/// What is wrong with a group, `after` compared with `before`.
pub(super) fn check(before: &Facts, after: &Facts, expected: &Expectation) -> Vec<Violation> {
    let mut violations = counters(before, after, expected);
    violations.extend(pods(before, after, expected));
    violations.extend(starts(before, after));
    violations.extend(processes(after));
    violations
}

fn counters(before: &Facts, after: &Facts, expected: &Expectation) -> Vec<Violation> {
    let (then, now) = (&before.status, &after.status);
    let mut violations = Vec::new();
    if !now.terminal_state.is_empty() {
        violations.push(Violation::lasting(format!("the JobSet has ended: {}", now.terminal_state)));
    }
    let group = (expected.restarts, now.restarts_count_towards_max - then.restarts_count_towards_max);
    let recreations = (expected.recreations, now.restarts - then.restarts);
    for (what, (expected, observed)) in [("restarts of the group", group), ("restarts by recreation", recreations)] {
        if expected != observed {
            let text = format!("{observed} {what}, not {expected}");
            violations.push(Violation { text, may_pass: observed < expected });
        }
    }
    // No fault here is ignored, so each restart counts towards maxRestarts once.
    let (restarts, counted) = (now.group_restarts, now.restarts_count_towards_max);
    if restarts != counted {
        violations.push(Violation::lasting(format!("{restarts} restarts, {counted} counted")));
    }
    let synced = now.synced_epoch;
    if synced - 1 != restarts {
        let text = format!("syncedEpoch is {synced} after {restarts} restarts");
        // A restart is counted before the next epoch begins.
        violations.push(Violation { text, may_pass: synced - 1 < restarts });
    }
    violations
}

fn pods(before: &Facts, after: &Facts, expected: &Expectation) -> Vec<Violation> {
    let mut violations = Vec::new();
    for then in &before.pods {
        let slot = &then.slot;
        let now: Vec<&PodFacts> = after.pods.iter().filter(|pod| pod.slot == *slot).collect();
        let [now] = now[..] else {
            violations.push(Violation::passing(format!("{slot} has {} Pods", now.len())));
            continue;
        };
        match (now.uid != then.uid, expected.replaced.contains(slot)) {
            (true, false) => violations.push(Violation::lasting(format!("the Pod of {slot} was replaced"))),
            (false, true) => violations.push(Violation::passing(format!("the Pod of {slot} was not replaced"))),
            _ => {}
        }
    }
    let synced = after.status.synced_epoch;
    let behind = after.pods.iter().filter(|pod| pod.epoch != Some(synced));
    let reported = |pod: &PodFacts| format!("{} has reported {}, and epoch {synced} runs", pod.name, name(pod.epoch));
    violations.extend(behind.map(|pod| Violation::passing(reported(pod))));
    violations
}

/// What the workers wrote down: at most one start of each slot in each epoch, and one in the epoch that runs.
fn starts(before: &Facts, after: &Facts) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut counted: BTreeMap<(&str, i32), usize> = BTreeMap::new();
    for entry in after.entries.iter().filter(|entry| entry.event == "start") {
        let Some(epoch) = entry.epoch else {
            let text = format!("a worker of {} started without knowing its epoch", entry.pod);
            violations.push(Violation::lasting(text));
            continue;
        };
        *counted.entry((slot(&entry.pod), epoch)).or_default() += 1;
    }
    let twice = counted.iter().filter(|(_, starts)| **starts > 1);
    violations.extend(twice.map(|((slot, epoch), starts)| {
        Violation::lasting(format!("the worker of {slot} started {starts} times in epoch {epoch}"))
    }));
    let epoch = after.status.synced_epoch;
    let missing = before.pods.iter().filter(|pod| !counted.contains_key(&(pod.slot.as_str(), epoch)));
    let not_started = |pod: &PodFacts| format!("the worker of {} has not started in epoch {epoch}", pod.slot);
    violations.extend(missing.map(|pod| Violation::passing(not_started(pod))));
    violations
}

/// The processes themselves: one of the epoch that runs for each Pod, and no other.
fn processes(after: &Facts) -> Vec<Violation> {
    let synced = after.status.synced_epoch;
    let (current, old): (Vec<_>, Vec<_>) = after
        .running
        .iter()
        .partition(|worker| worker.epoch == Some(synced) && after.pods.iter().any(|pod| pod.uid == worker.uid));
    let outlived = old.into_iter().map(|worker| {
        let (epoch, uid) = (name(worker.epoch), &worker.uid);
        format!("a worker of {epoch} is alive in Pod UID {uid}, and epoch {synced} runs")
    });
    let dead = after.pods.iter().filter(|pod| !current.iter().any(|worker| worker.uid == pod.uid));
    outlived.chain(dead.map(|pod| format!("no worker of {} is alive", pod.name))).map(Violation::passing).collect()
}
