//! The Go JobSet runs JobSets of every kind on real kubelets, this one takes the Lease, and the Go JobSet comes back: no Job
//! is deleted by it, no Pod restarted, and all goes on.

mod load;
mod manifests;
mod observe;
mod story;

use anyhow::Result;
use manifests::Scale;
use story::Story;

#[tokio::test]
#[ignore = "ten minutes: make takeover"]
async fn go_jobset_swapped_three_times_under_load_touches_nothing() -> Result<()> {
    let mut story = Story::begin(Scale { running: 34, suspended: 114, pending: 46 }, true).await?;
    for _ in 0..3 {
        story.swap_to_ours().await?;
        story.swap_to_go().await?;
    }
    story.end().await
}

#[tokio::test]
#[ignore = "four minutes: make takeover"]
async fn go_jobset_swapped_and_back_touches_nothing() -> Result<()> {
    let mut story = Story::begin(Scale { running: 2, suspended: 2, pending: 2 }, false).await?;
    story.swap_to_ours().await?;
    story.swap_to_go().await?;
    story.end().await
}
