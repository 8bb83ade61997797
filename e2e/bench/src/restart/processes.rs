//! Agents that are processes: the shipped program, beside the simulated ones.
//!
//! A sidecar that exits to have its Pod restarted is started again at once, as if its kubelet took no time. A supervisor's worker
//! writes its epoch into a file and reads its standard input until it ends. The benchmark holds the other end of that, so no
//! worker outlives it.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use jobset_harness::wait::{self, Check};
use jobset_protocol::agent::{
    BARRIER_PORT, DEFAULT_EXIT_CODE, EPOCH, EPOCH_FILE, JOBSET_NAME, JOBSET_UID, NAMESPACE as NAMESPACE_VARIABLE,
    POD_NAME, RELAY, RELAY_FOLDER_VARIABLE, SUPERVISE,
};
use tokio::process::Command;
use tokio::task::JoinSet;

use super::case::WatchMode;
use super::jobset::{NAME, NAMESPACE};

/// The worker of a supervisor.
const WORKER: &str = r#"echo "$JOBSET_EPOCH" > "$BENCH_FILE"; exec cat"#;
/// The variable of the worker that names its file.
const FILE: &str = "BENCH_FILE";
/// The first port for barriers. It and those after it are below the ports that the system gives to clients: thousands of
/// connections would take the port of a sidecar that is started again.
const FIRST_PORT: u16 = 20_000;

/// One Pod whose agent is a process.
pub(super) struct ProcessPod {
    pub(super) name: String,
    /// Value of the variable [`RELAY`].
    pub(super) relay: String,
    /// The folder with its token.
    pub(super) folder: PathBuf,
}

/// What all of these agents have in common.
pub(super) struct ProcessSetup<'a> {
    pub(super) program: &'a Path,
    pub(super) kubeconfig: &'a Path,
    /// Folder of their logs.
    pub(super) logs: &'a Path,
    /// UID of the JobSet.
    pub(super) uid: &'a str,
    pub(super) mode: WatchMode,
}

/// The processes. They end when this is dropped.
pub(super) struct AgentProcesses {
    /// The file of each agent with the epoch of its worker.
    files: Vec<PathBuf>,
    /// Each runs one agent, and ends with an error.
    tasks: JoinSet<Result<()>>,
}

impl AgentProcesses {
    /// Starts the agents of these Pods.
    pub(super) fn start(setup: &ProcessSetup<'_>, pods: &[ProcessPod]) -> Result<Self> {
        let (mut files, mut tasks) = (Vec::new(), JoinSet::new());
        let mut ports = FIRST_PORT..;
        for pod in pods {
            let file = pod.folder.join("epoch");
            let log =
                File::create(setup.logs.join(format!("agent-{}.log", pod.name))).context("cannot create a log")?;
            let port = ports.find(|port| TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port)).is_ok());
            let command = command(setup, pod, &file, port.context("no port is free")?);
            tasks.spawn(run(pod.name.clone(), command, log));
            files.push(file);
        }
        Ok(Self { files, tasks })
    }

    /// Waits until the worker of each agent may run in this epoch, and gives when the last one was let go.
    pub(super) async fn all_lifted(&mut self, epoch: i32, limit: Duration) -> Result<Option<SystemTime>> {
        let Self { files, tasks } = self;
        let what = format!("the agents that are processes to lift epoch {epoch}");
        let lifted = wait::until_met(limit, what, || async {
            let others: Vec<_> = files.iter().filter(|file| epoch_in(file) != Some(epoch)).collect();
            Ok(match others.first() {
                None => Check::Met(()),
                Some(first) => Check::Unmet(format!("{} have not, such as that of {}", others.len(), first.display())),
            })
        });
        tokio::select! {
            lifted = lifted => lifted?,
            Some(ended) = tasks.join_next() => ended.context("an agent's task has ended")??,
        }
        let times = files.iter().map(|file| Ok(fs::metadata(file)?.modified()?));
        times.collect::<Result<Vec<_>>>().map(|times| times.into_iter().max())
    }
}

