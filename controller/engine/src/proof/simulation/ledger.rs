//! The ledger of the JobSet, against the clock of the simulation and what has truly happened. The JobSet is created when that begins.
//!
//! While the ledger is in another bucket than the JobSet truly is, because nobody has noticed a change yet, no bucket is exact. But none
//! is further from the truth than that. And at rest, the ledger is in the true bucket.

use jobset_api::{JobSetStatus, Ledger, LedgerBucket, LedgerTimes, conditions};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::cluster::{BEGINNING, SimulatedCluster};
use crate::proof::{CheckResult, Property, ensure};

/// Most that the start or the end of a stretch may be off in milliseconds: the controller's clock has seconds.
const ROUNDED: i64 = 1_000;

/// What the JobSet truly spends its time with, as far as buckets are told apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spends {
    /// All of its workers run.
    Running,
    Suspended,
    /// It waits before a restart.
    Waiting,
    Other,
}

/// Where the time truly went, in milliseconds.
#[derive(Debug, Default)]
pub(super) struct TrueTimes {
    times: [i64; 3],
    /// How far each bucket may be from the truth.
    unnoticed: i64,
}

const COMPARED: [Spends; 3] = [Spends::Running, Spends::Suspended, Spends::Waiting];

impl Spends {
    fn of(bucket: LedgerBucket) -> Self {
        match bucket {
            LedgerBucket::Running | LedgerBucket::Stalled => Self::Running,
            LedgerBucket::Suspended => Self::Suspended,
            LedgerBucket::Waiting => Self::Waiting,
            _ => Self::Other,
        }
    }

    /// The time in the buckets of this kind.
    fn sum(self, times: &LedgerTimes) -> i64 {
        LedgerBucket::TIMED.into_iter().filter(|bucket| Self::of(*bucket) == self).map(|bucket| times.of(bucket)).sum()
    }
}

impl SimulatedCluster {
    /// So many milliseconds pass.
    pub(super) fn pass(&mut self, milliseconds: i64) {
        let status = self.api.status();
        if !status.is_finished() {
            // The first write counts the time since the creation.
            let (truth, told) = (self.spends(&status), status.ledger.as_ref().map(|ledger| Spends::of(ledger.bucket)));
            let times = &mut self.true_times;
            for (time, spends) in times.times.iter_mut().zip(COMPARED) {
                *time += if spends == truth { milliseconds } else { 0 };
            }
            times.unnoticed += if told == Some(truth) { 0 } else { milliseconds };
        }
        self.clock += milliseconds;
    }

    /// What the JobSet truly spends its time with.
    fn spends(&self, status: &JobSetStatus) -> Spends {
        if self.api.jobset.spec.is_suspended() {
            Spends::Suspended
        } else if status.barrier_until.as_ref().is_some_and(|until| until.0 > self.now().0) {
            Spends::Waiting
        } else if self.all_wanted_run(status) {
            Spends::Running
        } else {
            Spends::Other
        }
    }

    /// Each write continues the ledger where the one before has ended, whichever controller wrote that.
    pub(super) fn check_ledger(&mut self, before: &JobSetStatus, after: &JobSetStatus) -> CheckResult {
        let Some(ledger) = &after.ledger else {
            // A panic is told of before anything else.
            let is_first = before.ledger.is_none() && after.jobs_ready.is_empty();
            return ensure(is_first, Property::Ledger, || "a status is written without a ledger".to_owned());
        };
        ensure(ledger.began() == created(), Property::Ledger, || {
            format!("the ledger begins at {}, and the JobSet at {}: {ledger:?}", ledger.began(), created())
        })?;
        let grows = |before: &Ledger| {
            let of = |bucket: &LedgerBucket| ledger.milliseconds.of(*bucket) >= before.milliseconds.of(*bucket);
            ledger.since.0 >= before.since.0 && LedgerBucket::TIMED.iter().all(of)
        };
        ensure(before.ledger.as_ref().is_none_or(grows), Property::Ledger, || {
            format!("the ledger shrinks from {:?} to {ledger:?}", before.ledger)
        })?;
        ensure(after.is_finished() == (ledger.bucket == LedgerBucket::Finished), Property::Ledger, || {
            format!("it is in the bucket {:?}, and its state is {:?}", ledger.bucket, after.terminal_state)
        })?;
        // The ledger counts from when the write was decided.
        let late = self.now().0.duration_since(ledger.since.0).as_millis();
        self.true_times.unnoticed += i64::try_from(late).unwrap_or(i64::MAX);
        if before.ledger.as_ref().map(|ledger| Spends::of(ledger.bucket)) != Some(Spends::of(ledger.bucket)) {
            self.true_times.unnoticed += ROUNDED;
        }
        self.check_buckets(ledger)
    }

    /// Each bucket has the time that the JobSet has truly spent in it, but for what nobody had noticed.
    fn check_buckets(&self, ledger: &Ledger) -> CheckResult {
        let (times, TrueTimes { times: truth, unnoticed }) = (ledger.at(self.now().0), &self.true_times);
        for (truth, spends) in truth.iter().zip(COMPARED) {
            let counted = spends.sum(&times);
            ensure((counted - truth).abs() <= unnoticed + ROUNDED, Property::Ledger, || {
                format!("{truth} ms {spends:?}, {counted} ms in the ledger, {unnoticed} ms unnoticed: {ledger:?}")
            })?;
        }
        Ok(())
    }

    /// When nothing is left to happen, the ledger is in the true bucket.
    pub(super) fn check_ledger_at_rest(&self) -> CheckResult {
        let status = self.api.status();
        let is_none = self.is_left_alone()
            || self.exceeds_cluster()
            || self.any_waits_for_node()
            || self.api.jobset.spec.expected_pods() == 0
            || self.wanted_jobs(&status).any(|(_, job)| job.is_none_or(|job| self.is_left_failed(job)));
        let Some(ledger) = status.ledger.as_ref().filter(|_| !is_none && !status.is_finished()) else { return Ok(()) };
        let truth = self.spends(&status);
        ensure(Spends::of(ledger.bucket) == truth, Property::Ledger, || {
            format!("the JobSet is at rest, {truth:?}, and its ledger is {:?}", ledger.bucket)
        })
    }

    /// When nothing is left to happen, the ledger has the time until now, or until the end, within 1 %.
    pub(super) fn check_end_of_ledger(&self) -> CheckResult {
        let status = self.api.status();
        let Some(ledger) = &status.ledger else { return Ok(()) };
        let now = self.now().0;
        let end = conditions::terminal(&status.conditions).map_or(now, |end| end.last_transition_time.0);
        let (life, sum) = (end.duration_since(created()), SignedDuration::from_millis(ledger.at(now).sum()));
        ensure((life - sum).abs() <= life.abs() / 100, Property::Ledger, || {
            format!("the JobSet has lived for {life:#}, and its ledger has {sum:#}: {ledger:?}")
        })?;
        self.check_buckets(ledger)
    }
}

fn created() -> Timestamp {
    Timestamp::from_second(BEGINNING).unwrap_or_default()
}
