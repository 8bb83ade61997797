//! Compares a group before and after a fault with what must have become of it. Pure.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use super::expectation::Expectation;
use super::facts::{Facts, PodFacts, slot};

/// Something that must not be.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Violation {
    /// The JobSet has ended.
    Ended { state: String },
    /// More or fewer restarts were counted than there were.
    Restarts { wanted: i32, seen: i32 },
    /// More or fewer restarts recreated all Pods than should have.
    Recreations { wanted: i32, seen: i32 },
    /// A restart was not counted towards maxRestarts, or counted twice: nothing here is ignored.
    Uncounted { restarts: i32, counted: i32 },
    /// The epochs are not those of the restarts: the first one, and one for each.
    Epoch { synced: i32, restarts: i32 },
    /// A slot has not exactly one Pod.
    Pods { slot: String, pods: usize },
    /// A Pod was replaced that should have restarted in place.
    Replaced { slot: String },
    /// A Pod is still there that should have been replaced.
    NotReplaced { slot: String },
    /// A Pod's agent has reported another epoch than the one that runs.
    Reported { pod: String, epoch: Option<i32>, synced: i32 },
    /// A worker started twice in one epoch, in one Pod or in two.
    StartedTwice { slot: String, epoch: i32, starts: usize },
    /// A worker was not told its epoch.
    Untold { pod: String },
    /// A worker has not started in the epoch that runs.
    NotStarted { slot: String, epoch: i32 },
    /// No process of this worker is alive.
    NotRunning { pod: String },
    /// A worker of another epoch, or of a Pod that is gone, is alive.
    Outlived { uid: String, epoch: Option<i32>, synced: i32 },
}

impl Violation {
    /// Whether it is one only if it lasts: the group may be on its way.
    pub(super) fn may_pass(&self) -> bool {
        match self {
            Self::Restarts { wanted, seen } | Self::Recreations { wanted, seen } => seen < wanted,
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
            | Self::Untold { .. } => false,
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told = |epoch: &Option<i32>| epoch.map_or_else(|| "no epoch".to_owned(), |epoch| format!("epoch {epoch}"));
        match self {
            Self::Ended { state } => write!(f, "the JobSet has ended: {state}"),
            Self::Restarts { wanted, seen } => write!(f, "{seen} restarts of the group, not {wanted}"),
            Self::Recreations { wanted, seen } => write!(f, "{seen} restarts by recreation, not {wanted}"),
            Self::Uncounted { restarts, counted } => write!(f, "{restarts} restarts, {counted} counted"),
            Self::Epoch { synced, restarts } => write!(f, "syncedEpoch is {synced} after {restarts} restarts"),
            Self::Pods { slot, pods } => write!(f, "{slot} has {pods} Pods"),
            Self::Replaced { slot } => write!(f, "the Pod of {slot} was replaced"),
            Self::NotReplaced { slot } => write!(f, "the Pod of {slot} was not replaced"),
            Self::Reported { pod, epoch, synced } => {
                write!(f, "{pod} has reported {}, and epoch {synced} runs", told(epoch))
            }
            Self::StartedTwice { slot, epoch, starts } => {
                write!(f, "the worker of {slot} started {starts} times in epoch {epoch}")
            }
            Self::Untold { pod } => write!(f, "a worker of {pod} started without knowing its epoch"),
            Self::NotStarted { slot, epoch } => write!(f, "the worker of {slot} has not started in epoch {epoch}"),
            Self::NotRunning { pod } => write!(f, "no worker of {pod} is alive"),
            Self::Outlived { uid, epoch, synced } => {
                write!(f, "a worker of {} is alive in Pod UID {uid}, and epoch {synced} runs", told(epoch))
            }
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
    let (wanted, seen) = (expected.restarts, now.restarts_count_towards_max - then.restarts_count_towards_max);
    if seen != wanted {
        violations.push(Violation::Restarts { wanted, seen });
    }
    let (wanted, seen) = (expected.recreations, now.restarts - then.restarts);
    if seen != wanted {
        violations.push(Violation::Recreations { wanted, seen });
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
            None => violations.push(Violation::Untold { pod: entry.pod.clone() }),
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
