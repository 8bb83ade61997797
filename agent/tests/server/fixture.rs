//! A control plane with a JobSet and a Pod, and the agent's program as the first process of a container. There is no kubelet
//! and no controller: the test writes the status of the JobSet.

use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use jobset_api::{JobSet, ProgressReport};
use jobset_harness::wait::{self, Check};
use jobset_harness::{ControlPlane, install};
use jobset_objects::WorkerExit;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};
use tokio::sync::OnceCell;

/// Time limit of a test for one change, on a machine that runs all tests at once.
pub(crate) const LIMIT: Duration = Duration::from_mins(1);
/// Name of the JobSet and of the Pod in each namespace.
const NAME: &str = "train";
/// The user agent, as the audit log shows it.
const USER_AGENT: &str = concat!("jobset-agent/", env!("CARGO_PKG_VERSION"));
const AGENT: &str = env!("CARGO_BIN_EXE_jobset-agent");

/// The shared control plane; `Err` for all tests if it did not start.
static SHARED: OnceCell<Result<ControlPlane, String>> = OnceCell::const_new();

pub(crate) async fn shared() -> Result<&'static ControlPlane> {
    let start = || async { plane().await.map_err(|error| format!("{error:#}")) };
    let plane = SHARED.get_or_init(start).await.as_ref();
    plane.map_err(|error| anyhow!("the shared control plane did not start: {error}"))
}

/// A control plane of the test's own, with the CRD.
pub(crate) async fn plane() -> Result<ControlPlane> {
    let plane = ControlPlane::builder().audit_log().control_plane().await?;
    install::crd(&plane).await?;
    Ok(plane)
}

pub(crate) struct TestNamespace {
    pub(crate) namespace: String,
    kubeconfig: PathBuf,
    jobsets: Api<JobSet>,
    pods: Api<Pod>,
    /// The folder of the test, which is the current folder of the agent.
    pub(crate) folder: TempDir,
}

impl TestNamespace {
    /// A namespace of the shared control plane whose JobSet restarts in place.
    pub(crate) async fn new(namespace: &str) -> Result<Self> {
        Self::of(shared().await?, namespace, "InPlaceRestart").await
    }

    pub(crate) async fn of(plane: &ControlPlane, namespace: &str, strategy: &str) -> Result<Self> {
        let client = plane.client();
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let object = serde_json::from_value(json!({"metadata": {"name": namespace}}))?;
        namespaces.create(&PostParams::default(), &object).await?;
        let jobsets: Api<JobSet> = Api::namespaced(client.clone(), namespace);
        let pods: Api<Pod> = Api::namespaced(client, namespace);
        let pod = serde_json::from_value(json!({"metadata": {"name": NAME}, "spec": {
            "automountServiceAccountToken": false, "restartPolicy": "Never",
            "containers": [{"name": "worker", "image": "worker"}],
        }}))?;
        // The API server rejects a Pod until its namespace has a ServiceAccount.
        wait::until(LIMIT, format!("the Pod of {namespace}"), || async {
            Ok(Some(pods.create(&PostParams::default(), &pod).await?))
        })
        .await?;
        let (namespace, kubeconfig) = (namespace.to_owned(), plane.kubeconfig().to_owned());
        let space = Self { namespace, kubeconfig, jobsets, pods, folder: tempfile::tempdir()? };
        space.create_jobset(strategy).await?;
        Ok(space)
    }

    pub(crate) async fn create_jobset(&self, strategy: &str) -> Result<()> {
        let pod = json!({"restartPolicy": "Never", "containers": [{"name": "worker", "image": "worker"}]});
        let jobset = json!({"metadata": {"name": NAME}, "spec": {
            "failurePolicy": {"maxRestarts": 9, "restartStrategy": strategy},
            "replicatedJobs": [{"name": "workers", "template": {"spec": {"template": {"spec": pod}}}}],
        }});
        self.jobsets.create(&PostParams::default(), &serde_json::from_value(jobset)?).await?;
        Ok(())
    }

