//! What a worker tells of its progress, and what its agent reports of it.

use std::time::Duration;

use anyhow::{Context, Result};
use jobset_api::ProgressReport;
use jobset_harness::wait::{self, Check};

use super::fixture::{LIMIT, TestNamespace, plane};

const FILE: (&str, &str) = ("JOBSET_PROGRESS_FILE", "progress");
const AFTER: (&str, &str) = ("JOBSET_STALL_AFTER", "5s");
/// Makes twenty steps.
const STEPS: &str = "i=0; while [ $i -lt 20 ]; do i=$((i + 1)); echo $i >progress; sleep 0.1; done;";

async fn wait_for(space: &TestNamespace, what: &str, is: impl Fn(&ProgressReport) -> bool) -> Result<ProgressReport> {
    wait::until_met(LIMIT, format!("{what} in {}", space.namespace), || async {
        let report = space.progress().await?;
        Ok(match report {
            Some(report) if is(&report) => Check::Met(report),
            report => Check::Unmet(format!("{report:?}")),
        })
    })
    .await
}

#[tokio::test]
async fn worker_that_stops_is_reported_with_evidence() -> Result<()> {
    let space = TestNamespace::new("stopped-worker").await?;
    let _agent = space.supervise(&format!("{STEPS} kill -STOP $$"), &[FILE, AFTER])?;
    space.lift(1).await?;
    let report = wait_for(&space, "a stall", |report| report.stall.is_some()).await?;
    assert_eq!((report.epoch, report.step), (1, Some(20)));
    let process = report.stall.context("no stall")?.evidence.processes.into_iter().next().context("no process")?;
    assert_eq!((&*process.name, &*process.state, process.cpu_milliseconds), ("sh", "T", 0));
    Ok(())
}

#[tokio::test]
async fn worker_that_goes_on_takes_its_stall_back() -> Result<()> {
    let space = TestNamespace::new("resumed-worker").await?;
    let command = ("JOBSET_STALL_COMMAND", "echo seen by $WORKER_PID in $JOBSET_EPOCH");
    let script = format!("mkfifo gate; {STEPS} cat gate; echo 'step=21 phase=eval' >progress; exec sleep 1000");
    let _agent = space.supervise(&script, &[FILE, AFTER, command])?;
    space.lift(1).await?;
    let stalled = wait_for(&space, "a stall", |report| report.stall.is_some()).await?;
    let evidence = stalled.stall.context("no stall")?.evidence;
    assert!(evidence.output.starts_with("seen by ") && evidence.output.ends_with("in 1\n"), "{evidence:?}");
    assert!(evidence.processes.iter().any(|process| process.name == "cat"), "{evidence:?}");
    std::fs::write(space.folder.path().join("gate"), "")?;
    let resumed = wait_for(&space, "no stall", |report| report.stall.is_none()).await?;
    assert_eq!(resumed.step, Some(21));
    assert!(resumed.pause_seconds >= Some(5), "{resumed:?}");
    Ok(())
}

#[tokio::test]
async fn healthy_steps_cost_one_request_and_come_with_end() -> Result<()> {
    let plane = plane().await?;
    let space = TestNamespace::of(&plane, "healthy-worker", "InPlaceRestart").await?;
    let _agent = space.supervise(&format!("{STEPS} exit 3"), &[FILE, AFTER])?;
    space.lift(1).await?;
    space.wait_for_report(2).await?;
    let report = space.progress().await?.context("no progress is reported")?;
    assert_eq!((report.epoch, report.step, report.stall), (1, Some(20), None));
    // The epoch, that there is progress, and the next epoch.
    let requests = space.requests(&plane)?;
    assert_eq!(requests.iter().filter(|request| request.starts_with("patch")).count(), 3, "{requests:#?}");
    Ok(())
}

#[tokio::test]
async fn steps_in_the_output_are_reported() -> Result<()> {
    let space = TestNamespace::new("steps-in-output").await?;
    let script = "for i in 1 2 3; do echo iteration $i; sleep 1; done; exit 3";
    let _agent = space.supervise(script, &[("JOBSET_PROGRESS_PATTERN", "iteration ([0-9]+)"), AFTER])?;
    space.lift(1).await?;
    space.wait_for_report(2).await?;
    let report = space.progress().await?.context("no progress is reported")?;
    assert_eq!((report.epoch, report.step), (1, Some(3)));
    Ok(())
}

#[tokio::test]
async fn sidecar_reports_what_the_worker_before_told() -> Result<()> {
    let space = TestNamespace::new("left-by-worker").await?;
    std::fs::write(space.folder.path().join("progress"), "step=1200 checkpoint=1000")?;
    let _agent = space.run(&[], &[FILE, AFTER, ("BARRIER_PORT", "18099")])?;
    space.wait_for_report(1).await?;
    let report = space.progress().await?.context("no progress is reported")?;
    assert_eq!((report.epoch, report.step, report.checkpoint), (0, Some(1200), Some(1000)));
    Ok(())
}

/// The worker of epoch 2 was let start after the last word of an earlier one, and has told of nothing.
#[tokio::test]
async fn sidecar_reports_no_step_of_worker_before_the_last() -> Result<()> {
    let space = TestNamespace::new("left-by-earlier-worker").await?;
    let [progress, epoch] = ["progress", "epoch"].map(|name| space.folder.path().join(name));
    std::fs::write(&progress, "step=1200 checkpoint=1000")?;
    std::fs::write(&epoch, "JOBSET_EPOCH='2'\n")?;
    let written = std::fs::metadata(&progress)?.modified()?;
    std::fs::File::options().append(true).open(&epoch)?.set_modified(written + Duration::from_secs(1))?;
    let _agent = space.run(&[], &[FILE, AFTER, ("EPOCH_FILE", "epoch"), ("BARRIER_PORT", "18100")])?;
    space.wait_for_report(1).await?;
    let report = space.progress().await?.context("no progress is reported")?;
    assert_eq!((report.epoch, report.step, report.checkpoint), (2, None, None));
    assert_eq!(std::fs::read_to_string(&epoch)?, "");
    Ok(())
}
