//! Agents that mean harm: each limit is exceeded, and others are served all the same.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use futures::future::{join_all, try_join_all};
use jobset_harness::wait::{self, Check};
use jobset_relay::limits::{UNAUTHENTICATED, UNAUTHENTICATED_OF_ADDRESS};
use jobset_relay::memory::OF_AGENT;
use jobset_stream::AGENT_FRAME;
use jobset_stream::message::{AgentEventKind, FromAgent, Report, ToAgent};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::cluster::{LIMIT, Space};
use crate::peers::{TestAgent, TestController, connect, send_raw};
use crate::program::TestRelay;

fn refused(limit: &str) -> String {
    format!(r#"jobset_relay_refused_connections_total{{limit="{limit}"}}"#)
}

/// Waits until the relay has closed the connection.
async fn closed(stream: &mut (impl tokio::io::AsyncRead + Unpin)) -> Result<()> {
    let read = async { while stream.read(&mut [0; 64]).await.is_ok_and(|read| read > 0) {} };
    timeout(LIMIT, read).await.context("the connection has not ended")
}

/// Connects from another address than the agents, and says nothing.
async fn silent(relay: &TestRelay, address: u8) -> Result<TcpStream> {
    silent_to(relay.agents, address).await
}

async fn silent_to(port: SocketAddr, address: u8) -> Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from(([127, 0, 1, address], 0)))?;
    Ok(socket.connect(port).await?)
}

/// A controller and an agent get in, and these connections end.
async fn agent_is_served_and_all_are_closed(relay: &TestRelay, space: &Space, silent: Vec<TcpStream>) -> Result<()> {
    let mut controller = TestController::dial(relay).await?;
    let _agent = TestAgent::connect(relay, &space.agent_token("a").await?, "train").await?;
    controller.hello().await?;
    for mut stream in silent {
        closed(&mut stream).await?;
    }
    Ok(())
}

#[tokio::test]
async fn silent_connections_of_many_addresses_keep_no_agent_out() -> Result<()> {
    let (relay, space) = (TestRelay::start(&[]).await?, Space::new("attack-silent").await?);
    let mut silent_ones = Vec::new();
    for address in 1..=5 {
        for _ in 0..UNAUTHENTICATED_OF_ADDRESS {
            silent_ones.push(silent(&relay, address).await?);
        }
    }
    agent_is_served_and_all_are_closed(&relay, &space, silent_ones).await?;
    assert!(relay.metric(&refused("unauthenticated")).await? > 0, "the oldest have made room");
    Ok(())
}

#[tokio::test]
async fn endless_handshakes_of_many_addresses_keep_no_controller_out() -> Result<()> {
    let (relay, space) = (TestRelay::start(&[]).await?, Space::new("attack-controllers").await?);
    let mut silent_ones = Vec::new();
    for address in 1..=5 {
        for number in 0..UNAUTHENTICATED_OF_ADDRESS {
            let mut stream = silent_to(relay.controllers, address).await?;
            stream.write_all(if number % 2 == 0 { b"" } else { &[0x16, 3, 1] }).await?;
            silent_ones.push(stream);
        }
    }
    agent_is_served_and_all_are_closed(&relay, &space, silent_ones).await?;
    Ok(())
}

/// More connections than one address can have. Where they filled the port, an agent would wait in its backlog until they are old.
const GREEDY: usize = UNAUTHENTICATED_OF_ADDRESS + 32;

#[tokio::test]
async fn address_that_always_reconnects_keeps_no_agent_waiting() -> Result<()> {
    let (relay, space) = (TestRelay::start(&[]).await?, Space::new("attack-refill").await?);
    let mut controller = TestController::dial(&relay).await?;
    let refill = try_join_all((0..GREEDY).map(|_| async {
        loop {
            let mut connection = silent(&relay, 1).await?;
            closed(&mut connection).await?;
        }
    }));
    let agent = async {
        wait::until_met(LIMIT, "more to be refused than have a place", || async {
            let refused = relay.metric(&refused("unauthenticated")).await?;
            Ok(if refused > UNAUTHENTICATED as u64 { Check::Met(()) } else { Check::Unmet(refused.to_string()) })
        })
        .await?;
        let _agent = TestAgent::connect(&relay, &space.agent_token("a").await?, "train").await?;
        controller.hello().await
    };
    tokio::select! {
        ended = refill => ended.map(|_: Vec<()>| ()),
        answered = agent => answered.map(drop),
    }
}

#[tokio::test]
async fn slow_handshake_hello_or_frame_ends_in_time() -> Result<()> {
    let relay = TestRelay::start(&[]).await?;
    let mut slow = TcpStream::connect(relay.agents).await?;
    slow.write_all(&[0x16, 3, 1]).await?;
    let mut silent = connect(&relay).await?;
    let mut endless = connect(&relay).await?;
    send_raw(&mut endless, &[0, 0, 0x10, 0, b'{']).await?;
    closed(&mut slow).await?;
    closed(&mut silent).await?;
    closed(&mut endless).await?;
    relay.wait_for_metric(&refused("time"), 3).await
}

