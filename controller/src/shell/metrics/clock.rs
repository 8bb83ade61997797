//! Computes durations from facts and instants, for one JobSet. Pure.
//!
//! The help texts of the metrics define the durations. Between restarts, a group runs from all Jobs ready to the next failure.
//!
//! Instants are those of status writes. The first failure has the time that the agent, the kubelet or the Job controller gave it,
//! the latter two in whole seconds. A new leader reads the begin of a restart from the status of the JobSet. It measures the
//! restart, but not the phases that it has observed in part. A restart that begins in place and goes on by recreation is one.

use jobset_api::{FailurePolicyAction, JobSet, RestartStrategy, conditions};
use jobset_rules::Fact;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;

use super::labels;

/// A measured duration, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Measured {
    /// A start of a JobSet.
    Startup(f64),
    /// A restart of the whole group with this result. The group did not run.
    Restart(RestartStrategy, &'static str, f64),
    Phase(RestartStrategy, &'static str, f64),
    /// The time between two restarts.
    Undisturbed(f64),
}

/// A restart under way.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Restart {
    strategy: RestartStrategy,
    /// The first failure, or its detection.
    since: Timestamp,
    detected: Timestamp,
    lifted: Option<Timestamp>,
}

/// The clock of one JobSet.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Clock {
    /// The begin of the start; `None` once the JobSet has started.
    created: Option<Timestamp>,
    restart: Option<Restart>,
    running_since: Option<Timestamp>,
}

impl Clock {
    pub(super) fn of(jobset: &JobSet) -> Self {
        let mut counts = jobset.status.iter().flat_map(|status| &status.replicated_jobs_status);
        let has_started = counts.any(|counts| counts.ready + counts.succeeded > 0);
        let mut clock = Self {
            created: jobset.metadata.creation_timestamp.as_ref().map(|time| time.0).filter(|_| !has_started),
            restart: None,
            running_since: None,
        };
        if let Some(restarting) = condition(jobset, conditions::RESTARTING) {
            let at = restarting.last_transition_time.0;
            if restarting.status == "True" {
                let strategy = match jobset.spec.restart_strategy() {
                    // The JobSet does not allow an in-place restart.
                    RestartStrategy::InPlaceRestart if restarting.reason != conditions::IN_PLACE_RESTART => {
                        RestartStrategy::Recreate
                    }
                    strategy => strategy,
                };
                let since = restart_under_way(jobset).unwrap_or(at);
                clock.restart = Some(Restart { strategy, since, detected: at, lifted: None });
            } else if jobset.status.as_ref().is_none_or(|status| conditions::terminal(&status.conditions).is_none()) {
                clock.running_since = Some(at);
            }
        }
        clock
    }

    /// Takes the status in. The time in which a JobSet is suspended is no part of its start, of a restart, or of the time between
    /// two restarts.
    pub(super) fn see(&mut self, jobset: &JobSet) {
        let Some(suspended) = condition(jobset, conditions::SUSPENDED) else { return };
        if suspended.status == "True" {
            self.restart = None;
            self.running_since = None;
        } else {
            self.created = self.created.map(|created| created.max(suspended.last_transition_time.0));
        }
    }

    pub(super) fn take(&mut self, fact: &Fact, now: Timestamp) -> Vec<Measured> {
        match fact {
            Fact::RestartBegan { strategy, action, failed_at, .. } if restarts_whole_group(*action) => {
                self.begin(*strategy, *failed_at, now)
            }
            Fact::RestartRecreates { strategy } => {
                let recreates =
                    |restart: Restart| Restart { strategy: *strategy, detected: now, lifted: None, ..restart };
                self.restart = self.restart.map(recreates);
                Vec::new()
            }
            Fact::BarrierLifted => self.lift(now).into_iter().collect(),
            Fact::Recovered => {
                self.running_since = self.restart.map(|_| now).or(self.running_since);
                self.end("recovered", now)
            }
            Fact::Completed | Fact::Failed { .. } => {
                self.running_since = None;
                let result = if *fact == Fact::Completed { "recovered" } else { labels::FAILED };
                self.end(result, now)
            }
            Fact::Started => {
                self.running_since = Some(now);
                self.created.take().map(|created| Measured::Startup(seconds(created, now))).into_iter().collect()
            }
            // Other facts are counted, and begin or end no time.
            _ => Vec::new(),
        }
    }

    fn begin(&mut self, strategy: RestartStrategy, failed_at: Option<Timestamp>, now: Timestamp) -> Vec<Measured> {
        let mut since = failed_at.map_or(now, |failed_at| failed_at.min(now));
        let mut measured = Vec::new();
        if let Some(failed_at) = failed_at {
            measured.push(Measured::Phase(strategy, "detect", seconds(failed_at, now)));
        }
        if let Some(running_since) = self.running_since.take() {
            measured.push(Measured::Undisturbed(seconds(running_since, since)));
        }
        if let Some(superseded) = self.restart {
            // Each second without a running group belongs to one restart.
            since = since.max(superseded.since);
            measured.extend(self.end("superseded", since));
        }
        self.restart = Some(Restart { strategy, since, detected: now, lifted: None });
        measured
    }

    fn lift(&mut self, now: Timestamp) -> Option<Measured> {
        let restart = self.restart.as_mut().filter(|r| r.strategy == RestartStrategy::InPlaceRestart)?;
        restart.lifted = Some(now);
        Some(Measured::Phase(restart.strategy, "register", seconds(restart.detected, now)))
    }

    fn end(&mut self, result: &'static str, now: Timestamp) -> Vec<Measured> {
        let Some(restart) = self.restart.take() else { return Vec::new() };
        let lasted = seconds(restart.since, now);
        let mut measured = vec![Measured::Restart(restart.strategy, result, lasted)];
        let phase = match (restart.strategy, restart.lifted) {
            (RestartStrategy::InPlaceRestart, lifted) => lifted.map(|lifted| ("lift", lifted)),
            _ => Some(("recreate", restart.detected)),
        };
        if let Some((phase, from)) = phase.filter(|_| result == "recovered") {
            measured.push(Measured::Phase(restart.strategy, phase, seconds(from, now)));
        }
        measured
    }
}

/// When the last restart began, by the status, if the Jobs have not been ready since.
fn restart_under_way(jobset: &JobSet) -> Option<Timestamp> {
    let last = jobset.status.as_ref()?.recent_restarts.last()?;
    last.completion_time.is_none().then_some(last.start_time.0)
}

fn condition<'a>(jobset: &'a JobSet, type_: &str) -> Option<&'a Condition> {
    jobset.status.iter().flat_map(|status| &status.conditions).find(|condition| condition.type_ == type_)
}

fn restarts_whole_group(action: FailurePolicyAction) -> bool {
    matches!(action, FailurePolicyAction::RestartJobSet | FailurePolicyAction::RestartJobSetAndIgnoreMaxRestarts)
}

/// Never negative, although clocks of different machines differ.
fn seconds(from: Timestamp, to: Timestamp) -> f64 {
    to.duration_since(from).as_secs_f64().max(0.0)
}
