//! The Helm chart, rendered and installed by the real Helm.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use tokio::process::Command;

use crate::cluster::Handle;
use crate::programs::{Helm, ensure_helm, succeeded};
use crate::{admission, paths};

pub const RELEASE: &str = "jobset";

/// The version of Kubernetes that the chart is rendered for.
const KUBERNETES: &str = "1.36.3";

/// Objects by kind, namespace (empty for none) and name.
pub type Objects = BTreeMap<(String, String, String), Value>;

/// Helm, with a home of its own below the target folder.
#[derive(Clone, Debug)]
pub struct Chart {
    program: PathBuf,
    home: PathBuf,
}

impl Chart {
    /// Builds Helm if it is missing.
    pub async fn new(version: Helm) -> Result<Self> {
        let program = tokio::task::spawn_blocking(move || ensure_helm(version)).await??;
        Ok(Self { program, home: paths::target().join("helm") })
    }

    pub fn folder() -> PathBuf {
        paths::workspace().join("deploy/chart")
    }

    /// The alerts with the thresholds of the chart's own values, as Prometheus reads them without its operator.
    pub fn alerts() -> PathBuf {
        paths::workspace().join("deploy/monitoring/alerts.yaml")
    }

    /// What the chart renders to in a namespace, with these arguments (`--set a=b`, `--show-only`) besides.
    pub async fn template(&self, namespace: &str, args: &[&str]) -> Result<String> {
        let chart = Self::folder();
        let mut command = self.command(&["template", RELEASE]);
        // Helm 3 knows of no cluster here, and takes it for one of Kubernetes 1.20.
        command.arg(chart).args(["--namespace", namespace, "--kube-version", KUBERNETES]).args(args);
        let output = command.output().await.context("cannot run helm")?;
        succeeded("helm template", &output)?;
        String::from_utf8(output.stdout).context("helm template writes UTF-8")
    }

    /// What `helm lint --strict` says of the chart, with these arguments besides.
    pub async fn lint(&self, args: &[&str]) -> Result<String> {
        let mut command = self.command(&["lint", "--strict", "--kube-version", KUBERNETES]);
        let output = command.arg(Self::folder()).args(args).output().await.context("cannot run helm")?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        succeeded(format_args!("helm lint: {text}"), &output)?;
        Ok(text)
    }

    /// Runs Helm against a cluster.
    pub async fn run(&self, handle: &Handle, args: &[&str]) -> Result<String> {
        let mut command = self.command(args);
        command.arg("--kubeconfig").arg(handle.kubeconfig());
        let output = command.output().await.context("cannot run helm")?;
        succeeded(format_args!("helm {}", args.first().unwrap_or(&"")), &output)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        for (variable, folder) in
            [("HELM_CACHE_HOME", "cache"), ("HELM_CONFIG_HOME", "config"), ("HELM_DATA_HOME", "data")]
        {
            command.env(variable, self.home.join(folder));
        }
        command.args(args).stdin(Stdio::null());
        command
    }
}

/// The objects of a manifest of several documents.
pub fn objects(manifest: &str) -> Result<Objects> {
    by_name(admission::documents(manifest)?)
}

/// The objects that `kubectl` makes of a folder of `deploy`.
pub async fn kustomization(handle: &Handle, folder: &str) -> Result<Objects> {
    by_name(admission::kustomize(handle, folder).await?)
}

/// The same objects by kind, namespace and name.
pub fn by_name(documents: Vec<Value>) -> Result<Objects> {
    let mut objects = Objects::new();
    for object in documents.into_iter().filter(|document| !document.is_null()) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let metadata = &object["metadata"];
        let key = (text(&object["kind"]), text(&metadata["namespace"]), text(&metadata["name"]));
        if objects.insert(key.clone(), object).is_some() {
            bail!("{key:?} is there twice");
        }
    }
    Ok(objects)
}
