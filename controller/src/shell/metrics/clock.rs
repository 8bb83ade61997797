//! From facts and instants to durations, for one JobSet. Pure.
//!
//! | duration | from | to |
//! |---|---|---|
//! | startup | the JobSet's creation, or when it was last resumed before it had started | all Jobs ready |
//! | restart | the first failure; its detection, where the failure was not seen | all Jobs ready, or the end of the JobSet |
//! | phase `detect` | the first failure | its detection: the status that begins the restart is written |
//! | phase `register` (in place) | detection | the barrier is lifted: all Pods are back, and have reported |
//! | phase `lift` (in place) | the barrier is lifted | all Jobs ready |
//! | phase `recreate` (by recreation) | detection | all Jobs ready |
//! | between restarts | all Jobs ready | the next failure |
//!
//! Instants are those of status writes; the first failure has the time that the kubelet or the Job controller gave it, in
//! whole seconds. A controller that takes over a JobSet reads what it can from its conditions: a restart that one leader
//! began and another saw recover has its duration, and lacks the phases that nobody saw in full.

use jobset_api::{FailurePolicyAction, JobSet, RestartStrategy, conditions};
use k8s_openapi::jiff::Timestamp;

use crate::plan::Fact;

/// Something measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Measured {
    /// From creation to all Jobs ready.
    Startup(f64),
    /// A restart of the whole group has ended.
    Restart(RestartStrategy, Outcome, f64),
    /// A part of a restart has ended.
    Phase(RestartStrategy, Phase, f64),
    /// For so long the group ran undisturbed.
    Undisturbed(f64),
    /// For so long the group, or a part of it, did not run.
    Downtime(f64),
}

/// How a restart ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The group runs again.
    Recovered,
    /// The JobSet failed.
    Failed,
    /// The next restart began before the group ran again.
    Superseded,
}

/// A part of a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Detect,
    Register,
    Lift,
    Recreate,
}

impl Outcome {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Recovered => "recovered",
            Self::Failed => "failed",
            Self::Superseded => "superseded",
        }
    }
}

impl Phase {
    pub(super) fn label(self) -> &'static str {
        match self {
            Self::Detect => "detect",
            Self::Register => "register",
            Self::Lift => "lift",
            Self::Recreate => "recreate",
        }
    }
}

/// A restart under way.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Restart {
    strategy: RestartStrategy,
    /// When the group stopped to run, as well as that is known.
    since: Timestamp,
    detected: Timestamp,
    lifted: Option<Timestamp>,
}

/// The clock of one JobSet.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Clock {
    /// From when its start counts; `None` once it has started.
    created: Option<Timestamp>,
    restart: Option<Restart>,
    running_since: Option<Timestamp>,
}

impl Clock {
    /// The clock of a JobSet as it is stored.
    pub(super) fn of(jobset: &JobSet) -> Self {
        let conditions = jobset.status.as_ref().map(|status| &status.conditions[..]).unwrap_or_default();
        let of_type = |type_: &str| conditions.iter().find(|condition| condition.type_ == type_);
        let counted = jobset.status.iter().flat_map(|status| &status.replicated_jobs_status);
        let has_started = counted.into_iter().any(|counted| counted.ready + counted.succeeded > 0);
        let mut clock = Self {
            created: jobset.metadata.creation_timestamp.as_ref().map(|time| time.0).filter(|_| !has_started),
            restart: None,
            running_since: None,
        };
        if let Some(restarting) = of_type(conditions::RESTARTING) {
            let at = restarting.last_transition_time.0;
            if restarting.status == "True" {
                let strategy = match jobset.spec.restart_strategy() {
                    // It fell back to recreation.
                    RestartStrategy::InPlaceRestart if restarting.reason != conditions::IN_PLACE_RESTART => {
                        RestartStrategy::Recreate
                    }
                    strategy => strategy,
                };
                clock.restart = Some(Restart { strategy, since: at, detected: at, lifted: None });
            } else if conditions::terminal(conditions).is_none() {
                clock.running_since = Some(at);
            }
        }
        clock
    }

