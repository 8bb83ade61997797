//! Start and end of the program, and what many agents cost.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use futures::{StreamExt as _, TryStreamExt as _};
use rustix::process::Signal;

use crate::cluster::{Space, shared};
use crate::peers::{TestAgent, TestController};
use crate::program::{TestRelay, command};

#[tokio::test]
async fn relay_killed_and_restarted_serves_returning_agents() -> Result<()> {
    let (mut relay, space) = (TestRelay::start(&[]).await?, Space::new("lifecycle-kill").await?);
    let token = space.agent_token("a").await?;
    let mut controller = TestController::dial(&relay).await?;
    let agent = TestAgent::connect(&relay, &token, "train").await?;
    controller.hello().await?;
    relay.signal(Signal::KILL)?;
    relay.ended().await?;
    agent.ended().await?;
    controller.ended().await?;
    relay.restart().await?;
    let mut agent = TestAgent::connect(&relay, &token, "train").await?;
    relay.wait_for_metric("jobset_relay_connected_agents", 1).await?;
    let mut controller = TestController::dial(&relay).await?;
    let (number, pod, _) = controller.hello().await?;
    assert_eq!(pod.name, "a");
    controller.answer(number, &agent.nonce.clone(), 1).await?;
    assert_eq!(agent.statement(&relay).await?.nonce, Some(agent.nonce.clone()));
    Ok(())
}

#[tokio::test]
async fn relay_that_is_terminated_closes_its_connections_and_succeeds() -> Result<()> {
    let (mut relay, space) = (TestRelay::start(&[]).await?, Space::new("lifecycle-term").await?);
    let mut controller = TestController::dial(&relay).await?;
    let mut agents = Vec::new();
    for pod in ["a", "b", "c"] {
        agents.push(TestAgent::connect(&relay, &space.agent_token(pod).await?, "train").await?);
        controller.hello().await?;
    }
    relay.signal(Signal::TERM)?;
    for agent in agents {
        agent.ended().await?;
    }
    assert!(relay.ended().await?.success());
    Ok(())
}

#[tokio::test]
async fn missing_certificate_is_one_line_and_a_failure() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let output = command(shared().await?.kubeconfig(), folder.path(), [0, 0]).output().await?;
    let text = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(1));
    assert!(text.lines().count() == 1 && text.contains("tls.crt") && text.contains("--cert-dir"), "{text}");
    Ok(())
}

/// Measures memory and CPU time of a thousand agents: `RELAY_AGENTS` sets their number, and `RELAY_PROGRAM`
/// names the program of the release build.
#[tokio::test]
#[ignore = "a measurement"]
async fn many_agents() -> Result<()> {
    let number = std::env::var("RELAY_AGENTS").map_or(Ok(1000), |it| it.parse::<usize>())?;
    let (relay, space) = (Arc::new(TestRelay::start(&[]).await?), Space::new("lifecycle-many").await?);
    let tokens: Vec<_> = futures::stream::iter(0..number)
        .map(|pod| space.agent_token_of(pod))
        .buffer_unordered(16)
        .try_collect()
        .await?;
    let mut controller = TestController::dial(&relay).await?;
    let cpu = async || {
        let text = relay.get("/metrics").await?;
        let value = text.lines().find_map(|line| line.strip_prefix("process_cpu_seconds_total "));
        anyhow::Ok(value.unwrap_or("0").parse::<f64>()?)
    };
    let (memory, busy, begin) = (relay.memory().await?, cpu().await?, Instant::now());
    let mut agents: Vec<_> = futures::stream::iter(&tokens)
        .map(|token| TestAgent::connect(&relay, token, "train"))
        .buffer_unordered(64)
        .try_collect()
        .await?;
    relay.wait_for_metric("jobset_relay_connected_agents", number as u64).await?;
    let (connected, connect_cpu) = (begin.elapsed(), cpu().await? - busy);
    controller.broadcast(&space.name, "train", 1).await?;
    let begin = Instant::now();
    for agent in &mut agents {
        agent.statement(&relay).await?;
    }
    let broadcast = begin.elapsed();
    let (grown, count) = (relay.memory().await?.saturating_sub(memory), number as u64);
    println!(
        "{number} agents: {} B resident each; connected in {connected:?} with {:.3} ms of CPU each; broadcast in {broadcast:?}",
        grown / count,
        connect_cpu * 1000.0 / f64::from(u32::try_from(count)?),
    );
    Ok(())
}
