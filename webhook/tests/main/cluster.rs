//! An API server with the CRD, and admission services that it calls at their URL.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use clap::Parser as _;
use hyper::Request;
use jobset_api::JobSet;
pub(crate) use jobset_harness::admission::NAMESPACE;
use jobset_harness::{ControlPlane, admission, install, paths, wait};
use jobset_webhook::args::Args;
use jobset_webhook::run::Service;
use kube::api::PostParams;
use kube::client::ClientBuilder;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};
use tower::util::MapRequestLayer;

pub(crate) const LIMIT: Duration = Duration::from_mins(1);
pub(crate) const VALIDATING: &str = "jobset-validating-webhook-configuration";
pub(crate) const MUTATING: &str = "jobset-mutating-webhook-configuration";

/// The control plane with the CRD, identities with the permissions of the admission service and of `jobset-certs`, and the
/// latter at work.
pub(crate) struct Plane {
    pub(crate) plane: ControlPlane,
    issuer: Option<Issuer>,
}

/// A running `jobset-certs`. It ends with this value.
struct Issuer {
    health: SocketAddr,
    _stop: DropGuard,
}

static SHARED: OnceCell<Plane> = OnceCell::const_new();

/// An admission service that has its ports.
pub(crate) struct Bound(Service);

/// A running admission service.
pub(crate) struct Replica {
    pub(crate) address: SocketAddr,
    pub(crate) health: SocketAddr,
    pub(crate) metrics: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<Result<(), jobset_webhook::Error>>,
}

impl Plane {
    pub(crate) async fn start() -> Result<Self> {
        Self::of(ControlPlane::start().await?).await
    }

    /// The one that tests share which need admission without flags, in which it is registered and runs. What tests create is in
    /// namespaces of their own.
    pub(crate) async fn shared() -> Result<&'static Self> {
        SHARED.get_or_try_init(start_shared).await
    }

    /// Makes this control plane ready for admission services.
    pub(crate) async fn of(plane: ControlPlane) -> Result<Self> {
        let mut plane = Self::without_issuer(plane).await?;
        plane.start_issuer(&[]).await?;
        Ok(plane)
    }

    /// The same, and nobody issues certificates yet.
    pub(crate) async fn without_issuer(plane: ControlPlane) -> Result<Self> {
        let plane = Self { plane, issuer: None };
        install::crd(&plane.plane).await?;
        admission::permit(&plane.plane).await?;
        Ok(plane)
    }

    /// Starts `jobset-certs` with these flags, in place of the one that runs.
    pub(crate) async fn start_issuer(&mut self, flags: &[&str]) -> Result<()> {
        self.issuer = None;
        let own = [
            "jobset-certs".to_owned(),
            format!("--namespace={NAMESPACE}"),
            "--health-listen=127.0.0.1:0".to_owned(),
            format!("--extra-dns-name={}", self.plane.ready().host_address),
        ];
        let args = jobset_certs::args::Args::parse_from(own.into_iter().chain(flags.iter().map(|&it| it.to_owned())));
        let (program, stop) = (jobset_certs::Program::open(&args)?, CancellationToken::new());
        let health = program.address()?;
        tokio::spawn(program.run(self.client_of(admission::CERTS).await?, stop.clone()));
        self.issuer = Some(Issuer { health, _stop: stop.drop_guard() });
        Ok(())
    }

    pub(crate) fn stop_issuer(&mut self) {
        self.issuer = None;
    }

    fn issuer_health(&self) -> Result<SocketAddr> {
        Ok(self.issuer.as_ref().context("jobset-certs does not run")?.health)
    }

    /// Answer of `/readyz` of `jobset-certs`, status and text.
    pub(crate) async fn issuer_readyz(&self) -> Result<String> {
        admission::readyz(self.issuer_health()?).await
    }

    /// Waits until that begins and goes on like this.
    pub(crate) async fn issuer_says(&self, begin: &str, part: &str) -> Result<()> {
        says(self.issuer_health()?, begin, part).await
    }

    /// Without any permissions.
    pub(crate) async fn bare() -> Result<Self> {
        let plane = Self { plane: ControlPlane::start().await?, issuer: None };
        install::crd(&plane.plane).await?;
        plane.kubectl(&["create", "namespace", NAMESPACE]).await?;
        Ok(plane)
    }

    /// Registers the admission service at this address.
    pub(crate) async fn register(&self, address: SocketAddr) -> Result<()> {
        self.register_all(&[address]).await
    }

    pub(crate) async fn end(self, replica: Replica) -> Result<()> {
        replica.stop().await?;
        self.plane.stop().await
    }

    /// Registers the admission service at each of these addresses.
    pub(crate) async fn register_all(&self, addresses: &[SocketAddr]) -> Result<()> {
        admission::register_all(&self.plane, addresses).await?;
        if self.issuer.is_some() { self.wait_until_bundles_are_filled().await } else { Ok(()) }
    }

    /// Has the API server check what became of Pods that ask for exclusive placement.
    pub(crate) async fn check_placement(&self) -> Result<()> {
        let policy = paths::workspace().join("deploy/kustomize/common/placement.yaml");
        self.kubectl(&["apply", "--server-side", "-f", &policy.to_string_lossy()]).await
    }

    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> Result<()> {
        install::kubectl(&self.plane, arguments).await.map(drop)
    }

    pub(crate) fn client(&self) -> Client {
        self.plane.client()
    }

    pub(crate) fn jobsets(&self) -> Api<JobSet> {
        Api::namespaced(self.client(), "default")
    }

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
        self.client_of(admission::WEBHOOK).await
    }

    /// A client with the permissions of this ServiceAccount.
    async fn client_of(&self, account: &str) -> Result<Client> {
        let token = Some(admission::token(&self.plane, account).await?.into());
        let mut config = self.plane.client_config();
        config.auth_info = kube::config::AuthInfo { token, ..kube::config::AuthInfo::default() };
        Ok(Client::try_from(config)?)
    }

    pub(crate) fn counting_client(&self) -> Result<(Client, Arc<AtomicU32>)> {
        let requests = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&requests);
        let count = MapRequestLayer::new(move |request: Request<_>| {
            counted.fetch_add(1, Ordering::Relaxed);
            request
        });
        Ok((ClientBuilder::try_from(self.plane.client_config())?.with_layer(&count).build(), requests))
    }

    /// Starts an admission service where the API server can call it.
    pub(crate) async fn replica(&self) -> Result<Replica> {
        self.replica_with(&[]).await
    }

    pub(crate) async fn replica_with(&self, flags: &[&str]) -> Result<Replica> {
        self.bind(flags)?.run(self.service_client().await?)
    }

    /// An admission service that has its ports and does nothing yet.
    pub(crate) fn bind(&self, flags: &[&str]) -> Result<Bound> {
        let host = self.plane.ready().host_address;
        let own = [
            "jobset-webhook".to_owned(),
            format!("--listen={}", SocketAddr::new(host, 0)),
            "--health-listen=127.0.0.1:0".to_owned(),
            "--metrics-listen=127.0.0.1:0".to_owned(),
            format!("--namespace={NAMESPACE}"),
            format!("--extra-dns-name={host}"),
            "--drain-delay=0s".to_owned(),
            format!("--agent-image={}", install::AGENT_IMAGE),
        ];
        let args = Args::parse_from(own.into_iter().chain(flags.iter().map(|&it| it.to_owned())));
        Ok(Bound(Service::bind(&args)?))
    }

    /// Starts an admission service, registers it, and waits until the API server asks it about every write.
    pub(crate) async fn admission(&self) -> Result<Replica> {
        self.admission_with(&[]).await
    }

    pub(crate) async fn admission_with(&self, flags: &[&str]) -> Result<Replica> {
        let replica = self.replica_with(flags).await?;
        self.register(replica.address).await?;
        replica.ready().await?;
        let jobset = json!({ "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": { "name": "probe" }, "spec": {} });
        let mut refused = jobset.clone();
        refused["spec"] = json!({ "managedBy": "nobody", "coordinator": { "replicatedJob": "nobody" } });
        wait::until_met(LIMIT, "the API server to ask for admission", async || {
            let defaulted = self.dry_run(&jobset).await?.spec.network.is_some();
            let denied = matches!(self.dry_run(&refused).await, Err(kube::Error::Api(status)) if status.code == 422);
            let seen = format!("defaulted: {defaulted}, refused: {denied}");
            Ok(if defaulted && denied { wait::Check::Met(()) } else { wait::Check::Unmet(seen) })
        })
        .await?;
        Ok(replica)
    }
}