    /// The JobSet is stored like this. The time in which it is suspended is no part of its start, of a restart, or of the
    /// time between two.
    pub(super) fn see(&mut self, jobset: &JobSet) {
        let conditions = jobset.status.as_ref().map(|status| &status.conditions[..]).unwrap_or_default();
        let Some(suspended) = conditions.iter().find(|condition| condition.type_ == conditions::SUSPENDED) else {
            return;
        };
        if suspended.status == "True" {
            self.restart = None;
            self.running_since = None;
        } else {
            self.created = self.created.map(|created| created.max(suspended.last_transition_time.0));
        }
    }

    /// The fact is true as of now.
    pub(super) fn take(&mut self, fact: &Fact, now: Timestamp) -> Vec<Measured> {
        match fact {
            Fact::RestartBegan { strategy, action, failed_at, .. } if restarts_whole_group(*action) => {
                self.begin(*strategy, *failed_at, now)
            }
            Fact::BarrierLifted => self.lift(now).into_iter().collect(),
            Fact::Recovered => self.end(Outcome::Recovered, now),
            Fact::Completed => {
                let measured = self.end(Outcome::Recovered, now);
                self.running_since = None;
                measured
            }
            Fact::Failed { .. } => {
                let measured = self.end(Outcome::Failed, now);
                self.running_since = None;
                measured
            }
            Fact::Started => {
                self.running_since = Some(now);
                self.created.take().map(|created| Measured::Startup(seconds(created, now))).into_iter().collect()
            }
            Fact::RestartBegan { .. } | Fact::PolicyApplied { .. } => Vec::new(),
        }
    }

    fn begin(&mut self, strategy: RestartStrategy, failed_at: Option<Timestamp>, now: Timestamp) -> Vec<Measured> {
        let since = failed_at.map_or(now, |failed_at| failed_at.min(now));
        let mut measured = Vec::new();
        if let Some(failed_at) = failed_at {
            measured.push(Measured::Phase(strategy, Phase::Detect, seconds(failed_at, now)));
        }
        if let Some(running_since) = self.running_since.take() {
            measured.push(Measured::Undisturbed(seconds(running_since, since)));
        }
        // The group does not run, whichever restart it is: each second of that belongs to one of them.
        let since = if let Some(restart) = self.restart.take() {
            let lasted = seconds(restart.since, now);
            measured.push(Measured::Restart(restart.strategy, Outcome::Superseded, lasted));
            measured.push(Measured::Downtime(lasted));
            now
        } else {
            since
        };
        self.restart = Some(Restart { strategy, since, detected: now, lifted: None });
        measured
    }

    fn lift(&mut self, now: Timestamp) -> Option<Measured> {
        let restart = self.restart.as_mut().filter(|r| r.strategy == RestartStrategy::InPlaceRestart)?;
        restart.lifted = Some(now);
        Some(Measured::Phase(restart.strategy, Phase::Register, seconds(restart.detected, now)))
    }

    fn end(&mut self, outcome: Outcome, now: Timestamp) -> Vec<Measured> {
        let Some(restart) = self.restart.take() else { return Vec::new() };
        let lasted = seconds(restart.since, now);
        let mut measured = vec![Measured::Restart(restart.strategy, outcome, lasted), Measured::Downtime(lasted)];
        if outcome == Outcome::Recovered {
            self.running_since = Some(now);
            let phase = match (restart.strategy, restart.lifted) {
                (RestartStrategy::InPlaceRestart, lifted) => lifted.map(|lifted| (Phase::Lift, lifted)),
                _ => Some((Phase::Recreate, restart.detected)),
            };
            if let Some((phase, from)) = phase {
                measured.push(Measured::Phase(restart.strategy, phase, seconds(from, now)));
            }
        }
        measured
    }
}

fn restarts_whole_group(action: FailurePolicyAction) -> bool {
    matches!(action, FailurePolicyAction::RestartJobSet | FailurePolicyAction::RestartJobSetAndIgnoreMaxRestarts)
}

/// Clocks of different machines differ: never less than nothing.
fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64().max(0.0)
}
