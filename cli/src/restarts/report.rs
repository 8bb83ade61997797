//! Restarts, put together from what was told of them. What was not told is left out, and said to be missing.

use jobset_api::{JobSet, RestartStrategy};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use serde::Serialize;

use super::events::{Step, Told};
use crate::status;

/// How a restart in place is told.
const IN_PLACE: &str = "in place, ";
/// How one by recreation is told.
const RECREATING: &str = "recreating ";

/// The restarts of a JobSet.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Restarts {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
    /// How it restarts.
    pub strategy: RestartStrategy,
    /// How often it has, by its status.
    #[serde(flatten)]
    pub budget: Budget,
    /// How many of these no Event tells of any more.
    pub expired: i32,
    /// Those that Events tell of, the first first.
    pub restarts: Vec<Restart>,
}

/// How often a JobSet has restarted, by its status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Budget {
    /// As a whole, in place or by recreation.
    pub group_restarts: i32,
    /// How many of them count.
    pub restarts_count_towards_max: i32,
    /// How many restarts, of whatever shares a budget, may count.
    pub max_restarts: i32,
    /// How much is spent, in words.
    pub spent: String,
}

/// How a group restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Manner {
    /// Pods stay.
    InPlace,
    /// Jobs and Pods are made anew.
    Recreate,
}

/// One restart of the group.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Restart {
    /// The first has the number 1. None where the controller does not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<i32>,
    /// How it was done; none where the Event of its beginning has expired and nothing else tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manner: Option<Manner>,
    /// In place: the epoch whose workers it stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i32>,
    /// Whether it counts towards maxRestarts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted: Option<bool>,
    /// The first failure, where it was seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<Timestamp>,
    /// When it began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub began: Option<Timestamp>,
    /// In place: when the barrier was lifted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifted: Option<Timestamp>,
    /// When all Jobs were ready again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovered: Option<Timestamp>,
    /// Where the time went.
    pub phases: Vec<Phase>,
    /// Seconds from the first failure, or else from its beginning, until all Jobs were ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// Whether another restart began before this one was over.
    pub superseded: bool,
    /// Why, in the controller's words.
    pub cause: String,
}

/// One phase of a restart.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Phase {
    /// detect, register, lift or recreate.
    pub name: &'static str,
    /// When it began.
    pub from: Timestamp,
    /// When it ended.
    pub to: Timestamp,
    /// How long it took.
    pub seconds: f64,
}

impl Restart {
    fn numbered(number: Option<i32>) -> Self {
        Self {
            number,
            manner: None,
            epoch: None,
            counted: None,
            failed: None,
            began: None,
            lifted: None,
            recovered: None,
            phases: Vec::new(),
            total: None,
            superseded: false,
            cause: String::new(),
        }
    }

    /// When it began to matter.
    pub fn start(&self) -> Option<Timestamp> {
        self.failed.or(self.began)
    }
}

/// The restarts of this JobSet, from what was told of them in whatever order.
pub fn report(jobset: &JobSet, mut told: Vec<Told>) -> Restarts {
    told.sort_by_key(|told| (told.at, told.step as u8));
    let mut restarts: Vec<Restart> = Vec::new();
    // Towards maxRestarts before the restart, where the one before tells.
    let mut counted_before: Option<(i32, i32)> = None;
    for event in &told {
        let is_same = |restart: &Restart| match (event.number, restart.number) {
            (Some(one), Some(other)) => one == other && (event.step != Step::Began || restart.began.is_none()),
            _ => event.step != Step::Began,
        };
        let index = match restarts.iter().rposition(is_same) {
            Some(index) => index,
            // A start, or a growth of the group, lifts the barrier too: that is no restart.
            None if event.step != Step::Began && event.number.is_none_or(|number| number < 1) => continue,
            None => {
                restarts.push(Restart::numbered(event.number));
                restarts.len() - 1
            }
        };
        let restart = &mut restarts[index];
        add(restart, event);
        if let (Some(number), Some(counted)) = (event.number, event.counted) {
            restart.counted = restart.counted.or_else(|| counts(number, counted, counted_before));
            counted_before = counted_before.filter(|(previous, _)| *previous >= number).or(Some((number, counted)));
        }
    }
    for index in 0..restarts.len() {
        let is_last = index + 1 == restarts.len();
        finish(&mut restarts[index], is_last);
    }
    let budget = status::Restarts::of(jobset);
    let shown = i32::try_from(restarts.len()).unwrap_or(i32::MAX);
    Restarts {
        name: jobset.name_any(),
        namespace: jobset.namespace().unwrap_or_default(),
        strategy: jobset.spec.restart_strategy(),
        budget: Budget {
            group_restarts: budget.total,
            restarts_count_towards_max: jobset.status.as_ref().map_or(0, |status| status.restarts_count_towards_max),
            max_restarts: budget.max,
            spent: budget.spent(),
        },
        expired: budget.total.saturating_sub(shown).max(0),
        restarts,
    }
}

fn add(restart: &mut Restart, event: &Told) {
    match event.step {
        Step::Began => {
            restart.began = Some(event.at);
            // A clock that is ahead of the controller's is no time to begin with.
            restart.failed = event.failed_at.map(|failed| failed.min(event.at));
            restart.manner = manner(&event.message);
            restart.epoch = event.synced.filter(|_| restart.manner == Some(Manner::InPlace));
            restart.counted = said(&event.message);
            restart.cause.clone_from(&event.message);
        }
        // The first lift is the one that the workers waited for.
        Step::Lifted => {
            restart.lifted.get_or_insert(event.at);
        }
        Step::Done => {
            restart.recovered.get_or_insert(event.at);
        }
    }
}

fn manner(message: &str) -> Option<Manner> {
    if message.starts_with(IN_PLACE) {
        Some(Manner::InPlace)
    } else if message.starts_with(RECREATING) {
        Some(Manner::Recreate)
    } else {
        None
    }
}

/// What the message says about counting; not every one does.
fn said(message: &str) -> Option<bool> {
    if message.ends_with("; counted") {
        Some(true)
    } else if message.contains("; not counted") {
        Some(false)
    } else {
        None
    }
}

/// Whether the restart of this number counted, by the counter that was written with it and the one before.
fn counts(number: i32, counted: i32, before: Option<(i32, i32)>) -> Option<bool> {
    match before {
        _ if counted == 0 => Some(false),
        // All of them did.
        _ if counted == number => Some(true),
        Some((previous, spent)) if previous + 1 == number => Some(counted > spent),
        _ => None,
    }
}

fn finish(restart: &mut Restart, is_last: bool) {
    if restart.manner.is_none() && restart.lifted.is_some() {
        restart.manner = Some(Manner::InPlace);
    }
    restart.superseded = !is_last && restart.recovered.is_none();
    let mut phases = Vec::new();
    let mut add = |name, from: Option<Timestamp>, to: Option<Timestamp>| {
        if let (Some(from), Some(to)) = (from, to)
            && from <= to
        {
            phases.push(Phase { name, from, to, seconds: to.duration_since(from).as_secs_f64() });
        }
    };
    add("detect", restart.failed, restart.began);
    if restart.manner == Some(Manner::Recreate) {
        add("recreate", restart.began, restart.recovered);
    } else {
        add("register", restart.began, restart.lifted);
        add("lift", restart.lifted, restart.recovered);
    }
    restart.phases = phases;
    let total = |(from, to): (Timestamp, Timestamp)| to.duration_since(from);
    restart.total = restart.start().zip(restart.recovered).map(total).as_ref().map(SignedDuration::as_secs_f64);
}
