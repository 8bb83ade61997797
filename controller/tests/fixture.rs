//! A control plane with the CRD, and the controller's own program running against it, with the rights that
//! `deploy/kustomize` gives it and no others.

use std::ops::Deref;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use futures::{Stream, StreamExt};
use http::{HeaderName, HeaderValue};
use jobset_api::JobSet;
use jobset_harness::{ControlPlane, install, wait};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::config::AuthInfo;
use kube::{Api, Client, Config, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::program::{self, Program};

pub(crate) const LIMIT: Duration = Duration::from_mins(1);

const DEFAULT: &str = "default";

/// A control plane and a controller of the test's own, to be stopped, killed or told otherwise. Both end with it.
pub(crate) struct Fixture {
    pub(crate) plane: ControlPlane,
    pub(crate) controller: Program,
    space: Space,
}

impl Deref for Fixture {
    type Target = Space;

    fn deref(&self) -> &Space {
        &self.space
    }
}

impl Fixture {
    pub(crate) async fn start() -> Result<Self> {
        Self::start_with(&[]).await
    }

    pub(crate) async fn start_with(arguments: &[&str]) -> Result<Self> {
        Vacant::start().await?.start_controller(arguments)
    }

    pub(crate) async fn space(&self, namespace: &str) -> Result<Space> {
        Space::create_in(&self.plane, namespace).await
    }
}

/// A control plane that is ready for a controller, and has none yet.
pub(crate) struct Vacant {
    plane: ControlPlane,
    space: Space,
}

impl Deref for Vacant {
    type Target = Space;

    fn deref(&self) -> &Space {
        &self.space
    }
}

impl Vacant {
    pub(crate) async fn start() -> Result<Self> {
        Self::on(ControlPlane::start().await?).await
    }

    /// Makes this control plane ready for a controller.
    pub(crate) async fn on(plane: ControlPlane) -> Result<Self> {
        install::crd(&plane).await?;
        program::grant(&plane).await?;
        let space = Space::of(&plane, DEFAULT)?;
        Ok(Self { plane, space })
    }

    pub(crate) fn plane(&self) -> &ControlPlane {
        &self.plane
    }

    /// Stops the control plane.
    pub(crate) async fn stop(self) -> Result<()> {
        self.plane.stop().await
    }

    pub(crate) fn start_controller(self, arguments: &[&str]) -> Result<Fixture> {
        let Self { plane, space } = self;
        let controller = Program::start(&plane, "jobset-controller", arguments)?;
        Ok(Fixture { plane, controller, space })
    }
}

/// A namespace of a test, and the requests that a user, or an agent, makes in it.
pub(crate) struct Space {
    /// Its default namespace is this one.
    pub(crate) client: Client,
    pub(crate) namespace: String,
    config: Config,
}

/// The control plane, with a controller, that the tests of this process share; `Err` for all of them if it did not start.
static SHARED: OnceCell<Result<ControlPlane, String>> = OnceCell::const_new();

async fn start_shared() -> Result<ControlPlane> {
    let plane = ControlPlane::start().await?;
    install::crd(&plane).await?;
    program::grant(&plane).await?;
    program::permit_agents(&plane).await?;
    program::start_beside(&plane, "jobset-controller", &[]).await?;
    Ok(plane)
}

impl Space {
    /// A new namespace of the shared control plane. A test that restarts the API server, reads metrics, or wants flags
    /// takes a [`Fixture`].
    pub(crate) async fn new(namespace: &str) -> Result<Self> {
        let start = || async { start_shared().await.map_err(|error| format!("{error:#}")) };
        let plane = SHARED.get_or_init(start).await.as_ref();
        let plane = plane.map_err(|error| anyhow!("the shared control plane did not start: {error}"))?;
        Self::create_in(plane, namespace).await
    }

    async fn create_in(plane: &ControlPlane, namespace: &str) -> Result<Self> {
        let space = Self::of(plane, namespace)?;
        let namespaces: Api<Namespace> = Api::all(space.client.clone());
        let object = serde_json::from_value(json!({"metadata": {"name": namespace}}))?;
        namespaces.create(&PostParams::default(), &object).await?;
        // A Pod that comes before its namespace's ServiceAccount is refused, and tried again ever later.
        let accounts: Api<ServiceAccount> = Api::default_namespaced(space.client.clone());
        wait::until(LIMIT, "the ServiceAccount default", || async { Ok(accounts.get_opt(DEFAULT).await?) }).await?;
        Ok(space)
    }

    fn of(plane: &ControlPlane, namespace: &str) -> Result<Self> {
        let mut config = plane.client_config();
        namespace.clone_into(&mut config.default_namespace);
        Ok(Self { client: Client::try_from(config.clone())?, namespace: namespace.to_owned(), config })
    }

    pub(crate) fn client_with(&self, token: &str) -> Result<Client> {
        let mut config = self.config.clone();
        config.auth_info = AuthInfo { token: Some(token.to_owned().into()), ..AuthInfo::default() };
        Ok(Client::try_from(config)?)
    }

    /// A client of the administrator, who sends these headers with each request.
    pub(crate) fn client_sending(&self, headers: Vec<(HeaderName, HeaderValue)>) -> Result<Client> {
        let mut config = self.config.clone();
        config.headers = headers;
        Ok(Client::try_from(config)?)
    }

    pub(crate) fn jobsets(&self) -> Api<JobSet> {
        Api::default_namespaced(self.client.clone())
    }

    pub(crate) async fn create(&self, jobset: Value) -> Result<JobSet> {
        let jobset: JobSet = serde_json::from_value(jobset)?;
        Ok(self.jobsets().create(&PostParams::default(), &jobset).await?)
    }

    /// The Pods of a JobSet, by name, once there are as many of them, all of this attempt.
    pub(crate) async fn pods(&self, jobset: &str, count: usize, attempt: &str) -> Result<Vec<Pod>> {
        let labels = format!("jobset.sigs.k8s.io/jobset-name={jobset},jobset.sigs.k8s.io/restart-attempt={attempt}");
        let pods = self.all_pods();
        wait::until(LIMIT, format!("{count} Pods of {jobset}"), || async {
            let mut found = pods.list(&ListParams::default().labels(&labels)).await?.items;
            found.retain(|pod| pod.metadata.deletion_timestamp.is_none());
            found.sort_by_key(ResourceExt::name_any);
            Ok((found.len() == count).then_some(found))
        })
        .await
    }

    pub(crate) async fn report(&self, pod: &Pod, epoch: &str) -> Result<()> {
        let patch = json!({"metadata": {"annotations": {"jobset.sigs.k8s.io/epoch": epoch}}});
        self.all_pods().patch_metadata(&pod.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    pub(crate) fn jobs(&self) -> Api<Job> {
        Api::default_namespaced(self.client.clone())
    }

    /// Marks a Job for failure; the Job controller does the rest. It says so in its status, with this reason.
    pub(crate) async fn fail_job(&self, job: &str, reason: &str) -> Result<()> {
        let target = json!({"type": "FailureTarget", "status": "True", "reason": reason,
                            "message": "as the test wants", "lastTransitionTime": Timestamp::now().to_string()});
        let patch = json!({"status": {"conditions": [target]}});
        self.jobs().patch_status(job, &PatchParams::default(), &Patch::Strategic(patch)).await?;
        Ok(())
    }

    /// Every state of the JobSet that is written from now on, beginning with the present one.
    pub(crate) async fn history(&self, name: &str) -> Result<impl Stream<Item = Result<JobSet>> + Unpin + use<>> {
        let params = WatchParams::default().fields(&format!("metadata.name={name}"));
        let events = self.jobsets().watch(&params, "0").await?;
        Ok(Box::pin(events.filter_map(|event| async move {
            match event {
                Ok(WatchEvent::Added(jobset) | WatchEvent::Modified(jobset)) => Some(Ok(jobset)),
                Ok(_) => None,
                Err(error) => Some(Err(error.into())),
            }
        })))
    }
}

/// The next state that is written.
pub(crate) async fn next(history: &mut (impl Stream<Item = Result<JobSet>> + Unpin)) -> Result<JobSet> {
    let next = tokio::time::timeout(LIMIT, history.next()).await.context("the JobSet was not written in time")?;
    next.context("the watch has ended")?
}

/// A JobSet of one Job that restarts in place, as admission leaves it. Its restarts do not wait.
pub(crate) fn in_place(name: &str, pods: usize, max_restarts: i32) -> Value {
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name, "annotations": {"jobset.sigs.k8s.io/restart-budget": "Shared"}},
        "spec": {
            "failurePolicy": {
                "maxRestarts": max_restarts,
                "restartStrategy": "InPlaceRestart",
                "restartBackoff": {"initialSeconds": 0, "stableSeconds": 0},
            },
            "replicatedJobs": [{"name": "workers", "template": {"spec": {
                "parallelism": pods,
                "completions": pods,
                "completionMode": "Indexed",
                "backoffLimit": 2_147_483_647,
                "podReplacementPolicy": "Failed",
                "template": {"spec": {
                    "restartPolicy": "Never",
                    "initContainers": [{"name": "agent", "image": "none", "restartPolicy": "Always",
                        "restartPolicyRules": [{"action": "RestartPod", "exitCodes": {"operator": "In", "values": [81]}}]}],
                    "containers": [{"name": "worker", "image": "none"}],
                }},
            }}}],
        },
    })
}
