//! The ledger of the JobSet, against the clock of the simulation. The JobSet is created when that begins.

use jobset_api::{JobSetStatus, Ledger, LedgerBucket, conditions};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::cluster::{BEGINNING, SimulatedCluster};
use crate::proof::{CheckResult, Property, ensure};

impl SimulatedCluster {
    /// Each write continues the ledger where the one before has ended, whichever controller wrote that.
    pub(super) fn check_ledger(before: &JobSetStatus, after: &JobSetStatus) -> CheckResult {
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
        })
    }
}

fn created() -> Timestamp {
    Timestamp::from_second(BEGINNING).unwrap_or_default()
}
