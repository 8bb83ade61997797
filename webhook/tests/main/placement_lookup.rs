//! How the leader of a Pod is found: by a watch, by a list where there is none yet, and within a time limit always.

use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use anyhow::Result;
use futures::poll;
use jobset_harness::wait;
use jobset_webhook::pod::leaders::JobKey;
use jobset_webhook::pod::lookup::{LONGEST_WAIT, Lookup};
use jobset_webhook::pod::placement::Follower;
use jobset_webhook::pod::refusal::Refusal;
use k8s_openapi::api::batch::v1::Job;
use kube::{Client, Config, ResourceExt as _};
use serde_json::json;
use tokio::net::TcpListener;

use crate::cluster::LIMIT;
use crate::exclusive::Space;

fn follower(space: &Space, job: &Job) -> Follower {
    let job_key = JobKey::new(space.namespace, &job.uid().unwrap());
    Follower { topology: space.rack(), job: job_key, job_name: job.name_any() }
}

fn nobody() -> Follower {
    Follower { topology: "rack".to_owned(), job: JobKey::new("ns", "u"), job_name: "j".to_owned() }
}

#[tokio::test]
async fn a_follower_that_came_too_early_is_admitted_when_its_leader_is_placed() -> Result<()> {
    let space = Space::new("early").await?;
    let job = space.job("train-w-0").await?;
    let leader = space.leader(&job).await?;
    space.node("early-1", Some("r1")).await?;
    let lookup = Lookup::new(space.plane.service_client().await?, LONGEST_WAIT);
    let (watching, follower) = (lookup.clone(), follower(&space, &job));
    let watch = tokio::spawn(async move { watching.watch().await });
    wait::until(LIMIT, "all leaders to be known", async || Ok(lookup.in_touch().then_some(()))).await?;
    let mut asked = pin!(lookup.domain(&follower));
    assert!(poll!(&mut asked).is_pending());
    let (domain, bound) = tokio::join!(asked, space.bind(&leader, "early-1"));
    bound?;
    assert_eq!(domain.map_err(|refusal| anyhow::anyhow!("{refusal}"))?, "r1");
    watch.abort();
    Ok(())
}

#[tokio::test]
async fn nobody_waits_for_a_leader_that_the_scheduler_has_no_room_for() -> Result<()> {
    let space = Space::new("no-room").await?;
    let job = space.job("train-w-0").await?;
    let leader = space.leader(&job).await?;
    let lookup = Lookup::new(space.plane.service_client().await?, LONGEST_WAIT);
    let (watching, follower) = (lookup.clone(), follower(&space, &job));
    let watch = tokio::spawn(async move { watching.watch().await });
    let no_room = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room" });
    space.status(&leader, json!({ "conditions": [no_room] })).await?;
    let refusal = wait::until(LIMIT, "a refusal without a wait", async || {
        let mut asked = pin!(lookup.domain(&follower));
        Ok(if let Poll::Ready(answer) = poll!(&mut asked) { Some(answer.unwrap_err()) } else { None })
    })
    .await?;
    assert!(refusal.to_string().ends_with(&format!("Pod {} is pending: no room", leader.name_any())), "{refusal}");
    watch.abort();
    Ok(())
}

#[tokio::test]
async fn a_replica_that_has_not_seen_the_leaders_yet_asks_for_those_of_the_job() -> Result<()> {
    let space = Space::new("unsynced").await?;
    let job = space.job("train-w-0").await?;
    // Its watch never begins.
    let lookup = Lookup::new(space.plane.service_client().await?, Duration::ZERO);
    let follower = follower(&space, &job);
    let refusal = lookup.domain(&follower).await.unwrap_err().to_string();
    assert!(refusal.ends_with("there is no such Pod yet"), "{refusal}");
    let leader = space.leader(&job).await?;
    space.node("unsynced-1", Some("r1")).await?;
    space.bind(&leader, "unsynced-1").await?;
    assert_eq!(lookup.domain(&follower).await.unwrap(), "r1");
    Ok(())
}

#[tokio::test]
async fn a_watch_that_has_gone_silent_refuses_nobody() -> Result<()> {
    let space = Space::new("silent").await?;
    let job = space.job("train-w-0").await?;
    let lookup = Lookup::new(space.plane.service_client().await?, Duration::ZERO);
    let watching = lookup.clone();
    let watch = tokio::spawn(async move { watching.watch().await });
    wait::until(LIMIT, "all leaders to be known", async || Ok(lookup.in_touch().then_some(()))).await?;
    watch.abort();
    assert!(watch.await.unwrap_err().is_cancelled());
    let leader = space.leader(&job).await?;
    space.node("silent-1", Some("r1")).await?;
    space.bind(&leader, "silent-1").await?;
    assert_eq!(lookup.domain(&follower(&space, &job)).await.unwrap(), "r1");
    Ok(())
}

#[tokio::test]
async fn without_permission_or_api_server_the_refusal_says_what_could_not_be_read() -> Result<()> {
    let space = Space::new("unread").await?;
    let job = space.job("train-w-0").await?;
    let mut config = space.plane.plane.client_config();
    config.auth_info.impersonate = Some("nobody".to_owned());
    let lookup = Lookup::new(Client::try_from(config)?, Duration::ZERO);
    let refusal = lookup.domain(&follower(&space, &job)).await.unwrap_err();
    let text = refusal.to_string();
    assert!(text.starts_with("cannot find the leader of Job train-w-0, try again: reading leaders in"), "{text}");
    assert!(text.contains("forbidden"), "{text}");
    assert_eq!((refusal.status().code, refusal.status().reason.as_str()), (503, "ServiceUnavailable"));
    Ok(())
}

#[tokio::test]
async fn an_api_server_that_does_not_answer_holds_nobody_up() -> Result<()> {
    let silent = TcpListener::bind("127.0.0.1:0").await?;
    let config = Config::new(format!("http://{}", silent.local_addr()?).parse()?);
    let lookup = Lookup::new(Client::try_from(config)?, Duration::ZERO);
    let follower = nobody();
    let refusal = tokio::time::timeout(LIMIT, lookup.domain(&follower)).await?.unwrap_err();
    assert!(matches!(refusal, Refusal::Unread(..)));
    assert!(refusal.to_string().ends_with("no answer in 1s"), "{refusal}");
    Ok(())
}

#[tokio::test]
async fn a_watch_survives_an_api_server_that_restarts() -> Result<()> {
    let plane = Box::leak(Box::new(crate::cluster::Plane::start().await?));
    let space = Space { plane, client: plane.client(), namespace: "weather" };
    space.create_namespace().await?;
    let lookup = Lookup::new(plane.service_client().await?, LONGEST_WAIT);
    let watching = lookup.clone();
    let watch = tokio::spawn(async move { watching.watch().await });
    let job = space.job("train-w-0").await?;
    let leader = space.leader(&job).await?;
    space.node("weather-1", Some("r1")).await?;
    plane.plane.restart_api_server().await?;
    wait::until(LIMIT, "the leader to be bound", async || space.bind(&leader, "weather-1").await.map(Some)).await?;
    let follower = follower(&space, &job);
    wait::until(LIMIT, "the domain", async || Ok(lookup.domain(&follower).await.ok())).await?;
    watch.abort();
    Ok(())
}