/// Waits until `/readyz` at this address begins and goes on like this.
pub(crate) async fn says(health: SocketAddr, begin: &str, part: &str) -> Result<()> {
    wait::until_met(LIMIT, format!("readiness to say {begin:?} and {part:?}"), async || {
        let answer = admission::readyz(health).await?;
        let said = answer.starts_with(begin) && answer.contains(part);
        Ok(if said { wait::Check::Met(()) } else { wait::Check::Unmet(answer) })
    })
    .await
}

/// Starts what the tests share, in a runtime of its own that outlives each of them.
async fn start_shared() -> Result<Plane> {
    let (tell, told) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let start = async {
            let plane = Plane::start().await?;
            let replica = plane.admission().await?;
            Ok((plane, replica))
        };
        tokio::runtime::Runtime::new().unwrap().block_on(async {
            match start.await {
                Ok((plane, _replica)) => {
                    assert!(tell.send(Ok(plane)).is_ok());
                    std::future::pending::<()>().await;
                }
                Err(error) => assert!(tell.send(Err(error)).is_ok()),
            }
        });
    });
    told.await?
}

impl Bound {
    pub(crate) fn address(&self) -> Result<SocketAddr> {
        Ok(self.0.addresses()?[0])
    }

    pub(crate) fn run(self, client: Client) -> Result<Replica> {
        let ([address, health, metrics], stop) = (self.0.addresses()?, CancellationToken::new());
        let task = tokio::spawn(self.0.run(client, stop.clone()));
        Ok(Replica { address, health, metrics, stop, task })
    }
}

impl Replica {
    /// Answer of `/readyz`, status and text.
    pub(crate) async fn readyz(&self) -> Result<String> {
        admission::readyz(self.health).await
    }

    pub(crate) async fn ready(&self) -> Result<()> {
        says(self.health, "HTTP/1.1 200", "").await
    }

    pub(crate) async fn stop(self) -> Result<()> {
        self.stop.cancel();
        Ok(self.task.await??)
    }
}