#[tokio::test]
async fn frame_above_the_limit_ends_the_connection() -> Result<()> {
    let (relay, space) = (TestRelay::start(&[]).await?, Space::new("attack-frame").await?);
    let mut stream = connect(&relay).await?;
    send_raw(&mut stream, &u32::MAX.to_be_bytes()).await?;
    closed(&mut stream).await?;
    let mut agent = TestAgent::connect(&relay, &space.agent_token("a").await?, "train").await?;
    relay.wait_for_metric("jobset_relay_connected_agents", 1).await?;
    let exit = Some("x".repeat(jobset_stream::AGENT_FRAME));
    agent.send(&FromAgent::Report(Report { epoch: 1, exit, started: None, progress: None })).await?;
    agent.ended().await?;
    relay.wait_for_metric(&refused("frame"), 2).await?;
    relay.wait_for_metric("jobset_relay_connected_agents", 0).await
}

#[tokio::test]
async fn frame_that_never_ends_after_the_hello_ends_the_connection() -> Result<()> {
    let (relay, space) = (TestRelay::start(&[]).await?, Space::new("attack-endless").await?);
    let mut stream = connect(&relay).await?;
    let silent = TestAgent::silent(&relay).await?;
    let hello = serde_json::to_vec(&silent.hello(&space.agent_token("a").await?, "train", None))?;
    send_raw(&mut stream, &[&u32::try_from(hello.len())?.to_be_bytes()[..], &hello, &[0, 0, 1, 0]].concat()).await?;
    relay.wait_for_metric("jobset_relay_connected_agents", 1).await?;
    closed(&mut stream).await?;
    relay.wait_for_metric(&refused("frame"), 1).await
}

/// Nothing of the record can be decrypted before its end, so no frame has begun.
#[tokio::test]
async fn half_a_record_after_the_hello_ends_the_connection() -> Result<()> {
    let (relay, space) = (TestRelay::start(&[]).await?, Space::new("attack-record").await?);
    let mut stream = connect(&relay).await?;
    let silent = TestAgent::silent(&relay).await?;
    let hello = serde_json::to_vec(&silent.hello(&space.agent_token("a").await?, "train", None))?;
    send_raw(&mut stream, &[&u32::try_from(hello.len())?.to_be_bytes()[..], &hello].concat()).await?;
    relay.wait_for_metric("jobset_relay_connected_agents", 1).await?;
    let half = [&[23, 3, 3, 0x40, 0][..], &[0; 1 << 13]].concat();
    stream.get_mut().0.write_all(&half).await?;
    closed(&mut stream).await?;
    relay.wait_for_metric(&refused("frame"), 1).await
}

