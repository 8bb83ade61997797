//! Starts a control plane with the CRD and the controller, and runs the plugin against it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use jobset_api::JobSet;
use jobset_harness::{ControlPlane, install, wait};
use k8s_openapi::api::core::v1::{Namespace, ServiceAccount};
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::controller;

pub(crate) const LIMIT: Duration = Duration::from_mins(1);

pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_kubectl-jobset");

static SHARED: OnceCell<Result<ControlPlane, String>> = OnceCell::const_new();

async fn start() -> Result<ControlPlane> {
    let plane = ControlPlane::start().await?;
    install::crd(&plane).await?;
    controller::start(plane.client_config())?;
    Ok(plane)
}

pub(crate) struct Space {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) kubectl: PathBuf,
    /// A control plane of its own, which ends with this value.
    _plane: Option<ControlPlane>,
}

impl Space {
    pub(crate) async fn new(namespace: &str) -> Result<Self> {
        let start = || async { start().await.map_err(|error| format!("{error:#}")) };
        let plane = SHARED.get_or_init(start).await.as_ref();
        let plane = plane.map_err(|error| anyhow!("the shared control plane did not start: {error}"))?;
        Self::on(plane, namespace).await
    }

    /// A namespace of a control plane of its own, on which nobody reconciles JobSets, and Pods stay on nodes that do not exist.
    pub(crate) async fn without_controllers(namespace: &str) -> Result<Self> {
        let plane = ControlPlane::builder().controller_manager_arg("--controllers=*,-podgc").control_plane().await?;
        install::crd(&plane).await?;
        let space = Self::on(&plane, namespace).await?;
        Ok(Self { _plane: Some(plane), ..space })
    }

    async fn on(plane: &ControlPlane, namespace: &str) -> Result<Self> {
        let mut config = plane.client_config();
        namespace.clone_into(&mut config.default_namespace);
        let client = Client::try_from(config)?;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        let object = serde_json::from_value(json!({"metadata": {"name": namespace}}))?;
        namespaces.create(&PostParams::default(), &object).await?;
        let accounts: Api<ServiceAccount> = Api::default_namespaced(client.clone());
        wait::until(LIMIT, "the ServiceAccount default", || async { Ok(accounts.get_opt("default").await?) }).await?;
        let (kubeconfig, kubectl) = (plane.kubeconfig().to_owned(), plane.kubectl_path());
        Ok(Self { client, namespace: namespace.to_owned(), kubeconfig, kubectl, _plane: None })
    }

    pub(crate) fn jobsets(&self) -> Api<JobSet> {
        Api::default_namespaced(self.client.clone())
    }

    pub(crate) async fn create(&self, jobset: Value) -> Result<JobSet> {
        Ok(self.jobsets().create(&PostParams::default(), &serde_json::from_value(jobset)?).await?)
    }

    pub(crate) fn plugin(&self, args: &[&str]) -> Command {
        self.plugin_of(PROGRAM, args)
    }

    /// The same with another build of the plugin.
    pub(crate) fn plugin_of(&self, program: &str, args: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(args).arg("--namespace").arg(&self.namespace).arg("--kubeconfig").arg(&self.kubeconfig);
        command.env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
        command
    }

    /// Runs the plugin, checks the exit code, and returns the output.
    pub(crate) async fn run(&self, args: &[&str], code: i32) -> Result<String> {
        let (mut command, line) = (self.plugin(args), args.join(" "));
        let output = tokio::task::spawn_blocking(move || command.output()).await??;
        expect(&output, code).with_context(|| format!("kubectl jobset {line}"))
    }

    /// Runs the plugin until its output has all of these words. Each run must have the exit code.
    pub(crate) async fn shows(&self, args: &[&str], words: &[&str], code: i32) -> Result<String> {
        wait::until(LIMIT, format!("{words:?} of {args:?}"), || async {
            let text = self.run(args, code).await?;
            let missing: Vec<_> = words.iter().filter(|word| !text.contains(**word)).collect();
            if missing.is_empty() { Ok(Some(text)) } else { bail!("no {missing:?} in\n{text}") }
        })
        .await
        .inspect(|text| println!("$ kubectl jobset {}\n{text}", args.join(" ")))
    }
}

/// Checks the exit code and returns standard output and standard error.
pub(crate) fn expect(output: &Output, code: i32) -> Result<String> {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.code() != Some(code) {
        bail!("it ended with {}, not {code}\n{out}{err}", output.status);
    }
    Ok(format!("{out}{err}"))
}

pub(crate) fn folder() -> &'static Path {
    Path::new(PROGRAM).parent().unwrap_or(Path::new("/"))
}

/// A JobSet with in-place restart and one Job, with the defaults of admission.
pub(crate) fn in_place(name: &str, pods: usize) -> Value {
    let mut object: Value = serde_yaml_ng::from_str(include_str!("in_place.yaml")).unwrap_or_default();
    object["metadata"]["name"] = json!(name);
    let job = &mut object["spec"]["replicatedJobs"][0]["template"]["spec"];
    (job["parallelism"], job["completions"]) = (json!(pods), json!(pods));
    object
}
