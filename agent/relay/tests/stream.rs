//! Messages between agents and controllers.

use anyhow::Result;
use jobset_stream::message::{AgentEvent, AgentEventKind, FromAgent, Report};

use crate::cluster::Space;
use crate::peers::{TestAgent, TestController};
use crate::program::TestRelay;

#[tokio::test]
async fn hello_reaches_the_controller_and_the_answer_that_agent_alone() -> Result<()> {
    let (relay, space) = (TestRelay::start(&[]).await?, Space::new("stream-answer").await?);
    let mut controller = TestController::dial(&relay).await?;
    let pods = [space.pod("one").await?, space.pod("two").await?];
    let mut agents = Vec::new();
    for pod in &pods {
        let token = space.token(&["jobset-relay"], Some(pod)).await?;
        let agent = TestAgent::connect(&relay, &token, "train").await?;
        let event = controller.event().await?;
        let AgentEventKind::Hello { pod: told, jobset, nonce, report } = event.event else { panic!("{event:?}") };
        assert_eq!((Some(told.name), Some(told.uid)), (pod.metadata.name.clone(), pod.metadata.uid.clone()));
        assert_eq!((told.namespace, jobset, report), (space.name.clone(), "train".to_owned(), None));
        assert_eq!(nonce, agent.nonce);
        agents.push((event.agent, agent));
    }
    let [(one, mut first), (_, mut second)] = <[_; 2]>::try_from(agents).ok().unwrap();
    controller.answer(one, &first.nonce, 7).await?;
    let answer = first.statement(&relay).await?;
    assert_eq!((answer.nonce, answer.group.map(|it| it.synced)), (Some(first.nonce.clone()), Some(7)));
    controller.beat().await?;
    let beat = second.statement(&relay).await?;
    assert_eq!((beat.nonce, beat.group), (None, None), "the answer of another agent has not come before");
    Ok(())
}

#[tokio::test]
async fn broadcast_reaches_its_group_alone() -> Result<()> {
    let (relay, space) = (TestRelay::start(&[]).await?, Space::new("stream-group").await?);
    let other = Space::new("stream-group-other").await?;
    let mut controller = TestController::dial(&relay).await?;
    let mut agents = Vec::new();
    for (space, pod, jobset) in
        [(&space, "a", "train"), (&space, "b", "train"), (&space, "c", "eval"), (&other, "d", "train")]
    {
        agents.push(TestAgent::connect(&relay, &space.agent_token(pod).await?, jobset).await?);
        controller.hello().await?;
    }
    controller.broadcast(&space.name, "train", 3).await?;
    for agent in &mut agents[..2] {
        assert_eq!(agent.statement(&relay).await?.group.unwrap().synced, 3);
    }
    controller.beat().await?;
    for agent in &mut agents[2..] {
        assert_eq!(agent.statement(&relay).await?.group, None);
    }
    Ok(())
}

#[tokio::test]
async fn second_controller_gets_a_snapshot_and_both_get_what_follows() -> Result<()> {
    let (relay, space) = (TestRelay::start(&[]).await?, Space::new("stream-snapshot").await?);
    let mut old = TestController::dial(&relay).await?;
    let mut agent = TestAgent::connect(&relay, &space.agent_token("a").await?, "train").await?;
    let (number, ..) = old.hello().await?;
    agent.report(1).await?;
    let exit = Some("137".to_owned());
    agent.send(&FromAgent::Report(Report { epoch: 2, exit: exit.clone(), started: None, progress: None })).await?;
    for epoch in [1, 2] {
        assert!(matches!(old.event().await?.event, AgentEventKind::Report(report) if report.epoch == epoch));
    }
    let mut new = TestController::dial(&relay).await?;
    let (told, pod, report) = new.hello().await?;
    assert_eq!(
        (told, pod.name.as_str(), report),
        (number, "a", Some(Report { epoch: 2, exit, started: None, progress: None }))
    );
    agent.report(3).await?;
    for controller in [&mut old, &mut new] {
        let report = AgentEventKind::Report(Report { epoch: 3, exit: None, started: None, progress: None });
        assert_eq!(controller.event().await?, AgentEvent { agent: number, event: report });
    }
    new.broadcast(&space.name, "train", 3).await?;
    assert_eq!(agent.statement(&relay).await?.group.unwrap().synced, 3);
    // A leader that was stopped speaks again: the agent gets its certificates first, and decides.
    old.broadcast(&space.name, "train", 1).await?;
    assert_eq!(agent.statement(&relay).await?.group.unwrap().synced, 1);
    drop(agent);
    for controller in [&mut old, &mut new] {
        assert_eq!(controller.event().await?, AgentEvent { agent: number, event: AgentEventKind::Gone });
    }
    Ok(())
}

#[tokio::test]
async fn agent_that_does_not_read_ends_and_delays_nobody() -> Result<()> {
    let (relay, space) = (TestRelay::start(&[]).await?, Space::new("stream-slow").await?);
    let mut controller = TestController::dial(&relay).await?;
    let slow = TestAgent::connect(&relay, &space.agent_token("slow").await?, "train").await?;
    let (number, ..) = controller.hello().await?;
    let mut other = TestAgent::connect(&relay, &space.agent_token("other").await?, "train").await?;
    controller.hello().await?;
    let long: jobset_stream::message::Nonce = serde_json::from_value("x".repeat(12 << 10).into())?;
    let mut answers = 0;
    while relay.metric(r#"jobset_relay_refused_connections_total{limit="queue"}"#).await? == 0 {
        for _ in 0..100 {
            controller.answer(number, &long, 1).await?;
        }
        answers += 100;
        controller.broadcast(&space.name, "train", answers).await?;
        assert_eq!(other.statement(&relay).await?.group.unwrap().synced, answers);
        assert!(answers < 20_000, "the connection has not ended");
    }
    assert_eq!(controller.event().await?, AgentEvent { agent: number, event: AgentEventKind::Gone });
    slow.ended().await
}
