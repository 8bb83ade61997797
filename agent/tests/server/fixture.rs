//! A control plane, a JobSet and a Pod, and the agent's own program as the first process of a container that supervises
//! a worker. There is no kubelet and no controller: the test says what the JobSet is to say.

use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, ensure};
use jobset_api::JobSet;
use jobset_harness::wait::{self, Seen};
use jobset_harness::{ControlPlane, install};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::process::{Child, Command};
use tokio::sync::OnceCell;

/// How long a change may take on a machine that runs all tests at once.
pub(crate) const LIMIT: Duration = Duration::from_mins(1);
/// Name of the JobSet and of the Pod in each namespace.
const NAME: &str = "train";
/// What the audit log calls it.
const USER_AGENT: &str = concat!("jobset-agent/", env!("CARGO_PKG_VERSION"));
const AGENT: &str = env!("CARGO_BIN_EXE_jobset-agent");

/// The control plane of these tests; `Err` for all of them if it did not start.
static SHARED: OnceCell<Result<ControlPlane, String>> = OnceCell::const_new();

/// The shared control plane, with the CRD.
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

/// A JobSet with one Pod.
pub(crate) struct Space {
    pub(crate) namespace: String,
    kubeconfig: PathBuf,
    jobsets: Api<JobSet>,
    pods: Api<Pod>,
    /// A folder of the test.
    pub(crate) folder: TempDir,
}

impl Space {
    /// One that restarts in place, of the shared control plane.
    pub(crate) async fn new(namespace: &str) -> Result<Self> {
        Self::of(shared().await?, namespace, "InPlaceRestart").await
    }

    /// One with this restart strategy.
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
        // A Pod that comes before its namespace's ServiceAccount is refused.
        wait::until(LIMIT, format!("the Pod of {namespace}"), || async {
            Ok(Some(pods.create(&PostParams::default(), &pod).await?))
        })
        .await?;
        let (namespace, kubeconfig) = (namespace.to_owned(), plane.kubeconfig().to_owned());
        let space = Self { namespace, kubeconfig, jobsets, pods, folder: tempfile::tempdir()? };
        space.create_jobset(strategy).await?;
        Ok(space)
    }

    /// Creates the JobSet.
    pub(crate) async fn create_jobset(&self, strategy: &str) -> Result<()> {
        let pod = json!({"restartPolicy": "Never", "containers": [{"name": "worker", "image": "worker"}]});
        let jobset = json!({"metadata": {"name": NAME}, "spec": {
            "failurePolicy": {"maxRestarts": 9, "restartStrategy": strategy},
            "replicatedJobs": [{"name": "workers", "template": {"spec": {"template": {"spec": pod}}}}],
        }});
        self.jobsets.create(&PostParams::default(), &serde_json::from_value(jobset)?).await?;
        Ok(())
    }

    /// Deletes the JobSet; the Pod stays.
    pub(crate) async fn remove_jobset(&self) -> Result<()> {
        self.jobsets.delete(NAME, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Has the JobSet say what its epochs are.
    pub(crate) async fn say(&self, synced: i32, deprecated: i32) -> Result<()> {
        let status = json!({"status": {"syncedEpoch": synced, "deprecatedEpoch": deprecated}});
        self.jobsets.patch_status(NAME, &PatchParams::default(), &Patch::Merge(status)).await?;
        Ok(())
    }

    /// What the Pod reports.
    pub(crate) async fn epoch(&self) -> Result<Option<String>> {
        Ok(self.pods.get(NAME).await?.annotations().get("jobset.sigs.k8s.io/epoch").cloned())
    }

    /// Waits until the Pod reports this epoch.
    pub(crate) async fn reported(&self, epoch: i32) -> Result<()> {
        wait::until_seen(LIMIT, format!("epoch {epoch} in {}", self.namespace), || async {
            let seen = self.epoch().await?;
            Ok(if seen == Some(epoch.to_string()) { Seen::Yes(()) } else { Seen::NotYet(format!("{seen:?}")) })
        })
        .await
    }

    /// Lets the worker run in the epoch that the agent has reported.
    pub(crate) async fn lift(&self, epoch: i32) -> Result<()> {
        self.reported(epoch).await?;
        self.say(epoch, epoch - 1).await
    }

    /// Lets the worker run in epoch 1 until its log is `before`, and restarts it into epoch 2, until its log is `after`.
    pub(crate) async fn restarts(&self, before: &str, after: &str) -> Result<()> {
        self.lift(1).await?;
        self.writes("log", before).await?;
        self.say(1, 1).await?;
        self.lift(2).await?;
        self.writes("log", after).await
    }

    /// What the worker has written into this file of its folder.
    pub(crate) fn written(&self, file: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(file)).unwrap_or_default()
    }

    /// Waits until the worker has written this into the file, and nothing else.
    pub(crate) async fn writes(&self, file: &str, wanted: &str) -> Result<()> {
        wait::until_seen(LIMIT, format!("{wanted:?} in {file} of {}", self.namespace), || async {
            let seen = self.written(file);
            Ok(if seen == wanted { Seen::Yes(()) } else { Seen::NotYet(format!("{seen:?}")) })
        })
        .await
    }

    /// Starts the agent above this worker: a shell's script whose folder is its current one.
    pub(crate) fn supervise(&self, script: &str, env: &[(&str, &str)]) -> Result<Container> {
        self.run(&["supervise", "--", "sh", "-c", script], env)
    }

    /// Starts the agent with these arguments, as the first process of a container.
    pub(crate) fn run(&self, arguments: &[&str], env: &[(&str, &str)]) -> Result<Container> {
        Container::start(self, [&[AGENT], arguments].concat(), env)
    }

    /// Starts the agent above this worker, at a terminal.
    pub(crate) fn at_a_terminal(&self, script: &str) -> Result<Container> {
        std::fs::write(self.folder.path().join("worker.sh"), script)?;
        let command = format!("exec {AGENT} supervise -- sh worker.sh");
        Container::start(self, ["script", "-qec", &command, "/dev/null"], &[])
    }

    /// Starts the agent above this worker, with a standard error that nobody reads.
    pub(crate) fn unread(&self, script: &str) -> Result<Container> {
        std::fs::write(self.folder.path().join("worker.sh"), script)?;
        let command = format!("mkfifo unread; exec {AGENT} supervise -- sh worker.sh 2<>unread");
        Container::start(self, ["sh", "-ec", &command], &[])
    }

    /// The requests for this namespace's objects that the API server has got from agents, as verb and URI, in the order
    /// in which they ended.
    pub(crate) fn requests(&self, plane: &ControlPlane) -> Result<Vec<String>> {
        let log = std::fs::read_to_string(plane.dir().join("logs/audit.log"))?;
        let events = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let ours = events.filter(|event| {
            event["objectRef"]["namespace"] == self.namespace.as_str()
                && event["stage"] == "ResponseComplete"
                && event["userAgent"] == USER_AGENT
        });
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok(ours.map(|event| format!("{} {}", text(&event["verb"]), text(&event["requestURI"]))).collect())
    }
}

