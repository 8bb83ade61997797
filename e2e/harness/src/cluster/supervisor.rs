//! The first process of a cluster's own namespaces: it starts, stops and reaps what its owner asks for.
//!
//! It decides nothing. Its standard input is a pipe held by the owner: when the pipe is closed, this process exits, and the
//! kernel ends every process, mount and network device of the namespaces with it.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use procfs::process::all_processes;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::Command;
use tokio::sync::{Mutex, watch};

/// How often orphans that ended are looked for.
const REAP_PERIOD: Duration = Duration::from_secs(1);

/// A process that the supervisor keeps under a name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ProcessDefinition {
    pub(super) name: String,
    pub(super) program: PathBuf,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<(String, String)>,
    /// Standard output and error are appended to this file.
    pub(super) log: PathBuf,
}

/// A request to the supervisor; one line of JSON for each connection.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Starts a process; its definition is kept for [`Request::Restart`].
    Start(ProcessDefinition),
    /// Sends SIGTERM, then SIGKILL after the grace; done when the process is gone.
    Stop { name: String, grace: Duration },
    /// Starts a stopped process again.
    Restart { name: String },
    /// The processes that are not running although nobody stopped them.
    Ended,
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Response {
    Done,
    /// Name and exit of each process that ended without a request.
    Ended(BTreeMap<String, String>),
    Failed(String),
}

pub(super) async fn ask(socket: &Path, request: &Request) -> Result<Response> {
    let mut stream = UnixStream::connect(socket)
        .await
        .with_context(|| format!("the cluster's supervisor does not answer at {}", socket.display()))?;
    let mut line = serde_json::to_string(request)?;
    line.push('\n');
    stream.write_all(line.as_bytes()).await.context("cannot ask the supervisor")?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).await.context("cannot read the supervisor's answer")?;
    match serde_json::from_str(&answer).context("the supervisor ended while it was asked")? {
        Response::Failed(error) => bail!(error),
        response => Ok(response),
    }
}

struct Child {
    definition: ProcessDefinition,
    pid: Option<Pid>,
    exit: watch::Receiver<Option<ExitStatus>>,
    /// Whether a request stops the process: its end is then expected.
    stopping: bool,
}

type Children = Arc<Mutex<BTreeMap<String, Child>>>;

/// Serves requests on `socket` until standard input ends.
pub async fn supervise(socket: &Path) -> Result<()> {
    let listener = UnixListener::bind(socket).with_context(|| format!("cannot listen on {}", socket.display()))?;
    let children = Children::default();
    let serving = Arc::clone(&children);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(serve(stream, Arc::clone(&serving)));
        }
    });
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(REAP_PERIOD).await;
            reap_orphans(&*children.lock().await);
        }
    });
    // An error means the same as the end: the owner is gone.
    let _ = tokio::io::copy(&mut tokio::io::stdin(), &mut tokio::io::sink()).await;
    Ok(())
}

async fn serve(stream: UnixStream, children: Children) {
    let mut stream = BufReader::new(stream);
    let mut line = String::new();
    if stream.read_line(&mut line).await.is_err() {
        return;
    }
    let answer = match serde_json::from_str(&line) {
        Ok(request) => answer(request, &children).await.unwrap_or_else(|error| Response::Failed(format!("{error:#}"))),
        Err(error) => Response::Failed(format!("not a request: {error}")),
    };
    if let Ok(mut text) = serde_json::to_string(&answer) {
        text.push('\n');
        // Who asked may be gone; there is nobody left to tell.
        let _ = stream.write_all(text.as_bytes()).await;
    }
}

async fn answer(request: Request, children: &Children) -> Result<Response> {
    match request {
        Request::Start(definition) => start(definition, children).await.map(|()| Response::Done),
        Request::Stop { name, grace } => stop(&name, grace, children).await.map(|()| Response::Done),
        Request::Restart { name } => {
            let definition = match children.lock().await.get(&name) {
                Some(child) if child.exit.borrow().is_none() => bail!("{name} is running"),
                Some(child) => child.definition.clone(),
                None => bail!("no process is called {name}"),
            };
            start(definition, children).await.map(|()| Response::Done)
        }
        Request::Ended => {
            let children = children.lock().await;
            let ended = children.iter().filter(|(_, child)| !child.stopping).filter_map(|(name, child)| {
                let status = (*child.exit.borrow())?;
                Some((name.clone(), status.to_string()))
            });
            Ok(Response::Ended(ended.collect()))
        }
    }
}

async fn start(definition: ProcessDefinition, children: &Children) -> Result<()> {
    let name = definition.name.clone();
    let log = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&definition.log)
        .with_context(|| format!("cannot open {}", definition.log.display()))?;
    // Held over the start: a child not yet entered would look like an orphan.
    let mut children = children.lock().await;
    let mut process = Command::new(&definition.program)
        .args(&definition.args)
        .envs(definition.env.iter().cloned())
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("cannot start {name} ({})", definition.program.display()))?;
    let pid = process.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    let (ended, exit) = watch::channel(None);
    tokio::spawn(async move {
        let status = process.wait().await.unwrap_or_else(|_| ExitStatus::from_raw(0));
        ended.send_replace(Some(status));
    });
    children.insert(name, Child { definition, pid, exit, stopping: false });
    Ok(())
}

/// How long a process may take to end that was killed: its memory is given back first, on a machine that may be busy.
const KILLED: Duration = Duration::from_secs(30);

async fn stop(name: &str, grace: Duration, children: &Children) -> Result<()> {
    let (pid, mut exit) = {
        let mut children = children.lock().await;
        let child = children.get_mut(name).with_context(|| format!("no process is called {name}"))?;
        child.stopping = true;
        (child.pid, child.exit.clone())
    };
    for (signal, limit) in [(Signal::TERM, grace), (Signal::KILL, grace.max(KILLED))] {
        if let (Some(pid), None) = (pid, *exit.borrow()) {
            // It may have ended just now.
            let _ = kill_process(pid, signal);
        }
        if tokio::time::timeout(limit, exit.wait_for(Option::is_some)).await.is_ok() {
            return Ok(());
        }
    }
    bail!("{name} did not end within {:.0} s of SIGKILL", grace.max(KILLED).as_secs_f64())
}

/// Reaps ended processes whose parent died before them (container shims): the first process of a namespace inherits
/// them. Its own children are left to who waits for them.
fn reap_orphans(children: &BTreeMap<String, Child>) {
    let Ok(processes) = all_processes() else { return };
    for process in processes.flatten() {
        let Some(pid) = Pid::from_raw(process.pid()) else { continue };
        let is_orphan = process.stat().is_ok_and(|stat| stat.state == 'Z' && stat.ppid == 1);
        if is_orphan && !children.values().any(|child| child.pid == Some(pid)) {
            // Nobody waits for how a shim ended.
            let _ = waitpid(Some(pid), WaitOptions::NOHANG);
        }
    }
}
