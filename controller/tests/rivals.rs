//! Two controllers that work at once, without a Lease: what each writes is refused where the other was faster. Nobody
//! shall run them so; but for a moment, a leader that lost its Lease and its successor may.

use anyhow::{Context, Result};
use serde_json::json;

use crate::fixture::{Fixture, in_place, next};
use crate::jobsets::{group, jobset, with};
use crate::outcome::{epochs, restarts};
use crate::program::Program;

async fn two() -> Result<(Fixture, Program)> {
    let fixture = Fixture::start_with(&["--leader-elect=false"]).await?;
    let rival = Program::start(&fixture.plane, "rival", &["--leader-elect=false"])?;
    // Both have everything listed.
    for program in [&fixture.controller, &rival] {
        jobset_harness::wait::until(crate::fixture::LIMIT, "a controller to be ready", || async {
            Ok(program.get("health checks", "/readyz").await?.starts_with("HTTP/1.0 200").then_some(()))
        })
        .await?;
    }
    Ok((fixture, rival))
}

/// Restarts after which both controllers must have written something, or tried to.
const MOST_RESTARTS: i32 = 60;

/// Whether both have written something, or tried to. Neither may have failed.
async fn both_worked(fixture: &Fixture, rival: &Program) -> Result<bool> {
    let mut worked = true;
    for program in [&fixture.controller, rival] {
        let metrics = program.get("metrics", "/metrics").await?;
        let mut requests = metrics.lines().filter(|line| line.starts_with("jobset_api_requests_total"));
        worked &= requests.any(|line| ["create", "update", "delete"].iter().any(|verb| line.contains(verb)));
        let log = program.log()?;
        assert!(!log.contains("ERROR"), "{log}");
    }
    Ok(worked)
}

#[tokio::test]
async fn two_controllers_create_once_and_count_once() -> Result<()> {
    let (fixture, rival) = two().await?;
    let policy = json!({"spec": {"failurePolicy": {"maxRestarts": MOST_RESTARTS}}});
    fixture.create(with(jobset("train", &[group("w", 4, 1)]), &policy)).await?;
    let mut history = fixture.history("train").await?;
    let mut count = 0;
    while count < 3 || !both_worked(&fixture, &rival).await? {
        fixture.pods("train", 4, &count.to_string()).await?;
        assert!(count < MOST_RESTARTS, "one of the controllers has written nothing");
        fixture.fail_job("train-w-2", "BackoffLimitExceeded").await?;
        count += 1;
    }
    fixture.pods("train", 4, &count.to_string()).await?;
    fixture.settle().await?;
    let mut seen = (0, 0, 0);
    while seen != (count, count, count) {
        let status = next(&mut history).await?.status.unwrap_or_default();
        let now = restarts(&status);
        assert!(now == seen || now == (seen.0 + 1, seen.1 + 1, seen.2 + 1), "{now:?} after {seen:?}");
        seen = now;
    }
    // Pods of an attempt that is over would still be there, or those of a Job that was created twice.
    let names = ["train-w-0", "train-w-1", "train-w-2", "train-w-3"];
    for job in fixture.jobs_of("train", &names).await? {
        assert_eq!(job.status.context("no status")?.active, Some(1));
    }
    assert_eq!(restarts(&fixture.status("train").await?), (count, count, count));
    fixture.plane.stop().await
}

#[tokio::test]
async fn two_controllers_at_once_count_each_restart_in_place_once() -> Result<()> {
    let (fixture, rival) = two().await?;
    fixture.create(in_place("train", 4, MOST_RESTARTS)).await?;
    let pods = fixture.pods("train", 4, "0").await?;
    let mut history = fixture.history("train").await?;
    for pod in &pods {
        fixture.report(pod, "1").await?;
    }
    while epochs(&next(&mut history).await?.status.unwrap_or_default()) != (1, 0, 0, 0) {}
    let mut count = 0;
    while count < 3 || !both_worked(&fixture, &rival).await? {
        assert!(count < MOST_RESTARTS, "one of the controllers has written nothing");
        count += 1;
        for pod in &pods {
            fixture.report(pod, &(count + 1).to_string()).await?;
        }
        let lifted = (count + 1, count, count, count);
        loop {
            let seen = epochs(&next(&mut history).await?.status.unwrap_or_default());
            assert!(seen <= lifted && seen.3 <= count && seen.2 == seen.3, "{seen:?} is more than {lifted:?}");
            if seen == lifted {
                break;
            }
        }
    }
    fixture.settle().await?;
    assert_eq!(epochs(&fixture.status("train").await?), (count + 1, count, count, count));
    fixture.plane.stop().await
}
