//! The demo in the cluster of a kubectl context, a kind cluster say: whether Pods can restart in place there, whether the
//! product is installed, and what is removed in the end.

use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{DeleteParams, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config, ResourceExt};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::fitness;
use jobset_harness::images::Repository;
use jobset_harness::install::{CRD, LIMIT, NAMESPACE, create_namespace};
use jobset_harness::paths;
use jobset_harness::programs::succeeded;
use jobset_harness::progress::progress;
use jobset_harness::wait;

/// How long the namespace may take to go: its Pods have a grace of half a minute.
const GOING: Duration = Duration::from_mins(3);

/// A cluster that is not the demo's own.
pub struct Context {
    pub(super) name: String,
    pub(super) client: Client,
    pub(super) namespace: String,
    pub(super) images: Repository,
}

impl Context {
    /// The context of this name in the kubeconfig, or the current one.
    pub async fn open(name: Option<&str>, images: Repository) -> Result<Self> {
        let kubeconfig = Kubeconfig::read().context("cannot read the kubeconfig")?;
        let name = name.map(str::to_owned).or_else(|| kubeconfig.current_context.clone());
        let name = name.filter(|name| !name.is_empty());
        let name = name.context("the kubeconfig has no current context: name one, `make demo CONTEXT=NAME`")?;
        let options = KubeConfigOptions { context: Some(name.clone()), ..KubeConfigOptions::default() };
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        let client = Client::try_from(config.with_context(|| format!("cannot use the context {name}"))?)?;
        let namespace = format!("jobset-demo-{:04x}", fastrand::u16(..));
        Ok(Self { name, client, namespace, images })
    }

    /// Checks that Pods can restart in place, installs the product if it is not there, and creates the namespace.
    pub(super) async fn prepare(&self) -> Result<()> {
        let version = self.client.apiserver_version().await;
        let version = version.with_context(|| format!("the API server of context {} does not answer", self.name))?;
        println!("context {}, Kubernetes {}", self.name, version.git_version);
        fitness::check(&self.client).await?;
        let home = match self.installed().await? {
            Some(home) => home,
            None => self.install().await?,
        };
        for deployment in ["deployment/jobset-controller", "deployment/jobset-webhook", "deployment/jobset-relay"] {
            let limit = format!("--timeout={}s", LIMIT.as_secs());
            let waited = self.kubectl(&["rollout", "status", deployment, "-n", &home, &limit], "").await;
            waited.with_context(|| {
                format!(
                    "{deployment} is not ready: its image, {}, has to be on the nodes{IMAGES}",
                    self.images.name("…")
                )
            })?;
        }
        create_namespace(&self.client, &self.namespace).await
    }

    async fn installed(&self) -> Result<Option<String>> {
        let crds: Api<CustomResourceDefinition> = Api::all(self.client.clone());
        if crds.get_opt(CRD).await?.is_none() {
            return Ok(None);
        }
        let deployments: Api<Deployment> = Api::all(self.client.clone());
        let ours =
            ListParams::default().labels("app.kubernetes.io/name=jobset-controller,app.kubernetes.io/part-of=jobset");
        let Some(controller) = deployments.list(&ours).await?.items.into_iter().next() else {
            bail!(
                "the CustomResourceDefinition {CRD} is there, and no Deployment jobset-controller: another JobSet is installed; \
                 docs/src/migration.md says how to take over from it"
            );
        };
        Ok(controller.namespace())
    }

    /// Gives the namespace of the controller.
    async fn install(&self) -> Result<String> {
        progress(&format!("installing deploy/kustomize with images {}", self.images.name("…")));
        let kustomize = paths::workspace().join("deploy/kustomize");
        let rendered = self.kubectl(&["kustomize", &kustomize.to_string_lossy()], "").await?;
        let manifests = self.images.in_place_of_local(&String::from_utf8_lossy(&rendered.stdout));
        self.kubectl(&["apply", "--server-side", "-f", "-"], &manifests).await?;
        println!("the product stays installed; docs/src/install.md says how to remove it");
        Ok(NAMESPACE.to_owned())
    }

    /// The namespace of the demo's JobSets.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Removes what [`Context::prepare`] and the demo made, but the product.
    pub async fn clean(&self) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        match namespaces.delete(&self.namespace, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => return Ok(()),
            deleted => deleted.with_context(|| format!("cannot delete the namespace {}", self.namespace))?,
        };
        progress(&format!("removing the namespace {}", self.namespace));
        wait::until(GOING, format!("the end of namespace {}", self.namespace), || async {
            Ok(namespaces.get_opt(&self.namespace).await?.is_none().then_some(()))
        })
        .await
    }

    async fn kubectl(&self, args: &[&str], input: &str) -> Result<Output> {
        let mut kubectl = Command::new("kubectl");
        kubectl.args(["--context", &self.name]).args(args).kill_on_drop(true);
        kubectl.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = kubectl.spawn().context("cannot run kubectl, which has to be in the PATH")?;
        if let Some(mut stdin) = child.stdin.take() {
            // It may have ended without reading; what it says then is the reason.
            let _ = stdin.write_all(input.as_bytes()).await;
        }
        let output = child.wait_with_output().await?;
        succeeded(format_args!("kubectl {}", args.join(" ")), &output)?;
        Ok(output)
    }
}

/// How images come to nodes.
pub(super) const IMAGES: &str = "; `make images` builds it: load it with `kind load image-archive target/images/FILE`, or \
                                 push it and say where it is, REGISTRY=registry.example.com/me TAG=dev";
