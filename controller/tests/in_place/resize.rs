//! A change of size restarts the group uncounted, and never hides a failure.

use anyhow::Result;
use jobset_api::conditions;
use kube::ResourceExt;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::expect::uids;
use crate::fixture::{Fixture, Space};
use crate::program::Program;
use crate::refused::allow_jobs;
use crate::workload::restarting;

/// A JobSet of one Job whose workers are supervised: a worker that fails leaves no trace but its agent's report.
fn supervised(pods: usize) -> Value {
    let mut jobset = restarting("train", pods, 3);
    let pod = &mut jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"];
    pod["initContainers"] = Value::Null;
    pod["containers"][0]["command"] = json!(["/jobset-agent", "supervise", "--", "train"]);
    pod["containers"][0]["restartPolicyRules"] =
        json!([{"action": "Restart", "exitCodes": {"operator": "NotIn", "values": [0]}}]);
    jobset
}

/// The edit that gives the supervised JobSet another number of Pods.
fn supervised_of_size(pods: usize) -> Value {
    json!({"spec": {"replicatedJobs": supervised(pods)["spec"]["replicatedJobs"]}})
}

#[tokio::test]
async fn growth_pending_member_failure_counts_newcomers_follow_uncounted() -> Result<()> {
    let space = Space::new("growth-pending").await?;
    let members = space.start_in_place(supervised(4), 4).await?;
    space.edit("train", supervised_of_size(6)).await?;
    // The newcomers have no node, and report nothing.
    let grown = space.pods("train", 6, "0").await?;
    let newcomers: Vec<_> = grown.iter().filter(|pod| !uids(&members).contains(&pod.uid())).collect();
    for (epoch, restarts) in [(2, 1), (3, 2)] {
        space.restart(&members[1..2], epoch).await?;
        space.in_epoch("train", (epoch - 1, epoch - 1, restarts, restarts)).await?;
        space.restart(&members, epoch).await?;
        space.lift("train", &members, epoch).await?;
    }
    space.report(newcomers[0], "4").await?;
    space.settle().await?;
    space.in_epoch("train", (3, 2, 2, 2)).await?;
    space.report(newcomers[1], "4").await?;
    space.in_epoch("train", (3, 3, 2, 2)).await?;
    space.restart(&members, 4).await?;
    let status = space.in_epoch("train", (4, 3, 2, 2)).await?;
    assert_eq!(status.free_epoch, 0, "{status:?}");
    assert_eq!(status.replicated_jobs_status[0].synced_pods.as_deref(), Some("0-5"));
    Ok(())
}

#[tokio::test]
async fn growth_pending_deleted_member_is_replaced_and_counted() -> Result<()> {
    let space = Space::new("growth-pending-deleted").await?;
    let members = space.start_in_place(supervised(3), 3).await?;
    space.edit("train", supervised_of_size(4)).await?;
    space.pods("train", 4, "0").await?;
    space.lose(&members[0]).await?;
    let successor = space.successor("train", &members[0]).await?;
    space.report(&successor, "2").await?;
    space.in_epoch("train", (1, 1, 1, 1)).await?;
    let left = [successor, members[1].clone(), members[2].clone()];
    space.lift("train", &left, 2).await?;
    space.in_epoch("train", (2, 1, 1, 1)).await?;
    Ok(())
}

#[tokio::test]
async fn growth_over_quota_member_failure_counts_job_follows_uncounted() -> Result<()> {
    let space = Space::new("growth-refused").await?;
    let members = space.start_in_place(supervised(2), 2).await?;
    allow_jobs(&space, 1).await?;
    let mut larger = supervised_of_size(2);
    larger["spec"]["replicatedJobs"][0]["replicas"] = json!(2);
    space.edit("train", larger).await?;
    space.condition("train", conditions::CHILD_REFUSED, "True").await?;
    space.report(&members[0], "2").await?;
    space.in_epoch("train", (1, 1, 1, 1)).await?;
    space.lift("train", &members, 2).await?;
    allow_jobs(&space, 2).await?;
    let grown = space.pods("train", 4, "0").await?;
    for pod in grown.iter().filter(|pod| !uids(&members).contains(&pod.uid())) {
        space.report(pod, "3").await?;
    }
    space.in_epoch("train", (2, 2, 1, 1)).await?;
    space.lift("train", &members, 3).await?;
    space.in_epoch("train", (3, 2, 1, 1)).await?;
    Ok(())
}

#[tokio::test]
async fn growth_pending_another_leader_tells_members_from_newcomers() -> Result<()> {
    let mut fixture = Fixture::start().await?;
    let members = fixture.start_in_place(supervised(2), 2).await?;
    fixture.edit("train", supervised_of_size(4)).await?;
    let grown = fixture.pods("train", 4, "0").await?;
    let newcomers: Vec<_> = grown.iter().filter(|pod| !uids(&members).contains(&pod.uid())).cloned().collect();
    // One newcomer waits at the barrier, and the next leader sees a member there, too.
    fixture.report(&newcomers[0], "2").await?;
    fixture.settle().await?;
    fixture.controller.signal(Signal::KILL)?;
    fixture.controller.ended().await?;
    fixture.report(&members[0], "2").await?;
    fixture.controller = Program::start(&fixture.plane, "second", &[])?;
    fixture.in_epoch("train", (1, 1, 1, 1)).await?;
    // The newcomer begins the next epoch with the members, and is one of them.
    fixture.report(&members[1], "2").await?;
    fixture.in_epoch("train", (2, 1, 1, 1)).await?;
    fixture.controller.signal(Signal::KILL)?;
    fixture.controller.ended().await?;
    fixture.report(&newcomers[0], "3").await?;
    fixture.controller = Program::start(&fixture.plane, "third", &[])?;
    fixture.in_epoch("train", (2, 2, 2, 2)).await?;
    fixture.plane.stop().await
}

#[tokio::test]
async fn shrink_after_pending_growth_restarts_those_who_stay_uncounted() -> Result<()> {
    let space = Space::new("shrink-after-growth").await?;
    space.start_in_place(supervised(3), 3).await?;
    space.edit("train", supervised_of_size(4)).await?;
    space.pods("train", 4, "0").await?;
    space.edit("train", supervised_of_size(2)).await?;
    let left = space.pods("train", 2, "0").await?;
    space.in_epoch("train", (1, 1, 0, 0)).await?;
    space.lift("train", &left, 2).await?;
    let status = space.in_epoch("train", (2, 1, 0, 0)).await?;
    assert_eq!(status.free_epoch, 0, "nothing is announced once the group runs");
    // The next failure is counted.
    space.report(&left[0], "3").await?;
    space.in_epoch("train", (2, 2, 1, 1)).await?;
    Ok(())
}
