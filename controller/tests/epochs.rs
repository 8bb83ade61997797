//! KEP-467, "Integration tests": what the controller writes when agents report.

use anyhow::Result;
use futures::Stream;
use jobset_api::JobSet;

use crate::fixture::{Space, in_place, next};
use crate::outcome;

fn epochs(jobset: &JobSet) -> (i32, i32, i32, i32) {
    outcome::epochs(&jobset.status.clone().unwrap_or_default())
}

/// The epochs of the next state that is written.
async fn next_epochs(history: &mut (impl Stream<Item = Result<JobSet>> + Unpin)) -> Result<(i32, i32, i32, i32)> {
    Ok(epochs(&next(history).await?))
}

#[tokio::test]
async fn the_four_cases_of_the_seed_and_no_write_more() -> Result<()> {
    let space = Space::new("four-cases").await?;
    space.create(in_place("train", 3, 5)).await?;
    let pods = space.pods("train", 3, "0").await?;
    let [a, b, c] = &pods[..] else { unreachable!() };

    // Two have reported: nothing to lift yet. Then the third: all just became in sync.
    space.report(a, "1").await?;
    space.report(b, "1").await?;
    let mut history = space.history("train").await?;
    assert_eq!(next_epochs(&mut history).await?, (0, 0, 0, 0));
    space.report(c, "1").await?;
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
    space.report(b, "1").await?;
    space.report(a, "2").await?;
    assert_eq!(next_epochs(&mut history).await?, (1, 1, 1, 1), "one restarted: deprecatedEpoch");

    // A second one follows, but not all: no write. Then all: the very next write lifts.
    space.report(b, "2").await?;
    space.report(c, "2").await?;
    assert_eq!(next_epochs(&mut history).await?, (2, 1, 1, 1), "all are in the new epoch");
    Ok(())
}
