//! The stories of KEP-262 and KEP-467: their manifests, as admission leaves them, lead to what the stories tell.

use anyhow::{Context, Result};
use jobset_api::conditions;
use jobset_harness::paths;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};

use crate::fixture::Space;
use crate::kubelet::pod_of;
use crate::workload::admitted;

const BACKOFF: &str = "BackoffLimitExceeded";

/// The manifest of a story, with another name, and as it would be stored.
fn story(manifest: &str) -> Result<Value> {
    let path = paths::workspace().join(format!("e2e/manifests/seeds/{manifest}.yaml"));
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let mut jobset: Value = serde_yaml_ng::from_str(&text)?;
    jobset["metadata"]["name"] = json!("story");
    Ok(admitted(jobset)?)
}

fn first<'a>(pods: &'a [Pod], job: &str) -> Result<&'a Pod> {
    pod_of(pods, job, "0").with_context(|| format!("no Pod of {job}"))
}

/// Story 1: maintenance (exit code 143) restarts the JobSet, a bug (any other) fails it at once.
#[tokio::test]
async fn kep_262_story_1_bug_fails_jobset_without_restart() -> Result<()> {
    let space = Space::new("story-1").await?;
    space.create(story("001-story-1")?).await?;
    space.fail(&space.pods("story", 1, "0").await?[0], 143).await?;
    space.restarted("story", (1, 1, 1)).await?;
    space.fail(&space.pods("story", 1, "1").await?[0], 1).await?;
    let (end, status) = space.ended("story").await?;
    assert_eq!(end.reason, conditions::FAIL_JOB_SET_ACTION);
    assert!(end.message.starts_with("Job story-buggy-job-0 failed (PodFailurePolicy: "), "{}", end.message);
    assert!(end.message.contains("failed with exit code 1 matching FailJob rule at index 0"), "{}", end.message);
    assert_eq!((status.restarts, status.restarts_count_towards_max), (1, 1));
    Ok(())
}

/// Story 2: when any worker fails, all restart together, and not for ever.
#[tokio::test]
async fn kep_262_story_2_failed_worker_restarts_all_finitely() -> Result<()> {
    let space = Space::new("story-2").await?;
    let mut jobset = story("001-story-2")?;
    jobset["spec"]["failurePolicy"]["maxRestarts"] = json!(2);
    space.create(jobset).await?;
    for attempt in ["0", "1"] {
        let pods = space.pods("story", 4, attempt).await?;
        space.fail(&pods[2], 1).await?;
    }
    let pods = space.pods("story", 4, "2").await?;
    space.fail(&pods[0], 1).await?;
    let (end, status) = space.ended("story").await?;
    assert_eq!(end.reason, conditions::REACHED_MAX_RESTARTS);
    assert_eq!((status.restarts, status.restarts_count_towards_max), (2, 2));
    Ok(())
}

/// Story 3: maintenance (exit code 143) restarts any number of times, anything else a limited number of times.
#[tokio::test]
async fn kep_262_story_3_maintenance_is_uncounted_bug_counts() -> Result<()> {
    let space = Space::new("story-3").await?;
    let mut jobset = story("001-story-3")?;
    jobset["spec"]["failurePolicy"]["maxRestarts"] = json!(1);
    space.create(jobset).await?;
    for (attempt, exit_code, wanted) in [("0", 143, (1, 0, 1)), ("1", 143, (2, 0, 2)), ("2", 1, (3, 1, 3))] {
        space.fail(&space.pods("story", 1, attempt).await?[0], exit_code).await?;
        space.restarted("story", wanted).await?;
    }
    space.fail(&space.pods("story", 1, "3").await?[0], 143).await?;
    space.restarted("story", (4, 1, 4)).await?;
    Ok(())
}

/// Story 4: failed workers restart the JobSet any number of times, a failed parameter server up to 3 times.
#[tokio::test]
async fn kep_262_story_4_each_replicated_job_has_own_policy() -> Result<()> {
    let space = Space::new("story-4").await?;
    let mut jobset = story("001-story-4")?;
    // Two Pods stand for the 3000.
    let workers = &mut jobset["spec"]["replicatedJobs"][0]["template"]["spec"];
    (workers["parallelism"], workers["completions"]) = (json!(2), json!(2));
    space.create(jobset).await?;
    let mut wanted = (0, 0, 0);
    for counts in [false, true, false, true, false, true, false] {
        space.pods("story", 11, &wanted.0.to_string()).await?;
        let job = if counts { "story-parameter-server-0" } else { "story-workers-3" };
        space.fail_job(job, BACKOFF).await?;
        wanted = (wanted.0 + 1, wanted.1 + i32::from(counts), wanted.2 + 1);
        space.restarted("story", wanted).await?;
    }
    space.pods("story", 11, "7").await?;
    space.fail_job("story-parameter-server-0", BACKOFF).await?;
    let (end, status) = space.ended("story").await?;
    assert_eq!((&*end.reason, status.restarts), (conditions::REACHED_MAX_RESTARTS, 7));
    Ok(())
}

/// Story 5: a failed Job is recreated alone.
#[tokio::test]
async fn kep_262_story_5_failed_job_is_recreated_alone() -> Result<()> {
    let space = Space::new("story-5").await?;
    space.create(story("002-story-5")?).await?;
    let pods = space.pods("story", 2, "0").await?;
    let [kept, failed] = ["story-recoverable-workers-0", "story-recoverable-workers-1"];
    let job = space.job(failed).await?;
    space.fail(first(&pods, failed)?, 1).await?;
    space.job_after(&job).await?;
    let pods = space.pods("story", 2, "0").await?;
    space.run(first(&pods, failed)?).await?;
    let status = space
        .status_once("story", "to run again", |status| {
            status.replicated_job("recoverable-workers").is_some_and(|it| it.ready == 1 && it.active == 2)
        })
        .await?;
    assert_eq!((status.restarts, status.restarts_count_towards_max), (0, 0));
    assert_eq!(status.replicated_jobs_status[0].job_restarts, [0, 1]);
    assert!(pods.iter().any(|pod| pod.labels()["batch.kubernetes.io/job-name"] == kept));
    Ok(())
}

