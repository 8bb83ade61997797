//! The termination message, which the kubelet shows in the status of the Pod: why the agent could not start, and how its
//! worker ended.

use std::net::{Ipv6Addr, TcpListener};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context as _, Result};
use jobset_harness::wait;
use rstest::rstest;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::fake::{END, FakeApiServer, FakeResponse, LIMIT, STATE};

/// Runs a command with a `/dev` of its own, in which the termination log is a file of the current folder.
const CONTAINER: &str = "mkdir dev; : >termination-log; mount -t tmpfs none dev
    for device in null urandom; do : >dev/$device; mount --bind /dev/$device dev/$device; done
    : >dev/termination-log; mount --bind termination-log dev/termination-log
    mount --rbind dev /dev; exec \"$0\" \"$@\"";

/// The agent in a container of its own.
fn in_container(folder: &Path, arguments: &[&str]) -> Command {
    let mut container = Command::new("unshare");
    container
        .args(["--mount", "--", "sh", "-ec", CONTAINER, env!("CARGO_BIN_EXE_jobset-agent")])
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::null())
        .kill_on_drop(true);
    container
}

fn start(container: &mut Command) -> Result<Child> {
    container.spawn().context("cannot run unshare (Debian: util-linux), as root")
}

fn message(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("termination-log")).unwrap_or_default()
}

/// A port that another program listens on.
const TAKEN: &str = "taken";

#[rstest]
#[case::no_credentials(&["supervise", "--", "true"], &[], "cannot read the Pod's ServiceAccount")]
#[case::port_taken(&[], &[("BARRIER_PORT", TAKEN)], "cannot listen on port")]
#[case::supervisor_port_taken(&["supervise", "--", "true"], &[("BARRIER_PORT", TAKEN)], "cannot listen on port")]
#[case::invalid_variable(&["supervise", "--", "true"], &[("STOP_GRACE_SECONDS", "-1")], "STOP_GRACE_SECONDS is")]
#[case::no_command(&["supervise"], &[], "supervise needs the worker's command")]
#[tokio::test]
async fn agent_that_cannot_start_leaves_its_words_and_awaits_sigterm(
    #[case] arguments: &[&str],
    #[case] environment: &[(&str, &str)],
    #[case] words: &str,
) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0))?;
    let port = listener.local_addr()?.port().to_string();
    let mut container = in_container(folder.path(), arguments);
    container
        .env_clear()
        .envs([("POD_NAME", "a-0"), ("JOBSET_NAME", "a"), ("NAMESPACE", "default")])
        .envs([("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"), ("KUBERNETES_SERVICE_HOST", "127.0.0.1")])
        .envs(environment.iter().map(|(name, value)| (name, if *value == TAKEN { &port } else { *value })));
    let mut agent = start(&mut container)?;
    let message = wait::until(LIMIT, "a termination message", || async {
        Ok(Some(message(folder.path())).filter(|message| !message.is_empty()))
    })
    .await?;
    assert!(message.contains(words), "{message}");
    let pid = agent.id().and_then(|id| Pid::from_raw(id.cast_signed())).context("the agent has ended")?;
    kill_process(pid, Signal::TERM)?;
    assert_eq!(timeout(LIMIT, agent.wait()).await??.code(), Some(143));
    Ok(())
}

#[rstest]
#[case::words("echo step 8; echo no licence >&2; exit 42", 42, "worker exited with code 42: step 8\nno licence")]
#[case::silent("exit 42", 42, "worker exited with code 42")]
#[case::killed("echo out of memory; kill -KILL $$", 137, "worker exited with code 137: out of memory")]
#[case::own_message("echo own >/dev/termination-log; echo other; exit 42", 42, "own\n")]
#[case::success("echo done", 0, "")]
#[case::not_executable("exec /etc/passwd", 126, "worker exited with code 126: ")]
#[tokio::test]
async fn worker_that_ends_for_good_leaves_its_last_words(
    #[case] script: &str,
    #[case] code: i32,
    #[case] expected: &str,
) -> Result<()> {
    let (exit, message) = supervised(&["sh", "-c", script]).await?;
    assert_eq!(exit, Some(code));
    assert!(message == expected || expected.ends_with(": ") && message.starts_with(expected), "{message}");
    Ok(())
}

#[tokio::test]
async fn worker_that_cannot_start_is_named_in_the_termination_message() -> Result<()> {
    let (exit, message) = supervised(&["/no/such/program", "-x"]).await?;
    assert_eq!(exit, Some(127));
    assert!(message.starts_with("cannot start the worker /no/such/program: No such file"), "{message}");
    Ok(())
}

/// Exit code and termination message of a supervisor whose JobSet does not restart in place.
async fn supervised(worker: &[&str]) -> Result<(Option<i32>, String)> {
    let bypassed = STATE.replace("InPlaceRestart", "Recreate");
    let fake = FakeApiServer::start(move |_| FakeResponse::lines(&[&bypassed, END], true)).await?;
    fake.command("{token: secret}", worker)?;
    let mut container = in_container(fake.folder.path(), &[&["supervise", "--"], worker].concat());
    fake.set_environment(&mut container);
    let exit = timeout(LIMIT, start(&mut container)?.wait()).await??;
    Ok((exit.code(), message(fake.folder.path())))
}

#[tokio::test]
async fn message_of_earlier_failed_worker_is_dropped() -> Result<()> {
    let reports = AtomicUsize::new(0);
    let fake = FakeApiServer::start(move |head| {
        if head.starts_with("PATCH") {
            reports.fetch_add(1, Ordering::Relaxed);
            return FakeResponse::lines(&["{}"], false);
        }
        let synced = reports.load(Ordering::Relaxed);
        let status =
            format!(r#""status": {{"syncedEpoch": {synced}, "deprecatedEpoch": {}}}}}}}"#, synced.saturating_sub(1));
        let state = format!("{}, {status}", STATE.trim_end().strip_suffix("}}").unwrap_or_default());
        FakeResponse::lines(&[&state, END], false)
    })
    .await?;
    let script = "[ $JOBSET_EPOCH = 2 ] && { echo no licence; exit 42; }; echo own >/dev/termination-log; exit 7";
    fake.command("{token: secret}", &[])?;
    let mut container = in_container(fake.folder.path(), &["supervise", "--", "sh", "-c", script]);
    fake.set_environment(&mut container);
    container.env("FATAL_EXIT_CODES", "42");
    let exit = timeout(LIMIT, start(&mut container)?.wait()).await??;
    assert_eq!((exit.code(), &*message(fake.folder.path())), (Some(42), "worker exited with code 42: no licence"));
    Ok(())
}