/// The command line of an agent.
fn command(setup: &ProcessSetup<'_>, pod: &ProcessPod, file: &Path, port: u16) -> Command {
    let mut command = Command::new(setup.program);
    command
        .env(NAMESPACE_VARIABLE, NAMESPACE)
        .env(POD_NAME, &pod.name)
        .env(JOBSET_NAME, NAME)
        .env(JOBSET_UID, setup.uid)
        .env(RELAY, &pod.relay)
        .env(RELAY_FOLDER_VARIABLE, &pod.folder)
        .env("KUBECONFIG", setup.kubeconfig)
        // The benchmark may run in a Pod of another cluster.
        .env_remove("KUBERNETES_SERVICE_HOST")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .kill_on_drop(true);
    match setup.mode {
        WatchMode::New => command.env(EPOCH_FILE, file).env(BARRIER_PORT, port.to_string()),
        WatchMode::Kept => command.env(FILE, file).args([SUPERVISE, "--", "sh", "-c", WORKER]),
    };
    command
}

/// Runs an agent, and starts it again when it has its Pod restarted.
async fn run(pod: String, mut command: Command, log: File) -> Result<()> {
    loop {
        let stderr = log.try_clone().context("cannot share a log")?;
        let mut child = command.stderr(stderr).spawn().with_context(|| format!("cannot start the agent of {pod}"))?;
        // Waiting would close it, and a supervisor's worker ends with it.
        let _input = child.stdin.take();
        let status = child.wait().await.with_context(|| format!("cannot wait for the agent of {pod}"))?;
        if status.code() != Some(i32::from(DEFAULT_EXIT_CODE)) {
            bail!("the agent of {pod} has ended ({status}); its log is in the folder of the cluster");
        }
    }
}

/// The epoch in a file, if there is one.
fn epoch_in(file: &Path) -> Option<i32> {
    epoch_of(&fs::read_to_string(file).ok()?)
}

/// The epoch as a sidecar writes it for the kubelet, or as the worker writes it.
fn epoch_of(text: &str) -> Option<i32> {
    let value = text.trim();
    let value = value.strip_prefix(EPOCH).and_then(|value| value.strip_prefix('=')).unwrap_or(value);
    value.trim_matches('\'').parse().ok()
}

/// The clock of this process beside that of the file system.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clocks {
    own: Instant,
    system: SystemTime,
}

impl Clocks {
    /// Both now.
    pub(super) fn read() -> Self {
        Self { own: Instant::now(), system: SystemTime::now() }
    }

    /// When something happened, by the clock of this process. Not before the clocks were read.
    pub(super) fn instant(self, time: SystemTime) -> Instant {
        self.own + time.duration_since(self.system).unwrap_or_default()
    }
}

/// The names of the pods whose agents are simulated, and of those whose agents are processes: the last ones.
pub(super) fn split(pods: &[String], processes: usize) -> (&[String], &[String]) {
    pods.split_at(pods.len().saturating_sub(processes))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::sidecar("JOBSET_EPOCH='12'\n", Some(12))]
    #[case::worker("12\n", Some(12))]
    #[case::restarting("", None)]
    #[case::not_complete("JOBSET_EPOCH='", None)]
    fn epoch_is_read_as_either_writes_it(#[case] text: &str, #[case] epoch: Option<i32>) {
        assert_eq!(epoch_of(text), epoch);
    }

    #[test]
    fn clocks_translate_times() {
        let clocks = Clocks::read();
        let (earlier, later) = (Duration::from_secs(3), Duration::from_millis(250));
        assert_eq!(clocks.instant(clocks.system + later), clocks.own + later);
        assert_eq!(clocks.instant(clocks.system - earlier), clocks.own);
    }

    #[test]
    fn last_pods_are_processes() {
        let pods = ["a", "b", "c"].map(str::to_owned);
        assert_eq!(split(&pods, 1), (&pods[..2], &pods[2..]));
        assert_eq!(split(&pods, 0), (&pods[..], &pods[3..]));
    }

    #[tokio::test]
    async fn agent_that_restarts_is_started_again_and_another_end_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        // Each start adds a line; the third ends otherwise.
        let script = r#"echo >> "$0"; [ $(wc -l < "$0") -lt 3 ] && exit 81; exit 7"#;
        command.args(["-c", script]).arg(folder.path().join("starts"));
        let error = run("pod-1".into(), command, File::create(folder.path().join("log")).unwrap()).await.unwrap_err();
        assert!(error.to_string().contains("pod-1") && error.to_string().contains('7'), "{error}");
        assert_eq!(fs::read_to_string(folder.path().join("starts")).unwrap().lines().count(), 3);
    }
}