    /// Deletes the JobSet and keeps the Pod.
    pub(crate) async fn remove_jobset(&self) -> Result<()> {
        self.jobsets.delete(NAME, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Writes the epochs into the status of the JobSet.
    pub(crate) async fn set_epochs(&self, synced: i32, deprecated: i32) -> Result<()> {
        let status = json!({"status": {"syncedEpoch": synced, "deprecatedEpoch": deprecated}});
        self.jobsets.patch_status(NAME, &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(())
    }

    /// How the worker ended, as its agent reports it.
    pub(crate) async fn worker_exit(&self) -> Result<Option<WorkerExit>> {
        Ok(WorkerExit::of(self.pods.get(NAME).await?.annotations()))
    }

    /// What its agent reports of the progress of the worker.
    pub(crate) async fn progress(&self) -> Result<Option<ProgressReport>> {
        Ok(ProgressReport::of(self.pods.get(NAME).await?.annotations()))
    }

    pub(crate) async fn epoch(&self) -> Result<Option<String>> {
        Ok(self.pods.get(NAME).await?.annotations().get("jobset.sigs.k8s.io/epoch").cloned())
    }

    /// Waits until the Pod reports this epoch.
    pub(crate) async fn wait_for_report(&self, epoch: i32) -> Result<()> {
        wait::until_met(LIMIT, format!("epoch {epoch} in {}", self.namespace), || async {
            let observed = self.epoch().await?;
            Ok(if observed == Some(epoch.to_string()) { Check::Met(()) } else { Check::Unmet(format!("{observed:?}")) })
        })
        .await
    }

    /// Waits for the report of this epoch and syncs it, so that the barrier lifts.
    pub(crate) async fn lift(&self, epoch: i32) -> Result<()> {
        self.wait_for_report(epoch).await?;
        self.set_epochs(epoch, epoch - 1).await
    }

    /// Runs the worker in epoch 1 until its log is `before`, and restarts it into epoch 2 until its log is `after`.
    pub(crate) async fn assert_restart(&self, before: &str, after: &str) -> Result<()> {
        self.lift(1).await?;
        self.wait_for_file("log", before).await?;
        self.set_epochs(1, 1).await?;
        self.lift(2).await?;
        self.wait_for_file("log", after).await
    }

    pub(crate) fn file(&self, file: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(file)).unwrap_or_default()
    }

    /// Waits until this file in the folder of the test has exactly this content.
    pub(crate) async fn wait_for_file(&self, file: &str, expected: &str) -> Result<()> {
        wait::until_met(LIMIT, format!("{expected:?} in {file} of {}", self.namespace), || async {
            let content = self.file(file);
            Ok(if content == expected { Check::Met(()) } else { Check::Unmet(format!("{content:?}")) })
        })
        .await
    }

    /// Starts the agent as the supervisor of this shell script.
    pub(crate) fn supervise(&self, script: &str, env: &[(&str, &str)]) -> Result<AgentProcess> {
        self.run(&["supervise", "--", "sh", "-c", script], env)
    }

    pub(crate) fn run(&self, arguments: &[&str], env: &[(&str, &str)]) -> Result<AgentProcess> {
        AgentProcess::start(self, [&[AGENT], arguments].concat(), env)
    }

    /// Starts the agent as the supervisor of this shell script, at a terminal.
    pub(crate) fn supervise_at_terminal(&self, script: &str) -> Result<AgentProcess> {
        std::fs::write(self.folder.path().join("worker.sh"), script)?;
        let command = format!("exec {AGENT} supervise -- sh worker.sh");
        AgentProcess::start(self, ["script", "-qec", &command, "/dev/null"], &[])
    }

    /// Starts the agent as the supervisor of this shell script, with a standard error that nobody reads.
    pub(crate) fn supervise_unread(&self, script: &str) -> Result<AgentProcess> {
        std::fs::write(self.folder.path().join("worker.sh"), script)?;
        let command = format!("mkfifo unread; exec {AGENT} supervise -- sh worker.sh 2<>unread");
        AgentProcess::start(self, ["sh", "-ec", &command], &[])
    }

    /// The requests of agents for objects of this namespace, as verb and URI, in the order in which they ended. They come from
    /// the audit log.
    pub(crate) fn requests(&self, plane: &ControlPlane) -> Result<Vec<String>> {
        let log = std::fs::read_to_string(plane.dir().join("logs/audit.log"))?;
        let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let requests = events.filter(|event| {
            event["objectRef"]["namespace"] == self.namespace.as_str()
                && event["stage"] == "ResponseComplete"
                && event["userAgent"] == USER_AGENT
        });
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok(requests.map(|event| format!("{} {}", text(&event["verb"]), text(&event["requestURI"]))).collect())
    }
}

/// The agent in PID and mount namespaces of its own. All processes that it starts end with it.
pub(crate) struct AgentProcess {
    child: Child,
    folder: PathBuf,
}

impl AgentProcess {
    fn start<'a>(
        space: &TestNamespace,
        command: impl IntoIterator<Item = &'a str>,
        env: &[(&str, &str)],
    ) -> Result<Self> {
        let folder = space.folder.path();
        let output = |name: &str| std::fs::File::create(folder.join(name));
        let own = [("NAMESPACE", space.namespace.as_str()), ("POD_NAME", NAME), ("JOBSET_NAME", NAME)];
        let child = Command::new("unshare")
            .args(["--pid", "--fork", "--kill-child", "--mount-proc", "--"])
            .args(command)
            .env("KUBECONFIG", &space.kubeconfig)
            // These tests may run in a Pod of another cluster than the one under test.
            .env_remove("KUBERNETES_SERVICE_HOST")
            .envs(own)
            .envs(env.iter().copied())
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(output("stdout")?)
            .stderr(output("stderr")?)
            .kill_on_drop(true)
            .spawn()
            .context("cannot run unshare (Debian: util-linux), as root")?;
        Ok(Self { child, folder: folder.to_owned() })
    }

    /// Writes to its standard input.
    pub(crate) async fn write_stdin(&mut self, bytes: &[u8]) -> Result<()> {
        let stdin = self.child.stdin.as_mut().context("standard input has ended")?;
        stdin.write_all(bytes).await?;
        Ok(stdin.flush().await?)
    }

    /// Closes its standard input.
    pub(crate) fn close_stdin(&mut self) {
        self.child.stdin = None;
    }

    pub(crate) async fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(self.agent().await?, signal)?)
    }

    /// Sends the signal of this number to the agent. A real-time signal has no name.
    pub(crate) async fn kill(&self, signal: i32) -> Result<()> {
        let line = format!("kill -{signal} {}", self.agent().await?.as_raw_nonzero());
        let status = Command::new("sh").args(["-c", &line]).status().await?;
        ensure!(status.success(), "{line}: {status}");
        Ok(())
    }

    async fn agent(&self) -> Result<Pid> {
        wait::until(LIMIT, "the agent's process", || async { child_of(&self.child) }).await
    }

    /// Waits until the agent has ended. Returns its exit code.
    pub(crate) async fn exit_code(&mut self) -> Result<i32> {
        let ended = tokio::time::timeout(LIMIT, self.child.wait()).await;
        let log = std::fs::read_to_string(self.folder.join("stderr")).unwrap_or_default();
        let status: ExitStatus = ended.with_context(|| format!("the agent has not ended in time: {log}"))??;
        status.code().with_context(|| format!("the agent was ended by signal {:?}: {log}", status.signal()))
    }
}

/// The child of this process, once there is one.
pub(crate) fn child_of(parent: &Child) -> Result<Option<Pid>> {
    let parent = parent.id().context("it has ended")?;
    let children = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children"))?;
    Ok(children.trim().parse().ok().and_then(Pid::from_raw))
}
