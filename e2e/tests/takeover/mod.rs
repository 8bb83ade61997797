//! The Go JobSet runs JobSets of every kind on real kubelets, this one takes the Lease, and the Go JobSet comes back: no Job
//! is deleted by it, no Pod restarted, and all goes on.

mod load;
mod manifests;
mod observe;
mod story;

use anyhow::Result;
use story::Story;

#[tokio::test]
#[ignore = "ten minutes: make takeover"]
async fn go_jobset_swapped_three_times_under_load_touches_nothing() -> Result<()> {
    let mut story = Story::begin().await?;
    for _ in 0..3 {
        story.swap_to_ours().await?;
        story.swap_to_go().await?;
    }
    story.end().await
}
