//! Signals that arrive while the agent starts.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::process::Stdio;

use anyhow::{Context as _, Result};
use jobset_harness::wait;
use rstest::rstest;
use rustix::process::{Signal, kill_process};
use tokio::process::Command;
use tokio::time::timeout;

use super::fake::LIMIT;
use super::server::fixture::child_of;

/// The folder of the file with the namespace. The test puts a pipe there, at which the agent waits.
const ACCOUNT: &str = "/run/secrets/kubernetes.io/serviceaccount";
const KUBECONFIG: &str = "{apiVersion: v1, kind: Config, current-context: none,
    contexts: [{name: none, context: {cluster: none, user: none}}],
    clusters: [{name: none, cluster: {server: 'https://127.0.0.1:1'}}], users: [{name: none, user: {}}]}";

#[rstest]
#[case::sidecar(&[], 0)]
#[case::supervisor(&["supervise", "--", "true"], 143)]
#[tokio::test]
async fn sigterm_during_start_ends_the_agent(#[case] arguments: &[&str], #[case] code: i32) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let kubeconfig = folder.path().join("kubeconfig");
    std::fs::write(&kubeconfig, KUBECONFIG)?;
    let script =
        format!("mount -t tmpfs none /run; mkdir -p {ACCOUNT}; mkfifo {ACCOUNT}/namespace; exec \"$0\" \"$@\"");
    let mut container = Command::new("unshare")
        // The agent gets a network of its own, because its port may be in use on the host.
        .args(["--net", "--pid", "--fork", "--kill-child", "--mount-proc", "--"])
        .args(["sh", "-ec", &script, env!("CARGO_BIN_EXE_jobset-agent")])
        .args(arguments)
        .env_clear()
        .envs([("POD_NAME", "a-0"), ("JOBSET_NAME", "a"), ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")])
        .env("KUBECONFIG", &kubeconfig)
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .spawn()
        .context("cannot run unshare (Debian: util-linux), as root")?;
    let agent = wait::until(LIMIT, "the agent to wait for its namespace", || async {
        let Some(pid) = child_of(&container)? else { return Ok(None) };
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()))?;
        Ok(stat.contains("(jobset-agent) S ").then_some(pid))
    })
    .await?;
    kill_process(agent, Signal::TERM)?;
    let pipe = format!("/proc/{}/root{ACCOUNT}/namespace", agent.as_raw_nonzero());
    let mut pipe: File = tokio::task::spawn_blocking(move || OpenOptions::new().write(true).open(pipe)).await??;
    pipe.write_all(b"default")?;
    drop(pipe);
    assert_eq!(timeout(LIMIT, container.wait()).await??.code(), Some(code));
    Ok(())
}
