//! Whether the ledger of a JobSet adds up to the life of the JobSet. Pure.

use std::fmt;

use anyhow::{Context, Result};
use jobset_api::{JobSet, LedgerBucket, LedgerTimes};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

/// The ledger may be off by a hundredth of the age.
const HUNDREDTH: f64 = 0.01;
/// The API server gives the time of creation in whole seconds.
const ROUNDED: SignedDuration = SignedDuration::from_secs(1);

/// The life of a JobSet, and what its ledger says of it.
#[derive(Clone, Debug, PartialEq)]
pub struct AccountedTime {
    name: String,
    age: SignedDuration,
    /// The sums of all buckets, and the time since the last write in the present one.
    pub times: LedgerTimes,
}

impl AccountedTime {
    /// What the ledger of a JobSet that runs says at `now`.
    pub fn of(jobset: &JobSet, now: Timestamp) -> Result<Self> {
        let name = jobset.metadata.name.clone().unwrap_or_default();
        let ledger = jobset.status.as_ref().and_then(|status| status.ledger.as_ref());
        let ledger = ledger.with_context(|| format!("the status of {name} has no ledger"))?;
        let created = jobset.metadata.creation_timestamp.as_ref().with_context(|| format!("{name} has no age"))?;
        Ok(Self { name, age: now.duration_since(created.0), times: ledger.at(now) })
    }

    /// What is wrong with the ledger, if it does not add up to the age.
    pub fn violation(&self) -> Option<String> {
        let most = SignedDuration::from_secs_f64(self.age.as_secs_f64() * HUNDREDTH).max(ROUNDED);
        let off = (self.sum() - self.age).abs();
        (off > most).then(|| self.to_string())
    }

    fn sum(&self) -> SignedDuration {
        SignedDuration::from_millis(self.times.sum())
    }
}

impl fmt::Display for AccountedTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [sum, age] = [self.sum(), self.age].map(|time| time.as_secs_f64());
        let Self { name, times, .. } = self;
        write!(f, "the ledger of {name} adds up to {sum:.1} s of {age:.1} s")?;
        for bucket in LedgerBucket::TIMED.iter().filter(|bucket| times.of(**bucket) != 0) {
            let seconds = SignedDuration::from_millis(times.of(*bucket)).as_secs_f64();
            write!(f, ", {} {seconds:.1} s", bucket.word())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    /// A JobSet that was created at 09:00 and has run since the last write at 09:30, as its ledger says after so many seconds before.
    fn jobset(seconds_before: i64) -> JobSet {
        let ledger = json!({
            "bucket": "Running", "since": "2026-01-01T09:30:00.500000Z",
            "milliseconds": {"starting": 500, "running": seconds_before * 1000, "restarting": 9_000},
        });
        let jobset = json!({
            "metadata": {"name": "train", "creationTimestamp": "2026-01-01T09:00:00Z"}, "spec": {},
            "status": {"ledger": ledger},
        });
        serde_json::from_value(jobset).unwrap()
    }

    /// At 10:00, a hundredth of the age is 36 s.
    #[rstest]
    #[case::exact(1791, None)]
    #[case::little_too_much(1826, None)]
    #[case::little_too_few(1756, None)]
    #[case::too_much(
        1828,
        Some(
            "the ledger of train adds up to 3637.0 s of 3600.0 s, running 3627.5 s, restarting 9.0 s, starting 0.5 s"
        )
    )]
    #[case::too_few(
        1754,
        Some(
            "the ledger of train adds up to 3563.0 s of 3600.0 s, running 3553.5 s, restarting 9.0 s, starting 0.5 s"
        )
    )]
    fn ledger_off_by_hundredth_of_age_is_violation(#[case] seconds: i64, #[case] expected: Option<&str>) {
        let accounted = AccountedTime::of(&jobset(seconds), "2026-01-01T10:00:00Z".parse().unwrap()).unwrap();
        assert_eq!(accounted.violation().as_deref(), expected);
    }

    #[test]
    fn jobset_without_ledger_is_error() {
        let jobset = JobSet { status: None, ..jobset(0) };
        let error = AccountedTime::of(&jobset, Timestamp::UNIX_EPOCH).unwrap_err();
        assert_eq!(error.to_string(), "the status of train has no ledger");
    }
}
