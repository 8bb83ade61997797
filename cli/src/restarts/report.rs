//! The restarts of a JobSet, from the controller's Events and the status.
//!
//! Events have all phases of a restart. They expire, and of many failures in a row only some restarts have Events. The status
//! has the last five restarts. The report says how many restarts are in neither.

use jobset_api::{JobSet, JobSetStatus, RecentRestart, RestartStrategy, conditions};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt as _;
use serde::Serialize;

use super::events::{RestartEvent, RestartStep};
use crate::status;

/// Start of the message of an in-place restart.
const IN_PLACE: &str = "in place, ";
/// Start of the message of a recreation.
const RECREATING: &str = "recreating ";

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RestartReport {
    pub name: String,
    pub namespace: String,
    pub strategy: RestartStrategy,
    /// Group restarts, in place or by recreation.
    pub group_restarts: i32,
    pub restarts_count_towards_max: i32,
    /// The limit of restarts that count: `spec.failurePolicy.maxRestarts` and additional restarts.
    pub max_restarts: i32,
    /// The spent part of the budget, as text.
    pub spent: String,
    /// Group restarts that neither an Event nor the status describes.
    pub expired: i32,
    /// The other group restarts, the oldest first.
    pub restarts: Vec<GroupRestart>,
    /// Until when the last restart waits, because the JobSet keeps failing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits_until: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failure: Option<FinalFailure>,
}