/// The agent in PID and mount namespaces of its own: what it starts ends with it.
pub(crate) struct Container {
    child: Child,
    folder: PathBuf,
}

impl Container {
    fn start<'a>(space: &Space, command: impl IntoIterator<Item = &'a str>, env: &[(&str, &str)]) -> Result<Self> {
        let folder = space.folder.path();
        let output = |name: &str| std::fs::File::create(folder.join(name));
        let own = [("NAMESPACE", space.namespace.as_str()), ("POD_NAME", NAME), ("JOBSET_NAME", NAME)];
        let child = Command::new("unshare")
            .args(["--pid", "--fork", "--kill-child", "--mount-proc", "--"])
            .args(command)
            .env("KUBECONFIG", &space.kubeconfig)
            // These tests may run in a Pod themselves, and mean another cluster than that one's.
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

    /// Gives this to its standard input.
    pub(crate) async fn types(&mut self, bytes: &[u8]) -> Result<()> {
        let stdin = self.child.stdin.as_mut().context("standard input has ended")?;
        stdin.write_all(bytes).await?;
        Ok(stdin.flush().await?)
    }

    /// Ends its standard input.
    pub(crate) fn types_no_more(&mut self) {
        self.child.stdin = None;
    }

    /// Sends a signal to the agent, as a kubelet or a runtime does.
    pub(crate) async fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(self.agent().await?, signal)?)
    }

    /// The same with any number: a real-time signal has no name.
    pub(crate) async fn kill(&self, signal: i32) -> Result<()> {
        let line = format!("kill -{signal} {}", self.agent().await?.as_raw_nonzero());
        let status = Command::new("sh").args(["-c", &line]).status().await?;
        ensure!(status.success(), "{line}: {status}");
        Ok(())
    }

    async fn agent(&self) -> Result<Pid> {
        let unshare = self.child.id().context("it has ended")?;
        let children = format!("/proc/{unshare}/task/{unshare}/children");
        wait::until(LIMIT, "the agent's process", || async {
            Ok(std::fs::read_to_string(&children)?.trim().parse().ok().and_then(Pid::from_raw))
        })
        .await
    }

    /// Waits until the agent has ended; its exit code.
    pub(crate) async fn ended(&mut self) -> Result<i32> {
        let ended = tokio::time::timeout(LIMIT, self.child.wait()).await;
        let log = std::fs::read_to_string(self.folder.join("stderr")).unwrap_or_default();
        let status: ExitStatus = ended.with_context(|| format!("the agent has not ended in time: {log}"))??;
        status.code().with_context(|| format!("it was ended by signal {:?}: {log}", status.signal()))
    }
}
