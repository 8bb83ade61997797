//! An API server with the CRD, and admission services that it calls at their URL.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use clap::Parser as _;
use jobset_api::JobSet;
use jobset_e2e::{ControlPlane, paths, wait};
use jobset_webhook::args::Args;
use jobset_webhook::run::Service;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) const LIMIT: Duration = Duration::from_secs(60);
const ACCESS: &str = include_str!("fixtures/access.yaml");
const REGISTRATION: &str = include_str!("fixtures/registration.yaml");

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
        let crd = paths::workspace().join("deploy/crds/jobset.x-k8s.io_jobsets.yaml");
        plane.kubectl(&["apply", "--server-side", "-f", &crd.to_string_lossy()]).await?;
        plane.kubectl(&["wait", "--for=condition=Established", "crd/jobsets.jobset.x-k8s.io", "--timeout=60s"]).await?;
        plane.apply("access.yaml", ACCESS).await?;
        Ok(plane)
    }

    /// Registers the admission service at this address.
    pub(crate) async fn register(&self, address: SocketAddr) -> Result<()> {
        self.apply("registration.yaml", &REGISTRATION.replace("ADDRESS", &address.to_string())).await
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
    async fn service_client(&self) -> Result<Client> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client(), "ns");
        let request = TokenRequest { spec: TokenRequestSpec::default(), ..TokenRequest::default() };
        let token = accounts.create_token_request("hook", &PostParams::default(), &request).await?;
        let mut config = self.plane.client_config();
        config.auth_info = kube::config::AuthInfo {
            token: Some(token.status.context("no token was issued")?.token.into()),
            ..kube::config::AuthInfo::default()
        };
        Ok(Client::try_from(config)?)
    }

    /// Starts an admission service where the API server can call it.
    pub(crate) async fn replica(&self) -> Result<Replica> {
        let host = IpAddr::V4(self.plane.ready().host_address);
        let args = Args::parse_from([
            "jobset-webhook".to_owned(),
            format!("--listen={}", SocketAddr::new(host, 0)),
            "--health-listen=127.0.0.1:0".to_owned(),
            "--namespace=ns".to_owned(),
            "--service-name=hook".to_owned(),
            format!("--extra-dns-name={host}"),
            "--drain-delay=0s".to_owned(),
        ]);
        let service = Service::bind(&args).await?;
        let (address, health, stop) = (service.address()?, service.health_address()?, CancellationToken::new());
        let task = tokio::spawn(service.run(self.service_client().await?, stop.clone()));
        Ok(Replica { address, health, stop, task })
    }

    async fn apply(&self, name: &str, manifest: &str) -> Result<()> {
        let file = self.plane.dir().join(name);
        std::fs::write(&file, manifest)?;
        self.kubectl(&["apply", "--server-side", "-f", &file.to_string_lossy()]).await
    }

    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> Result<()> {
        let output = self.plane.kubectl(arguments).await?;
        ensure!(output.status.success(), "kubectl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }
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