/// The failure after which a JobSet does not restart.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FinalFailure {
    pub reason: String,
    /// Its message, which names the worker and how it ended.
    pub message: String,
    pub at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum RestartManner {
    InPlace,
    /// Jobs and Pods are recreated.
    Recreate,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GroupRestart {
    /// Counts from 1; none if only Events without a number describe it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub number: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manner: Option<RestartManner>,
    /// In-place restart: the epoch whose workers it stopped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted: Option<bool>,
    /// The first failure, if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub failed: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub began: Option<Timestamp>,
    /// A restart that began in place: since when it goes on by recreation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recreates: Option<Timestamp>,
    /// In-place restart: when the barrier was lifted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifted: Option<Timestamp>,
    /// When all Jobs were ready again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recovered: Option<Timestamp>,
    pub phases: Vec<RestartPhase>,
    /// Seconds from the first failure, or else from its start, until all Jobs were ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<f64>,
    /// Whether another restart started, or the JobSet ended, before the end of this one.
    pub superseded: bool,
    /// The number of restarts in a row, this one included, before which the workers had not run well; if known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub consecutive_failures: Option<i32>,
    /// The cause, in the controller's words.
    pub cause: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RestartPhase {
    /// detect, register, lift or recreate.
    pub name: &'static str,
    pub from: Timestamp,
    pub to: Timestamp,
    pub seconds: f64,
}

impl GroupRestart {
    /// The first failure, or else the start.
    pub fn start(&self) -> Option<Timestamp> {
        self.failed.or(self.began)
    }
}

/// The restarts of this JobSet, from its status and Events in any order.
pub fn report(jobset: &JobSet, events: Vec<RestartEvent>) -> RestartReport {
    let none = JobSetStatus::default();
    let status = jobset.status.as_ref().unwrap_or(&none);
    let mut restarts = by_events(events);
    for recent in &status.recent_restarts {
        add_recent(&mut restarts, recent);
    }
    // Restarts without a number stay among those of their time.
    restarts.sort_by_key(|restart| restart.began.or(restart.lifted).or(restart.recovered));
    let end = conditions::terminal(&status.conditions);
    let failed = end.is_some_and(|end| end.type_ == conditions::FAILED);
    if let (Some(end), Some(last)) = (end.filter(|_| !failed), restarts.last_mut()) {
        // All Jobs have succeeded.
        last.recovered.get_or_insert(end.last_transition_time.0);
    }
    for index in 0..restarts.len() {
        let is_last = index + 1 == restarts.len();
        finish(&mut restarts[index], is_last && !failed);
    }
    let budget = status::RestartCount::of(jobset);
    let shown = i32::try_from(restarts.len()).unwrap_or(i32::MAX);
    let failure = end.filter(|_| failed).map(|end| FinalFailure {
        reason: end.reason.clone(),
        message: end.message.clone(),
        at: end.last_transition_time.0,
    });
    RestartReport {
        name: jobset.name_any(),
        namespace: jobset.namespace().unwrap_or_default(),
        strategy: jobset.spec.restart_strategy(),
        group_restarts: budget.total,
        restarts_count_towards_max: status.restarts_count_towards_max,
        max_restarts: budget.max,
        spent: budget.spent(),
        expired: budget.total.saturating_sub(shown).max(0),
        restarts,
        waits_until: status.barrier_until.as_ref().filter(|_| end.is_none()).map(|MicroTime(until)| *until),
        failure,
    }
}

fn by_events(mut events: Vec<RestartEvent>) -> Vec<GroupRestart> {
    events.sort_by_key(|event| (event.at, event.step as u8));
    let mut restarts: Vec<GroupRestart> = Vec::new();
    // Number and counter of the newest Event that has both.
    let mut counted_before: Option<(i32, i32)> = None;
    for event in &events {
        let is_same = |restart: &GroupRestart| match (event.number, restart.number) {
            (Some(one), Some(other)) => one == other,
            _ => event.step != RestartStep::Began,
        };
        let index = match restarts.iter().rposition(is_same) {
            Some(index) => index,
            // The first start or a growth of the group also lifts the barrier. That is no restart.
            None if event.step != RestartStep::Began && event.number.is_none_or(|number| number < 1) => continue,
            None => {
                restarts.push(GroupRestart { number: event.number, ..GroupRestart::default() });
                restarts.len() - 1
            }
        };
        let restart = &mut restarts[index];
        add(restart, event);
        if let (Some(number), Some(counted)) = (event.number, event.counted) {
            restart.counted = restart.counted.or_else(|| counted_by_counter(number, counted, counted_before));
            counted_before = counted_before.filter(|(previous, _)| *previous >= number).or(Some((number, counted)));
        }
    }
    restarts
}

/// Adds what the status says of a restart. An Event of the same restart has the longer message.
fn add_recent(restarts: &mut Vec<GroupRestart>, recent: &RecentRestart) {
    let MicroTime(start) = recent.start_time;
    let index = restarts.iter().position(|restart| restart.number == Some(recent.number)).unwrap_or_else(|| {
        restarts.push(GroupRestart { number: Some(recent.number), ..GroupRestart::default() });
        restarts.len() - 1
    });
    let restart = &mut restarts[index];
    let in_place = recent.strategy == RestartStrategy::InPlaceRestart;
    restart.manner = Some(if in_place { RestartManner::InPlace } else { RestartManner::Recreate });
    restart.counted = Some(recent.counted);
    restart.began.get_or_insert(start);
    restart.recovered = restart.recovered.or(recent.completion_time.as_ref().map(|MicroTime(end)| *end));
    restart.consecutive_failures = Some(recent.consecutive_failures);
    if restart.cause.is_empty() {
        restart.cause.clone_from(&recent.message);
    }
}

fn add(restart: &mut GroupRestart, event: &RestartEvent) {
    match event.step {
        // It goes on by recreation.
        RestartStep::Began if restart.began.is_some() => {
            restart.recreates = Some(event.at);
            restart.manner = manner(&event.message).or(restart.manner);
            restart.cause = format!("{}; then {}", restart.cause, event.message);
        }
        RestartStep::Began => {
            restart.began = Some(event.at);
            // The node's clock may be ahead of the controller's.
            restart.failed = event.failed_at.map(|failed| failed.min(event.at));
            restart.manner = manner(&event.message);
            restart.epoch = event.synced.filter(|_| restart.manner == Some(RestartManner::InPlace));
            restart.counted = counted_by_message(&event.message);
            restart.cause.clone_from(&event.message);
        }
        // A growth of the group can lift the barrier once more.
        RestartStep::Lifted => {
            restart.lifted.get_or_insert(event.at);
        }
        RestartStep::Done => {
            restart.recovered.get_or_insert(event.at);
        }
    }
}

fn manner(message: &str) -> Option<RestartManner> {
    if message.starts_with(IN_PLACE) {
        Some(RestartManner::InPlace)
    } else if message.starts_with(RECREATING) {
        Some(RestartManner::Recreate)
    } else {
        None
    }
}

/// Whether the restart counts, if the message says so.
fn counted_by_message(message: &str) -> Option<bool> {
    if message.ends_with("; counted") {
        Some(true)
    } else if message.contains("; not counted") {
        Some(false)
    } else {
        None
    }
}

/// Whether the restart counted, by its counter and that of the restart before.
fn counted_by_counter(number: i32, counted: i32, before: Option<(i32, i32)>) -> Option<bool> {
    match before {
        _ if counted == 0 => Some(false),
        // All restarts counted.
        _ if counted == number => Some(true),
        Some((previous, spent)) if previous + 1 == number => Some(counted > spent),
        _ => None,
    }
}

fn finish(restart: &mut GroupRestart, is_last: bool) {
    if restart.manner.is_none() && restart.lifted.is_some() {
        restart.manner = Some(RestartManner::InPlace);
    }
    restart.superseded = !is_last && restart.recovered.is_none();
    let mut phases = Vec::new();
    let mut add = |name, from: Option<Timestamp>, to: Option<Timestamp>| {
        if let (Some(from), Some(to)) = (from, to)
            && from <= to
        {
            phases.push(RestartPhase { name, from, to, seconds: to.duration_since(from).as_secs_f64() });
        }
    };
    add("detect", restart.failed, restart.began);
    if restart.manner == Some(RestartManner::Recreate) {
        add("recreate", restart.began, restart.recovered);
    } else {
        add("register", restart.began, restart.lifted);
        add("lift", restart.lifted, restart.recovered);
    }
    restart.phases = phases;
    let total = |(from, to): (Timestamp, Timestamp)| to.duration_since(from);
    restart.total = restart.start().zip(restart.recovered).map(total).as_ref().map(SignedDuration::as_secs_f64);
}
