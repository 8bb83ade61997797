//! How the leader of a Pod is found: by one watch of all leaders, never by a list for a Pod, and within a time limit always.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::atomic::Ordering;
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
use tokio::task::JoinSet;

use crate::cluster::{LIMIT, Plane};
use crate::exclusive::Space;

fn follower(space: &Space, job: &Job) -> Follower {
    let job_key = JobKey::new(space.namespace, &job.uid().unwrap());
    Follower { topology: space.rack(), job: job_key, job_name: job.name_any() }
}

fn nobody() -> Follower {
    Follower { topology: "rack".to_owned(), job: JobKey::new("ns", "u"), job_name: "j".to_owned() }
}

/// Watches leaders until the second value is dropped.
fn watched(lookup: Lookup) -> (Lookup, JoinSet<Infallible>) {
    let (watching, mut watch) = (lookup.clone(), JoinSet::new());
    watch.spawn(async move { watching.watch().await });
    (lookup, watch)
}

async fn all_leaders_are_known(lookup: &Lookup) -> Result<()> {
    wait::until(LIMIT, "all leaders to be known", async || Ok(lookup.in_touch().then_some(()))).await
}

#[tokio::test]
async fn early_follower_is_admitted_when_leader_is_placed() -> Result<()> {
    let (space, job, leader) = Space::with_leader("early").await?;
    space.node("early-1", Some("r1")).await?;
    let (lookup, _watch) = watched(Lookup::new(space.plane.service_client().await?, LONGEST_WAIT));
    let follower = follower(&space, &job);
    all_leaders_are_known(&lookup).await?;
    let mut asked = pin!(lookup.domain(&follower));
    assert!(poll!(&mut asked).is_pending());
    let (domain, bound) = tokio::join!(asked, space.bind(&leader, "early-1"));
    bound?;
    assert_eq!(domain.map_err(|refusal| anyhow::anyhow!("{refusal}"))?, "r1");
    Ok(())
}

#[tokio::test]
async fn unschedulable_leader_keeps_no_follower_waiting() -> Result<()> {
    let (space, job, leader) = Space::with_leader("no-room").await?;
    let (lookup, _watch) = watched(Lookup::new(space.plane.service_client().await?, LONGEST_WAIT));
    let follower = follower(&space, &job);
    let no_room = json!({ "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no room" });
    space.status(&leader, json!({ "conditions": [no_room] })).await?;
    let refusal = wait::until(LIMIT, "a refusal without a wait", async || {
        let mut asked = pin!(lookup.domain(&follower));
        Ok(if let Poll::Ready(answer) = poll!(&mut asked) { Some(answer.unwrap_err()) } else { None })
    })
    .await?;
    assert!(refusal.to_string().ends_with(&format!("Pod {} is pending: no room", leader.name_any())), "{refusal}");
    Ok(())
}

#[tokio::test]
async fn replica_without_leaders_says_so_until_listed() -> Result<()> {
    let space = Space::new("unsynced").await?;
    let job = space.job("train-w-0").await?;
    let lookup = Lookup::new(space.plane.service_client().await?, LONGEST_WAIT);
    let follower = follower(&space, &job);
    let refusal = lookup.domain(&follower).await.unwrap_err().to_string();
    assert!(refusal.ends_with("reading leaders: not all are listed yet"), "{refusal}");
    let leader = space.leader(&job).await?;
    space.node("unsynced-1", Some("r1")).await?;
    space.bind(&leader, "unsynced-1").await?;
    let (lookup, _watch) = watched(lookup);
    wait::until(LIMIT, "the domain", async || Ok(lookup.domain(&follower).await.ok())).await?;
    Ok(())
}

/// Whoever reaches the service can invent Jobs.
#[tokio::test]
async fn jobs_that_nobody_has_cost_no_request() -> Result<()> {
    let space = Space::new("invented").await?;
    let (client, requests) = space.plane.counting_client()?;
    let (lookup, _watch) = watched(Lookup::new(client, Duration::from_millis(50)));
    all_leaders_are_known(&lookup).await?;
    for number in 0..300 {
        let job = JobKey::new("invented", &format!("uid-{number}"));
        let follower = Follower { topology: "rack".to_owned(), job, job_name: format!("job-{number}") };
        let domain = lookup.domain(&follower);
        // A tenth of them waits for its leader.
        let refused =
            if number % 10 == 0 { Some(domain.await) } else { tokio::time::timeout(Duration::ZERO, domain).await.ok() };
        assert!(refused.is_none_or(|it| it.is_err()));
    }
    let made = requests.load(Ordering::Relaxed);
    assert!(made <= 4, "{made} requests: a listing, and the watch that is renewed");
    Ok(())
}

#[tokio::test]
async fn unreadable_leaders_are_named_in_refusal() -> Result<()> {
    let space = Space::new("unread").await?;
    let job = space.job("train-w-0").await?;
    let mut config = space.plane.plane.client_config();
    config.auth_info.impersonate = Some("nobody".to_owned());
    let (lookup, _watch) = watched(Lookup::new(Client::try_from(config)?, Duration::ZERO));
    let follower = follower(&space, &job);
    let refusal = wait::until(LIMIT, "the watch to fail", async || {
        let refusal = lookup.domain(&follower).await.unwrap_err();
        Ok((!refusal.to_string().contains("not all are listed yet")).then_some(refusal))
    })
    .await?;
    let text = refusal.to_string();
    assert!(text.starts_with("cannot find the leader of Job train-w-0, try again: reading leaders: "), "{text}");
    assert!(text.contains("forbidden"), "{text}");
    assert_eq!((refusal.status().code, refusal.status().reason.as_str()), (503, "ServiceUnavailable"));
    Ok(())
}

#[tokio::test]
async fn an_api_server_that_does_not_answer_holds_nobody_up() -> Result<()> {
    let silent = TcpListener::bind("127.0.0.1:0").await?;
    let config = Config::new(format!("http://{}", silent.local_addr()?).parse()?);
    let (lookup, _watch) = watched(Lookup::new(Client::try_from(config)?, LONGEST_WAIT));
    let refusal = tokio::time::timeout(LIMIT, lookup.domain(&nobody())).await?.unwrap_err();
    assert!(matches!(refusal, Refusal::Unread(..)));
    assert!(refusal.to_string().ends_with("not all are listed yet"), "{refusal}");
    Ok(())
}

#[tokio::test]
async fn a_watch_survives_an_api_server_that_restarts() -> Result<()> {
    let space = Space::alone(Plane::start().await?, "failing-lookups").await?;
    let (lookup, _watch) = watched(Lookup::new(space.plane.service_client().await?, LONGEST_WAIT));
    let job = space.job("train-w-0").await?;
    let leader = space.leader(&job).await?;
    space.node("lookup-1", Some("r1")).await?;
    space.plane.plane.restart_api_server().await?;
    wait::until(LIMIT, "the leader to be bound", async || space.bind(&leader, "lookup-1").await.map(Some)).await?;
    let follower = follower(&space, &job);
    wait::until(LIMIT, "the domain", async || Ok(lookup.domain(&follower).await.ok())).await?;
    Ok(())
}
