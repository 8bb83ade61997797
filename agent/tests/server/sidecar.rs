//! The sidecar: when its barrier lifts, how it exits, and its requests to the API server.

use std::net::Ipv4Addr;

use anyhow::{Context, Result};
use jobset_harness::wait::{self, Check};
use rustix::process::Signal;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::fixture::{AgentProcess, LIMIT, TestNamespace, plane, shared};

/// An agent, and the port of its probe.
struct Sidecar {
    agent: AgentProcess,
    port: u16,
}

impl Sidecar {
    async fn start(space: &TestNamespace, env: &[(&str, &str)]) -> Result<Self> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?.local_addr()?.port();
        let agent = space.run(&[], &[&[("BARRIER_PORT", &*port.to_string())], env].concat())?;
        Ok(Self { agent, port })
    }

    /// Starts one in epoch 1, whose barrier is lifted.
    async fn lifted(space: &TestNamespace, env: &[(&str, &str)]) -> Result<Self> {
        let sidecar = Self::start(space, env).await?;
        space.lift(1).await?;
        sidecar.wait_for_probe("200").await?;
        Ok(sidecar)
    }

    /// Waits until the probe of the barrier returns this status.
    async fn wait_for_probe(&self, expected: &str) -> Result<()> {
        wait::until_met(LIMIT, format!("{expected} from the probe of the barrier"), || async {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).await?;
            stream.write_all(b"GET /barrier-is-lifted HTTP/1.1\r\nHost: pod\r\n\r\n").await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            let status = answer.split(' ').nth(1).context("no status")?.to_owned();
            Ok(if status == expected { Check::Met(()) } else { Check::Unmet(status) })
        })
        .await
    }
}

#[tokio::test]
async fn restart_takes_one_consistent_watch_and_one_patch() -> Result<()> {
    let space = TestNamespace::new("sidecar").await?;
    for epoch in 1..=3 {
        let before = space.requests(shared().await?)?.len();
        let mut sidecar = Sidecar::start(&space, &[("EPOCH_FILE", "epoch")]).await?;
        space.wait_for_report(epoch).await?;
        sidecar.wait_for_probe("503").await?;
        assert_eq!(space.file("epoch"), "");
        space.set_epochs(epoch, epoch - 1).await?;
        sidecar.wait_for_probe("200").await?;
        assert_eq!(space.file("epoch"), format!("JOBSET_EPOCH='{epoch}'\n"));
        space.set_epochs(epoch, epoch).await?;
        assert_eq!(sidecar.agent.exit_code().await?, 81);
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
    let worker = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let url = format!("http://localhost:{}/save", worker.local_addr()?.port());
    let mut sidecar = Sidecar::lifted(&space, &[("PRE_RESTART_URL", &url)]).await?;
    space.set_epochs(1, 1).await?;
    let (mut stream, _) = tokio::time::timeout(LIMIT, worker.accept()).await??;
    let mut request = Vec::new();
    while !request.ends_with(b"}") {
        assert!(stream.read_buf(&mut request).await? > 0);
    }
    assert!(String::from_utf8_lossy(&request).contains("\"epoch\":1"));
    sidecar.wait_for_probe("200").await?;
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await?;
    assert_eq!(sidecar.agent.exit_code().await?, 81);
    Ok(())
}

/// The kubelet ends an agent whose worker fails while it saves its state.
#[tokio::test]
async fn save_hook_file_left_is_removed_by_next_agent() -> Result<()> {
    let space = TestNamespace::new("sidecar-saves-no-more").await?;
    let file = space.folder.path().join("save");
    let mut sidecar = Sidecar::lifted(&space, &[("PRE_RESTART_FILE", "save")]).await?;
    space.set_epochs(1, 1).await?;
    wait::until(LIMIT, "the file", || async { Ok(file.exists().then_some(())) }).await?;
    sidecar.agent.signal(Signal::TERM).await?;
    assert_eq!(sidecar.agent.exit_code().await?, 0);
    let next = Sidecar::start(&space, &[("PRE_RESTART_FILE", "save")]).await?;
    space.lift(2).await?;
    next.wait_for_probe("200").await?;
    assert!(!file.exists());
    Ok(())
}

#[tokio::test]
async fn jobset_with_other_uid_is_logged() -> Result<()> {
    let space = TestNamespace::new("sidecar-foreign").await?;
    let _sidecar = Sidecar::start(&space, &[("JOBSET_UID", "of-another")]).await?;
    wait::until_met(LIMIT, "a line about the UID", || async {
        let log = space.file("stderr");
        Ok(if log.contains("waiting for the JobSet with UID of-another") { Check::Met(()) } else { Check::Unmet(log) })
    })
    .await
}

/// A failure of a supervised worker during the outage is reported afterwards.
#[tokio::test]
async fn agents_wait_for_jobset_and_outlast_api_server_outage() -> Result<()> {
    let plane = plane().await?;
    let space = TestNamespace::of(&plane, "sidecar-away", "InPlaceRestart").await?;
    space.remove_jobset().await?;
    let mut sidecar = Sidecar::start(&space, &[]).await?;
    sidecar.wait_for_probe("503").await?;
    space.create_jobset("InPlaceRestart").await?;
    space.lift(1).await?;
    sidecar.wait_for_probe("200").await?;
    let supervised = TestNamespace::of(&plane, "away", "InPlaceRestart").await?;
    let script = "trap 'exit 1' USR1; echo $JOBSET_EPOCH >>log; while :; do sleep 0.1; done";
    let supervisor = supervised.supervise(script, &[])?;
    supervised.lift(1).await?;
    supervised.wait_for_file("log", "1\n").await?;

    plane.stop_api_server().await?;
    sidecar.wait_for_probe("200").await?;
    supervisor.signal(Signal::USR1).await?;
    plane.start_api_server().await?;
    space.set_epochs(1, 1).await?;
    assert_eq!(sidecar.agent.exit_code().await?, 81);
    supervised.lift(2).await?;
    supervised.wait_for_file("log", "1\n2\n").await?;
    drop(supervisor);
    plane.stop().await
}
