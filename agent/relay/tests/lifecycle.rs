//! Start and end of the program.

use anyhow::Result;
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
