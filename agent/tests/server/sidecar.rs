//! The sidecar: when its barrier is open, how it ends, and what the API server is asked for.

use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use jobset_harness::wait::{self, Seen};
use rustix::process::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::fixture::{LIMIT, Space, plane, shared};

/// Any port that is free now.
async fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?.local_addr()?.port())
}

/// The status of the probe's answer.
async fn probe(port: u16, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: pod\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.split(' ').nth(1).context("no status")?.to_owned())
}

/// Waits until the barrier says this.
async fn barrier(port: u16, wanted: &str) -> Result<()> {
    wait::until_seen(LIMIT, format!("{wanted} from the barrier"), || async {
        let status = probe(port, "/barrier-is-lifted").await?;
        Ok(if status == wanted { Seen::Yes(()) } else { Seen::NotYet(status) })
    })
    .await
}

#[tokio::test]
async fn one_watch_and_one_patch_for_each_restart_and_the_first_state_is_a_consistent_one() -> Result<()> {
    let space = Space::new("sidecar").await?;
    for epoch in 1..=3 {
        let before = space.requests(shared().await?)?.len();
        let port = free_port().await?;
        let mut agent = space.run(&[], &[("BARRIER_PORT", &port.to_string()), ("EPOCH_FILE", "epoch")])?;
        space.reported(epoch).await?;
        barrier(port, "503").await?;
        assert_eq!(space.written("epoch"), "");
        space.say(epoch, epoch - 1).await?;
        barrier(port, "200").await?;
        assert_eq!(space.written("epoch"), format!("JOBSET_EPOCH='{epoch}'\n"));
        space.say(epoch, epoch).await?;
        assert_eq!(agent.ended().await?, 81);
        // A watch is written down when it has ended.
        let asked = wait::until(LIMIT, "the end of the watch", || async {
            let asked = space.requests(shared().await?)?.split_off(before);
            Ok(asked.iter().any(|request| request.starts_with("watch")).then_some(asked))
        })
        .await?;
        assert_eq!(asked.len(), 2, "{asked:#?}");
        let watch = asked.iter().find(|request| request.starts_with("watch")).context("no watch")?;
        let consistent =
            watch.contains("sendInitialEvents=true") && watch.contains("resourceVersionMatch=NotOlderThan");
        assert!(consistent && watch.ends_with("&resourceVersion="), "{watch}");
        assert!(
            asked.iter().any(|request| request.starts_with("patch /api/v1/namespaces/sidecar/pods/")),
            "{asked:#?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn a_healthy_worker_saves_its_state_before_the_pod_restarts() -> Result<()> {
    let space = Space::new("sidecar-saves").await?;
    let (port, worker) = (free_port().await?, TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?);
    let url = format!("http://localhost:{}/save", worker.local_addr()?.port());
    let mut agent = space.run(&[], &[("BARRIER_PORT", &port.to_string()), ("PRE_RESTART_URL", &url)])?;
    space.lift(1).await?;
    barrier(port, "200").await?;
    space.say(1, 1).await?;
    let (mut stream, _) = tokio::time::timeout(LIMIT, worker.accept()).await??;
    let mut request = Vec::new();
    while !request.ends_with(b"}") {
        assert!(stream.read_buf(&mut request).await? > 0);
    }
    assert!(String::from_utf8_lossy(&request).contains("\"epoch\":1"));
    barrier(port, "200").await?;
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await?;
    assert_eq!(agent.ended().await?, 81);
    Ok(())
}

/// The kubelet ends an agent whose worker fails while it saves its state.
#[tokio::test]
async fn the_next_worker_does_not_find_the_file_of_an_agent_that_was_ended_meanwhile() -> Result<()> {
    let space = Space::new("sidecar-saves-no-more").await?;
    let file = space.folder.path().join("save");
    let port = free_port().await?;
    let env = [("BARRIER_PORT", &*port.to_string()), ("PRE_RESTART_FILE", "save")];
    let mut agent = space.run(&[], &env)?;
    space.lift(1).await?;
    barrier(port, "200").await?;
    space.say(1, 1).await?;
    wait::until(LIMIT, "the file", || async { Ok(file.exists().then_some(())) }).await?;
    agent.signal(Signal::TERM).await?;
    assert_eq!(agent.ended().await?, 0);
    let _agent = space.run(&[], &env)?;
    space.lift(2).await?;
    barrier(port, "200").await?;
    assert!(!file.exists());
    Ok(())
}

#[tokio::test]
async fn it_says_so_when_the_jobset_is_not_the_one_of_its_pod() -> Result<()> {
    let space = Space::new("sidecar-foreign").await?;
    let port = free_port().await?;
    let _agent = space.run(&[], &[("BARRIER_PORT", &port.to_string()), ("JOBSET_UID", "of-another")])?;
    wait::until_seen(LIMIT, "a line about the UID", || async {
        let said = space.written("stderr");
        Ok(if said.contains("waiting for the JobSet with UID of-another") { Seen::Yes(()) } else { Seen::NotYet(said) })
    })
    .await
}

#[tokio::test]
async fn it_ends_at_once_when_it_is_asked_to_and_with_0() -> Result<()> {
    let space = Space::new("sidecar-asked").await?;
    let port = free_port().await?;
    let mut agent = space.run(&[], &[("BARRIER_PORT", &port.to_string())])?;
    space.lift(1).await?;
    barrier(port, "200").await?;
    agent.signal(Signal::TERM).await?;
    assert_eq!(agent.ended().await?, 0);
    Ok(())
}

#[tokio::test]
async fn in_the_words_of_the_go_agent() -> Result<()> {
    let space = Space::new("sidecar-go").await?;
    let port = free_port().await?;
    let env = [
        ("STARTUP_PROBE_PORT", &*port.to_string()),
        ("STARTUP_PROBE_PATH", "/barrier-is-down"),
        ("IN_PLACE_RESTART_EXIT_CODE", "9"),
    ];
    let mut agent = space.run(&[], &env)?;
    space.lift(1).await?;
    wait::until(LIMIT, "the barrier", || async { Ok((probe(port, "/barrier-is-down").await? == "200").then_some(())) })
        .await?;
    space.say(1, 1).await?;
    assert_eq!(agent.ended().await?, 9);
    Ok(())
}

#[tokio::test]
async fn it_lets_the_worker_run_where_the_jobset_does_not_restart_in_place() -> Result<()> {
    let space = Space::of(shared().await?, "sidecar-recreate", "Recreate").await?;
    let port = free_port().await?;
    let _agent = space.run(&[], &[("BARRIER_PORT", &port.to_string())])?;
    barrier(port, "200").await?;
    assert_eq!(space.epoch().await?, None, "it reports nothing");
    Ok(())
}

#[tokio::test]
async fn it_waits_for_its_jobset_and_for_the_api_server() -> Result<()> {
    let plane = plane().await?;
    let space = Space::of(&plane, "sidecar-away", "InPlaceRestart").await?;
    let port = free_port().await?;
    space.remove_jobset().await?;
    let mut agent = space.run(&[], &[("BARRIER_PORT", &port.to_string())])?;
    barrier(port, "503").await?;
    space.create_jobset("InPlaceRestart").await?;
    space.lift(1).await?;
    barrier(port, "200").await?;
    plane.stop_api_server().await?;
    barrier(port, "200").await?;
    plane.start_api_server().await?;
    space.say(1, 1).await?;
    assert_eq!(agent.ended().await?, 81);
    plane.stop().await
}
