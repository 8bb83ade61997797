//! Compares a group before and after a fault with what must have become of it. Pure.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::expectation::Expectation;
use super::facts::{Facts, PodFacts, slot};

/// A rule of the protocol that a group has broken.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(super) enum Violation {
    #[error("the JobSet has ended: {state}")]
    Ended { state: String },
    #[error("{observed} restarts of the group, not {expected}")]
    Restarts { expected: i32, observed: i32 },
    #[error("{observed} restarts by recreation, not {expected}")]
    Recreations { expected: i32, observed: i32 },
    /// No fault here is ignored, so each restart counts towards maxRestarts once.
    #[error("{restarts} restarts, {counted} counted")]
    Uncounted { restarts: i32, counted: i32 },
    #[error("syncedEpoch is {synced} after {restarts} restarts")]
    Epoch { synced: i32, restarts: i32 },
    #[error("{slot} has {pods} Pods")]
    Pods { slot: String, pods: usize },
    #[error("the Pod of {slot} was replaced")]
    Replaced { slot: String },
    #[error("the Pod of {slot} was not replaced")]
    NotReplaced { slot: String },
    #[error("{pod} has reported {}, and epoch {synced} runs", name(*epoch))]
    Reported { pod: String, epoch: Option<i32>, synced: i32 },
    #[error("the worker of {slot} started {starts} times in epoch {epoch}")]
    StartedTwice { slot: String, epoch: i32, starts: usize },
    #[error("a worker of {pod} started without knowing its epoch")]
    EpochUnknown { pod: String },
    #[error("the worker of {slot} has not started in epoch {epoch}")]
    NotStarted { slot: String, epoch: i32 },
    #[error("no worker of {pod} is alive")]
    NotRunning { pod: String },
    #[error("a worker of {} is alive in Pod UID {uid}, and epoch {synced} runs", name(*epoch))]
    Outlived { uid: String, epoch: Option<i32>, synced: i32 },
}

fn name(epoch: Option<i32>) -> String {
    epoch.map_or_else(|| "no epoch".to_owned(), |epoch| format!("epoch {epoch}"))
}

impl Violation {
    /// Whether it is one only if it lasts: the group may be on its way.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Restarts { expected, observed } | Self::Recreations { expected, observed } => observed < expected,
            // It is counted before the next epoch begins.
            Self::Epoch { synced, restarts } => synced - 1 < *restarts,
            Self::Pods { .. }
            | Self::NotReplaced { .. }
            | Self::Reported { .. }
            | Self::NotStarted { .. }
            | Self::NotRunning { .. }
            | Self::Outlived { .. } => true,
            Self::Ended { .. }
            | Self::Uncounted { .. }
            | Self::Replaced { .. }
            | Self::StartedTwice { .. }
            | Self::EpochUnknown { .. } => false,
        }
    }
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
        violations.push(Violation::Ended { state: now.terminal_state.clone() });
    }
    let counts = (expected.restarts, now.restarts_count_towards_max - then.restarts_count_towards_max);
    if counts.0 != counts.1 {
        violations.push(Violation::Restarts { expected: counts.0, observed: counts.1 });
    }
    let counts = (expected.recreations, now.restarts - then.restarts);
    if counts.0 != counts.1 {
        violations.push(Violation::Recreations { expected: counts.0, observed: counts.1 });
    }
    let (restarts, counted) = (now.group_restarts, now.restarts_count_towards_max);
    if restarts != counted {
        violations.push(Violation::Uncounted { restarts, counted });
    }
    if now.synced_epoch - 1 != restarts {
        violations.push(Violation::Epoch { synced: now.synced_epoch, restarts });
    }
    violations
}

fn pods(before: &Facts, after: &Facts, expected: &Expectation) -> Vec<Violation> {
    let mut violations = Vec::new();
    for then in &before.pods {
        let slot = then.slot.clone();
        let now: Vec<&PodFacts> = after.pods.iter().filter(|pod| pod.slot == slot).collect();
        let [now] = now[..] else {
            violations.push(Violation::Pods { slot, pods: now.len() });
            continue;
        };
        match (now.uid != then.uid, expected.replaced.contains(&slot)) {
            (true, false) => violations.push(Violation::Replaced { slot }),
            (false, true) => violations.push(Violation::NotReplaced { slot }),
            _ => {}
        }
    }
    let synced = after.status.synced_epoch;
    let behind = after.pods.iter().filter(|pod| pod.epoch != Some(synced));
    violations.extend(behind.map(|pod| Violation::Reported { pod: pod.name.clone(), epoch: pod.epoch, synced }));
    violations
}

/// What the workers wrote down: at most one start of each slot in each epoch, and one in the epoch that runs.
fn starts(before: &Facts, after: &Facts) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut counted: BTreeMap<(&str, i32), usize> = BTreeMap::new();
    for entry in after.entries.iter().filter(|entry| entry.event == "start") {
        match entry.epoch {
            Some(epoch) => *counted.entry((slot(&entry.pod), epoch)).or_default() += 1,
            None => violations.push(Violation::EpochUnknown { pod: entry.pod.clone() }),
        }
    }
    let twice = counted.iter().filter(|(_, starts)| **starts > 1);
    violations.extend(twice.map(|((slot, epoch), starts)| Violation::StartedTwice {
        slot: (*slot).to_owned(),
        epoch: *epoch,
        starts: *starts,
    }));
    let epoch = after.status.synced_epoch;
    let missing = before.pods.iter().filter(|pod| !counted.contains_key(&(pod.slot.as_str(), epoch)));
    violations.extend(missing.map(|pod| Violation::NotStarted { slot: pod.slot.clone(), epoch }));
    violations
}

/// The processes themselves: one of the epoch that runs for each Pod, and no other.
fn processes(after: &Facts) -> Vec<Violation> {
    let synced = after.status.synced_epoch;
    let (current, old): (Vec<_>, Vec<_>) = after
        .running
        .iter()
        .partition(|worker| worker.epoch == Some(synced) && after.pods.iter().any(|pod| pod.uid == worker.uid));
    let outlived =
        old.into_iter().map(|worker| Violation::Outlived { uid: worker.uid.clone(), epoch: worker.epoch, synced });
    let dead = after.pods.iter().filter(|pod| !current.iter().any(|worker| worker.uid == pod.uid));
    outlived.chain(dead.map(|pod| Violation::NotRunning { pod: pod.name.clone() })).collect()
}
