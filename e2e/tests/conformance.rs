//! The Go JobSet's own suites against the programs of this project: all of the one for admission, ten cases of the one for
//! the controller. `make conformance` runs the rest.

use anyhow::Result;
use jobset_e2e::conformance::{Subject, Suite, judge};

use crate::seat::take_seat;

/// Ten of the controller's cases, by a part of their name: one for each kind of behaviour that clients observe.
const CONTROLLER: [&str; 10] = [
    "jobset should succeed after all jobs succeed",
    "jobset fails after reaching max restarts",
    "jobset does not fail immediately with FailJobSet failure policy action as the failure message is not matched.",
    "jobset restarts with RestartJob failure policy action",
    "resume a suspended jobset",
    "jobset replicatedJobsStatuses should create and update",
    "startupPolicy with InOrder; resume suspended JobSet",
    "active jobs are deleted after jobset fails",
    "DependsOn: rjob-b depends on ready status of rjob-a",
    "A JobSet is managed by another controller Should not create any jobs for it, while suspended",
];

#[tokio::test]
async fn webhook_suite_passes() -> Result<()> {
    assert_passes(Suite::Webhook, &[]).await
}

#[tokio::test]
async fn controller_suite_ten_cases_pass() -> Result<()> {
    assert_passes(Suite::Controller, &CONTROLLER).await
}

async fn assert_passes(suite: Suite, cases: &[&str]) -> Result<()> {
    take_seat().await?;
    let score = judge(Subject::Ours, suite, cases).await?;
    assert!(score.failures().is_empty(), "{:#?}", score.failures());
    assert!(score.total() >= cases.len().max(1), "{} cases ran", score.total());
    Ok(())
}
