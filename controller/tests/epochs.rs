//! Seed 003, "Integration tests": what the controller writes when agents report.

use anyhow::{Context, Result};
use futures::Stream;
use jobset_api::{JobSet, conditions};

use crate::fixture::{Fixture, in_place, next};

/// `(syncedEpoch, deprecatedEpoch, restartsCountTowardsMax, groupRestarts)`.
fn epochs(jobset: &JobSet) -> (i32, i32, i32, i32) {
    let status = jobset.status.clone().unwrap_or_default();
    (status.synced_epoch, status.deprecated_epoch, status.restarts_count_towards_max, status.group_restarts)
}

/// The epochs of the next state that is written.
async fn next_epochs(history: &mut (impl Stream<Item = Result<JobSet>> + Unpin)) -> Result<(i32, i32, i32, i32)> {
    Ok(epochs(&next(history).await?))
}

#[tokio::test]
async fn the_four_cases_of_the_seed_and_no_write_more() -> Result<()> {
    let fixture = Fixture::start().await?;
    fixture.create(in_place("train", 3, 5)).await?;
    let pods = fixture.pods("train", 3, "0").await?;
    let [a, b, c] = &pods[..] else { unreachable!() };

    // Two have reported: nothing to lift yet. Then the third: all just became in sync.
    fixture.report(a, "1").await?;
    fixture.report(b, "1").await?;
    let mut history = fixture.history("train").await?;
    assert_eq!(next_epochs(&mut history).await?, (0, 0, 0, 0));
    fixture.report(c, "1").await?;
    // The counts of Jobs may still settle; the first write with an epoch is the lift.
    let lifted = loop {
        let seen = next_epochs(&mut history).await?;
        if seen != (0, 0, 0, 0) {
            break seen;
        }
    };
    assert_eq!(lifted, (1, 0, 0, 0), "all Pods just became in sync: syncedEpoch");

    // All Pods in sync, and one of them reports the same once more: no write. One restarted into a new epoch: the very
    // next write deprecates the old one, and counts.
    fixture.report(b, "1").await?;
    fixture.report(a, "2").await?;
    assert_eq!(next_epochs(&mut history).await?, (1, 1, 1, 1), "one restarted: deprecatedEpoch");

    // A second one follows, but not all: no write. Then all: the very next write lifts.
    fixture.report(b, "2").await?;
    fixture.report(c, "2").await?;
    assert_eq!(next_epochs(&mut history).await?, (2, 1, 1, 1), "all are in the new epoch");
    fixture.plane.stop().await
}

#[tokio::test]
async fn one_restart_more_than_the_maximum_fails_the_jobset_and_deletes_its_jobs() -> Result<()> {
    let fixture = Fixture::start().await?;
    fixture.create(in_place("train", 2, 1)).await?;
    let pods = fixture.pods("train", 2, "0").await?;
    let mut history = fixture.history("train").await?;
    for (reports, wanted) in [(["1", "1"], (1, 0, 0, 0)), (["2", "2"], (2, 1, 1, 1))] {
        fixture.report(&pods[0], reports[0]).await?;
        fixture.report(&pods[1], reports[1]).await?;
        while next_epochs(&mut history).await? != wanted {}
    }
    // No report, and one that is out of range: both count as none.
    fixture.report(&pods[0], "many").await?;
    fixture.report(&pods[1], "0").await?;
    fixture.report(&pods[0], "3").await?;
    let failed = loop {
        let jobset = next(&mut history).await?;
        if jobset.status.as_ref().is_some_and(|status| !status.terminal_state.is_empty()) {
            break jobset;
        }
    };
    assert_eq!(epochs(&failed), (2, 1, 1, 1), "the epochs stay, no worker starts again");
    let status = failed.status.context("no status")?;
    assert_eq!(status.terminal_state, "Failed");
    let condition = conditions::terminal(&status.conditions).context("no final condition")?;
    assert_eq!(condition.reason, conditions::REACHED_MAX_RESTARTS);
    assert!(condition.message.contains("maxRestarts 1"), "{}", condition.message);
    fixture.pods("train", 0, "0").await?;
    fixture.plane.stop().await
}