/// RestartReplicatedJob: a failed worker restarts the workers and not the driver, a failed driver restarts all.
#[tokio::test]
async fn kep_262_workers_restart_without_driver_not_reverse() -> Result<()> {
    let space = Space::new("story-replicated-job").await?;
    space.create(story("001-restart-replicated-job")?).await?;
    space.pods("story", 9, "0").await?;
    let driver = space.job("story-driver-0").await?;
    let workers = [space.job("story-gpu-workers-0").await?, space.job("story-gpu-workers-3").await?];
    space.fail_job("story-gpu-workers-3", BACKOFF).await?;
    for before in &workers {
        space.job_after(before).await?;
    }
    assert_eq!(space.job("story-driver-0").await?.uid(), driver.uid());
    space.restarted("story", (0, 0, 0)).await?;
    space.pods("story", 9, "0").await?;
    space.fail_job("story-driver-0", BACKOFF).await?;
    space.restarted("story", (1, 1, 1)).await?;
    space.pods("story", 9, "1").await?;
    Ok(())
}

/// Exit code 3 restarts the simulation, by a reason of the user's own (`setConditionReason`); any other leaves it failed.
#[tokio::test]
async fn kep_262_simulations_repeat_or_fail_by_exit_code() -> Result<()> {
    let space = Space::new("story-exit-code").await?;
    space.create(story("001-exit-code")?).await?;
    let pods = space.pods("story", 10, "0").await?;
    let [bad_luck, bad_start] = ["story-simulations-4", "story-simulations-7"];
    let (repeated, left) = (space.job(bad_luck).await?, space.job(bad_start).await?);
    space.fail(first(&pods, bad_start)?, 2).await?;
    space.fail(first(&pods, bad_luck)?, 3).await?;
    let job = space.job_after(&repeated).await?;
    assert_eq!(job.labels()["jobset.sigs.k8s.io/job-restart-attempt"], "1");
    space.note("RestartJobFailurePolicyAction", "Job story-simulations-4 failed (ExitCode3: ").await?;
    let status = space
        .status_once("story", "with one left failed", |status| {
            status.replicated_job("simulations").is_some_and(|it| (it.failed, it.active) == (1, 9))
        })
        .await?;
    assert_eq!((status.restarts, &*status.terminal_state), (0, ""));
    assert_eq!(space.job(bad_start).await?.uid(), left.uid());
    Ok(())
}

/// Story 1 of KEP-467: a failed worker restarts all of them, in place.
#[tokio::test]
async fn kep_467_story_1_group_restarts_in_place_finitely() -> Result<()> {
    let space = Space::new("story-in-place").await?;
    let mut jobset = story("003-story-1")?;
    jobset["spec"]["failurePolicy"]["maxRestarts"] = json!(1);
    space.create(jobset).await?;
    let pods = space.pods("story", 4, "0").await?;
    space.lift("story", &pods, 1).await?;
    space.in_epoch("story", (1, 0, 0, 0)).await?;

    // The worker exits, its Pod is restarted in place, and its agent reports; so do the others, as they are told.
    space.crash(&pods[1], 1).await?;
    space.in_epoch("story", (1, 1, 1, 1)).await?;
    space.restart(&pods, 2).await?;
    space.lift("story", &pods, 2).await?;
    space.in_epoch("story", (2, 1, 1, 1)).await?;
    let again = space.pods("story", 4, "0").await?;
    assert!(pods.iter().zip(&again).all(|(before, after)| before.uid() == after.uid()), "the Pods are the same");

    space.crash(&pods[3], 1).await?;
    let (end, status) = space.ended("story").await?;
    assert_eq!((&*end.reason, status.restarts), (conditions::REACHED_MAX_RESTARTS, 0));
    Ok(())
}

/// Story 2 of KEP-467: exit code Z (43) replaces the Pod, Y (42) fails the JobSet, any other restarts in place.
#[tokio::test]
async fn kep_467_story_2_exit_code_decides_what_restarts() -> Result<()> {
    let space = Space::new("story-in-place-policy").await?;
    space.create(story("003-story-2")?).await?;
    let pods = space.pods("story", 2, "0").await?;
    let [a, b] = &pods[..] else { unreachable!() };
    space.lift("story", &pods, 1).await?;
    space.crash(a, 1).await?;
    space.in_epoch("story", (1, 1, 1, 1)).await?;
    space.restart(&pods, 2).await?;
    space.lift("story", &pods, 2).await?;

    space.fail(b, 43).await?;
    space.in_epoch("story", (2, 2, 2, 2)).await?;
    let c = space.successor("story", b).await?;
    let pods = [a.clone(), c];
    space.restart(&pods[..1], 3).await?;
    space.lift("story", &pods, 3).await?;

    space.fail(&pods[1], 42).await?;
    let (end, status) = space.ended("story").await?;
    assert_eq!(end.reason, conditions::FAIL_JOB_SET_ACTION);
    assert!(end.message.contains("failed with exit code 42 matching FailJob rule"), "{}", end.message);
    assert_eq!((status.restarts, status.group_restarts), (0, 2));
    Ok(())
}
