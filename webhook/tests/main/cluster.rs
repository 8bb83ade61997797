//! An API server with the CRD, and admission services that it calls at their URL.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser as _;
use jobset_api::JobSet;
use jobset_e2e::{ControlPlane, install, paths, wait};
use jobset_webhook::args::Args;
use jobset_webhook::run::Service;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};
use serde::Deserialize as _;
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) const LIMIT: Duration = Duration::from_mins(1);
/// Where the admission service is deployed, and the names that its manifests give to it.
pub(crate) const NAMESPACE: &str = "jobset-system";
const ACCOUNT: &str = "jobset-webhook";
/// Kinds of the manifests that give permissions.
const ACCESS: [&str; 5] = ["ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"];
/// Kinds of the manifests that register webhooks.
const REGISTRATION: [&str; 2] = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

/// The control plane with the CRD, and an identity with the permissions of the admission service.
pub(crate) struct Plane {
    pub(crate) plane: ControlPlane,
}

/// A running admission service.
pub(crate) struct Replica {
    pub(crate) address: SocketAddr,
    health: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<Result<(), jobset_webhook::Error>>,
}

impl Plane {
    pub(crate) async fn start() -> Result<Self> {
        let plane = Self { plane: ControlPlane::start().await? };
        install::crd(&plane.plane).await?;
        plane.kubectl(&["create", "namespace", NAMESPACE]).await?;
        plane.apply("access.yaml", &deployed(&ACCESS)?).await?;
        Ok(plane)
    }

    /// Registers the admission service at this address.
    pub(crate) async fn register(&self, address: SocketAddr) -> Result<()> {
        let mut manifests = deployed(&REGISTRATION)?;
        for webhook in manifests.iter_mut().filter_map(|it| it["webhooks"].as_array_mut()).flatten() {
            let path = webhook["clientConfig"]["service"]["path"].as_str().context("a webhook without a path")?;
            webhook["clientConfig"] = json!({ "url": format!("https://{address}{path}") });
        }
        self.apply("registration.yaml", &manifests).await
    }

    pub(crate) fn client(&self) -> Client {
        self.plane.client()
    }

    pub(crate) fn jobsets(&self) -> Api<JobSet> {
        Api::namespaced(self.client(), "default")
    }

    /// Creates a JobSet as it is written.
    pub(crate) async fn create(&self, jobset: &Value) -> kube::Result<JobSet> {
        self.submit(jobset, false).await
    }

    /// Has the API server decide about a JobSet without storing it.
    pub(crate) async fn dry_run(&self, jobset: &Value) -> kube::Result<JobSet> {
        self.submit(jobset, true).await
    }

    async fn submit(&self, jobset: &Value, dry_run: bool) -> kube::Result<JobSet> {
        let params = PostParams { dry_run, ..PostParams::default() };
        let resource = kube::api::ApiResource::erase::<JobSet>(&());
        let dynamic: Api<kube::api::DynamicObject> = Api::namespaced_with(self.client(), "default", &resource);
        let object = serde_json::from_value(jobset.clone()).map_err(kube::Error::SerdeError)?;
        let created = dynamic.create(&params, &object).await?;
        created.try_parse().map_err(|error| kube::Error::Service(Box::new(error)))
    }

    /// A client with the permissions of the admission service and no more.
    pub(crate) async fn service_client(&self) -> Result<Client> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client(), NAMESPACE);
        let request = TokenRequest { spec: Some(TokenRequestSpec::default()), ..TokenRequest::default() };
        let issued = accounts.create_token_request(ACCOUNT, &PostParams::default(), &request).await?;
        let token = issued.status.and_then(|status| status.token).context("no token was issued")?;
        let mut config = self.plane.client_config();
        config.auth_info = kube::config::AuthInfo { token: Some(token.into()), ..kube::config::AuthInfo::default() };
        Ok(Client::try_from(config)?)
    }

    /// Starts an admission service where the API server can call it.
    pub(crate) async fn replica(&self) -> Result<Replica> {
        let host = IpAddr::V4(self.plane.ready().host_address);
        let args = Args::parse_from([
            "jobset-webhook".to_owned(),
            format!("--listen={}", SocketAddr::new(host, 0)),
            "--health-listen=127.0.0.1:0".to_owned(),
            format!("--namespace={NAMESPACE}"),
            format!("--extra-dns-name={host}"),
            "--drain-delay=0s".to_owned(),
        ]);
        let service = Service::bind(&args).await?;
        let (address, health, stop) = (service.address()?, service.health_address()?, CancellationToken::new());
        let task = tokio::spawn(service.run(self.service_client().await?, stop.clone()));
        Ok(Replica { address, health, stop, task })
    }

    async fn apply(&self, name: &str, manifests: &[Value]) -> Result<()> {
        let file = self.plane.dir().join(name);
        std::fs::write(&file, json!({ "apiVersion": "v1", "kind": "List", "items": manifests }).to_string())?;
        self.kubectl(&["apply", "--server-side", "-f", &file.to_string_lossy()]).await
    }

    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> Result<()> {
        install::kubectl(&self.plane, arguments).await.map(drop)
    }
}

/// The manifests of these kinds, as they are deployed: what is missing there fails here.
fn deployed(kinds: &[&str]) -> Result<Vec<Value>> {
    let manifests = std::fs::read_to_string(paths::workspace().join("deploy/kustomize/webhook.yaml"))?;
    let manifests = serde_yaml_ng::Deserializer::from_str(&manifests).map(Value::deserialize);
    let manifests: Vec<Value> = manifests.collect::<Result<_, _>>()?;
    Ok(manifests.into_iter().filter(|it| kinds.contains(&it["kind"].as_str().unwrap_or_default())).collect())
}

impl Replica {
    /// Answer of `/readyz`, status and text.
    pub(crate) async fn readyz(&self) -> Result<String> {
        crate::process::readyz(self.health).await
    }

    pub(crate) async fn ready(&self) -> Result<()> {
        wait::until_seen(LIMIT, "the service to be ready", async || {
            let answer = self.readyz().await?;
            Ok(if answer.starts_with("HTTP/1.1 200") { wait::Seen::Yes(()) } else { wait::Seen::NotYet(answer) })
        })
        .await
    }

    pub(crate) async fn stop(self) -> Result<()> {
        self.stop.cancel();
        Ok(self.task.await??)
    }
}