/// Agents that hold as much memory as they can.
#[tokio::test]
async fn half_frames_and_records_hold_no_more_than_counted() -> Result<()> {
    const AGENTS: usize = 200;
    let (relay, space) = (TestRelay::start(&[]).await?, Space::new("attack-memory").await?);
    let (silent, read) = (TestAgent::silent(&relay).await?, r#"jobset_relay_bytes_total{direction="from_agent"}"#);
    let tokens = try_join_all((0..AGENTS).map(|number| space.agent_token_of(number))).await?;
    let (memory, before) = (relay.memory().await?, relay.metric(read).await?);
    let frame = [&u32::try_from(AGENT_FRAME)?.to_be_bytes()[..], &[b' '; AGENT_FRAME - 1]].concat();
    let half_record = [&[23, 3, 3, 0x40, 0][..], &[0; (1 << 14) - 1]].concat();
    let mut connections = Vec::new();
    for token in tokens {
        let mut stream = connect(&relay).await?;
        let hello = serde_json::to_vec(&silent.hello(&token, "train", None))?;
        send_raw(&mut stream, &[&u32::try_from(hello.len())?.to_be_bytes()[..], &hello, &frame].concat()).await?;
        stream.get_mut().0.write_all(&half_record).await?;
        connections.push(stream);
    }
    relay.wait_for_metric("jobset_relay_connected_agents", AGENTS as u64).await?;
    wait::until_met(LIMIT, "all bytes to be read", || async {
        let bytes = relay.metric(read).await? - before;
        let sent = (AGENTS * (frame.len() + half_record.len())) as u64;
        Ok(if bytes > sent { Check::Met(()) } else { Check::Unmet(bytes.to_string()) })
    })
    .await?;
    let each = relay.memory().await?.saturating_sub(memory) / AGENTS as u64;
    assert!((2 * AGENT_FRAME as u64..=OF_AGENT).contains(&each), "{each} bytes each");
    Ok(())
}

/// Its machine is gone, and nobody closes the connection.
#[tokio::test]
async fn controller_that_is_silent_is_forgotten_and_agents_told() -> Result<()> {
    let (relay, space) = (TestRelay::start(&[]).await?, Space::new("attack-mute").await?);
    let _silent = TestController::dial(&relay).await?;
    relay.wait_for_metric("jobset_relay_controllers", 1).await?;
    let mut agent = TestAgent::connect(&relay, &space.agent_token("a").await?, "train").await?;
    assert!(matches!(agent.message().await?, ToAgent::Leader(_)));
    assert!(matches!(agent.message().await?, ToAgent::NoLeader));
    relay.wait_for_metric("jobset_relay_controllers", 0).await
}

#[tokio::test]
async fn pod_that_always_reconnects_is_kept_out_alone() -> Result<()> {
    let (relay, space) = (TestRelay::start(&[]).await?, Space::new("attack-hellos").await?);
    let mut controller = TestController::dial(&relay).await?;
    let token = space.agent_token("a").await?;
    for connection in join_all((0..50).map(|_| TestAgent::connect(&relay, &token, "train"))).await {
        drop(connection?);
    }
    wait::until(LIMIT, "a refused hello", async || Ok((relay.metric(&refused("hellos")).await? > 0).then_some(())))
        .await?;
    let _other = TestAgent::connect(&relay, &space.agent_token("b").await?, "train").await?;
    loop {
        if let AgentEventKind::Hello { pod, .. } = controller.event().await?.event
            && pod.name == "b"
        {
            return Ok(());
        }
    }
}

#[tokio::test]
async fn flood_of_messages_ends_the_connection() -> Result<()> {
    let (relay, space) = (TestRelay::start(&[]).await?, Space::new("attack-flood").await?);
    let mut controller = TestController::dial(&relay).await?;
    let mut agent = TestAgent::connect(&relay, &space.agent_token("a").await?, "train").await?;
    controller.hello().await?;
    let mut sent = 0;
    while sent < 100_000 && agent.report(sent).await.is_ok() {
        sent += 1;
    }
    relay.wait_for_metric(&refused("messages"), 1).await?;
    let mut reports = 0;
    while let AgentEventKind::Report(_) = controller.event().await?.event {
        reports += 1;
    }
    assert!((20..=sent).contains(&reports), "{reports} of {sent}");
    Ok(())
}

#[tokio::test]
async fn long_exit_text_or_second_hello_ends_connection() -> Result<()> {
    let (relay, space) = (TestRelay::start(&[]).await?, Space::new("attack-protocol").await?);
    let token = space.agent_token("a").await?;
    let long =
        Report { epoch: 1, exit: Some("x".repeat(jobset_stream::EXIT_BYTES + 1)), started: None, progress: None };
    let mut agent = TestAgent::silent(&relay).await?;
    agent.send(&agent.hello(&token, "train", Some(long.clone()))).await?;
    agent.ended().await?;
    let mut agent = TestAgent::silent(&relay).await?;
    agent.send(&agent.hello(&token, &"x".repeat(254), None)).await?;
    agent.ended().await?;
    let mut agent = TestAgent::connect(&relay, &token, "train").await?;
    agent.send(&FromAgent::Report(long)).await?;
    agent.ended().await?;
    let mut agent = TestAgent::connect(&relay, &token, "train").await?;
    agent.send(&agent.hello(&token, "train", None)).await?;
    agent.ended().await?;
    relay.wait_for_metric(&refused("protocol"), 4).await
}

#[tokio::test]
async fn connections_of_one_pod_make_room_for_its_newest() -> Result<()> {
    let (relay, space) = (TestRelay::start(&[]).await?, Space::new("attack-pod").await?);
    let mut controller = TestController::dial(&relay).await?;
    let token = space.agent_token("a").await?;
    let mut agents = Vec::new();
    for _ in 0..3 {
        agents.push(TestAgent::connect(&relay, &token, "train").await?);
        while !matches!(controller.event().await?.event, AgentEventKind::Hello { .. }) {}
    }
    agents.remove(0).ended().await?;
    relay.wait_for_metric(&refused("pod"), 1).await?;
    assert_eq!(relay.metric("jobset_relay_connected_agents").await?, 2);
    Ok(())
}

#[tokio::test]
async fn connections_of_one_namespace_and_of_all_are_bounded() -> Result<()> {
    let relay = TestRelay::start(&["--max-connections=2", "--max-connections-per-namespace=1"]).await?;
    let spaces =
        [Space::new("attack-many-a").await?, Space::new("attack-many-b").await?, Space::new("attack-many-c").await?];
    let mut controller = TestController::dial(&relay).await?;
    let first = TestAgent::connect(&relay, &spaces[0].agent_token("a").await?, "train").await?;
    controller.hello().await?;
    TestAgent::connect(&relay, &spaces[0].agent_token("b").await?, "train").await?.ended().await?;
    relay.wait_for_metric(&refused("namespace"), 1).await?;
    let _second = TestAgent::connect(&relay, &spaces[1].agent_token("a").await?, "train").await?;
    controller.hello().await?;
    let token = spaces[2].agent_token("a").await?;
    TestAgent::connect(&relay, &token, "train").await?.ended().await?;
    relay.wait_for_metric(&refused("connections"), 1).await?;
    drop(first);
    assert_eq!(controller.event().await?.event, AgentEventKind::Gone);
    let _third = TestAgent::connect(&relay, &token, "train").await?;
    controller.hello().await?;
    Ok(())
}
