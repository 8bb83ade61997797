//! The sidecar: when its barrier lifts, how it exits, and its requests to the API server.

use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use jobset_harness::wait::{self, Check};
use rustix::process::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::fixture::{LIMIT, TestNamespace, plane, shared};

/// A port that is free now.
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

/// Waits until the probe of the barrier returns this status.
async fn wait_for_probe(port: u16, expected: &str) -> Result<()> {
    wait::until_met(LIMIT, format!("{expected} from the probe of the barrier"), || async {
        let status = probe(port, "/barrier-is-lifted").await?;
        Ok(if status == expected { Check::Met(()) } else { Check::Unmet(status) })
    })
    .await
}

#[tokio::test]
async fn restart_takes_one_consistent_watch_and_one_patch() -> Result<()> {
    let space = TestNamespace::new("sidecar").await?;
    for epoch in 1..=3 {
        let before = space.requests(shared().await?)?.len();
        let port = free_port().await?;
        let mut agent = space.run(&[], &[("BARRIER_PORT", &port.to_string()), ("EPOCH_FILE", "epoch")])?;
        space.wait_for_report(epoch).await?;
        wait_for_probe(port, "503").await?;
        assert_eq!(space.file("epoch"), "");
        space.set_epochs(epoch, epoch - 1).await?;
        wait_for_probe(port, "200").await?;
        assert_eq!(space.file("epoch"), format!("JOBSET_EPOCH='{epoch}'\n"));
        space.set_epochs(epoch, epoch).await?;
        assert_eq!(agent.exit_code().await?, 81);
        // The audit log shows a watch when it has ended.
        let requests = wait::until(LIMIT, "the end of the watch", || async {
            let requests = space.requests(shared().await?)?.split_off(before);
            Ok(requests.iter().any(|request| request.starts_with("watch")).then_some(requests))
        })
        .await?;
        assert_eq!(requests.len(), 2, "{requests:#?}");
        let watch = requests.iter().find(|request| request.starts_with("watch")).context("no watch")?;
        let consistent =
            watch.contains("sendInitialEvents=true") && watch.contains("resourceVersionMatch=NotOlderThan");
        assert!(consistent && watch.ends_with("&resourceVersion="), "{watch}");
        assert!(
            requests.iter().any(|request| request.starts_with("patch /api/v1/namespaces/sidecar/pods/")),
            "{requests:#?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn save_hook_by_url_runs_before_the_restart() -> Result<()> {
    let space = TestNamespace::new("sidecar-saves").await?;
    let (port, worker) = (free_port().await?, TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?);
    let url = format!("http://localhost:{}/save", worker.local_addr()?.port());
    let mut agent = space.run(&[], &[("BARRIER_PORT", &port.to_string()), ("PRE_RESTART_URL", &url)])?;
    space.lift(1).await?;
    wait_for_probe(port, "200").await?;
    space.set_epochs(1, 1).await?;
    let (mut stream, _) = tokio::time::timeout(LIMIT, worker.accept()).await??;
    let mut request = Vec::new();
    while !request.ends_with(b"}") {
        assert!(stream.read_buf(&mut request).await? > 0);
    }
    assert!(String::from_utf8_lossy(&request).contains("\"epoch\":1"));
    wait_for_probe(port, "200").await?;
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await?;
    assert_eq!(agent.exit_code().await?, 81);
    Ok(())
}

/// The kubelet ends an agent whose worker fails while it saves its state.
#[tokio::test]
async fn save_hook_file_left_is_removed_by_next_agent() -> Result<()> {
    let space = TestNamespace::new("sidecar-saves-no-more").await?;
    let file = space.folder.path().join("save");
    let port = free_port().await?;
    let env = [("BARRIER_PORT", &*port.to_string()), ("PRE_RESTART_FILE", "save")];
    let mut agent = space.run(&[], &env)?;
    space.lift(1).await?;
    wait_for_probe(port, "200").await?;
    space.set_epochs(1, 1).await?;
    wait::until(LIMIT, "the file", || async { Ok(file.exists().then_some(())) }).await?;
    agent.signal(Signal::TERM).await?;
    assert_eq!(agent.exit_code().await?, 0);
    let _agent = space.run(&[], &env)?;
    space.lift(2).await?;
    wait_for_probe(port, "200").await?;
    assert!(!file.exists());
    Ok(())
}

#[tokio::test]
async fn jobset_with_other_uid_is_logged() -> Result<()> {
    let space = TestNamespace::new("sidecar-foreign").await?;
    let port = free_port().await?;
    let _agent = space.run(&[], &[("BARRIER_PORT", &port.to_string()), ("JOBSET_UID", "of-another")])?;
    wait::until_met(LIMIT, "a line about the UID", || async {
        let log = space.file("stderr");
        Ok(if log.contains("waiting for the JobSet with UID of-another") { Check::Met(()) } else { Check::Unmet(log) })
    })
    .await
}

#[tokio::test]
async fn sigterm_exits_with_0() -> Result<()> {
    let space = TestNamespace::new("sidecar-terminated").await?;
    let port = free_port().await?;
    let mut agent = space.run(&[], &[("BARRIER_PORT", &port.to_string())])?;
    space.lift(1).await?;
    wait_for_probe(port, "200").await?;
    agent.signal(Signal::TERM).await?;
    assert_eq!(agent.exit_code().await?, 0);
    Ok(())
}

#[tokio::test]
async fn variables_of_the_go_agent_are_accepted() -> Result<()> {
    let space = TestNamespace::new("sidecar-go").await?;
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
    space.set_epochs(1, 1).await?;
    assert_eq!(agent.exit_code().await?, 9);
    Ok(())
}

#[tokio::test]
async fn jobset_without_in_place_restart_lifts_without_a_report() -> Result<()> {
    let space = TestNamespace::of(shared().await?, "sidecar-recreate", "Recreate").await?;
    let port = free_port().await?;
    let _agent = space.run(&[], &[("BARRIER_PORT", &port.to_string())])?;
    wait_for_probe(port, "200").await?;
    assert_eq!(space.epoch().await?, None, "the agent reports no epoch");
    Ok(())
}

#[tokio::test]
async fn agent_waits_for_its_jobset_and_the_api_server() -> Result<()> {
    let plane = plane().await?;
    let space = TestNamespace::of(&plane, "sidecar-away", "InPlaceRestart").await?;
    let port = free_port().await?;
    space.remove_jobset().await?;
    let mut agent = space.run(&[], &[("BARRIER_PORT", &port.to_string())])?;
    wait_for_probe(port, "503").await?;
    space.create_jobset("InPlaceRestart").await?;
    space.lift(1).await?;
    wait_for_probe(port, "200").await?;
    plane.stop_api_server().await?;
    wait_for_probe(port, "200").await?;
    plane.start_api_server().await?;
    space.set_epochs(1, 1).await?;
    assert_eq!(agent.exit_code().await?, 81);
    plane.stop().await
}
