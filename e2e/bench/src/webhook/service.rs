//! The admission service under measurement, and connections to it.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::{Api, Client, Config};
use serde_json::Value;

use crate::connections;
use crate::program::{Program, free, kubeconfig_of};
use jobset_harness::admission;
use jobset_harness::cluster::ControlPlane;
use jobset_harness::wait::{self, Check};

/// Connections: one from each API server of a replicated control plane.
const CONNECTIONS: usize = 3;
/// Longest wait for the service.
const LIMIT: Duration = Duration::from_mins(1);

/// A running service. It ends when this is dropped.
pub(super) struct Service {
    pub(super) program: Program,
    /// It issues the certificate.
    _certs: Program,
    /// Address of the webhooks.
    pub(super) address: SocketAddr,
    health: SocketAddr,
}

impl Service {
    /// Starts the program where the API server can call it, and the one beside it that issues its certificate, each with the
    /// permissions that it is deployed with.
    pub(super) async fn start(program: &Path, plane: &ControlPlane) -> Result<Self> {
        let host = plane.ready().host_address;
        let (address, health) = (free(host)?, free(host)?);
        let kubeconfig = plane.dir().join("jobset-webhook.kubeconfig");
        std::fs::write(&kubeconfig, kubeconfig_of(plane, &admission::token(plane, admission::WEBHOOK).await?)?)?;
        let of_certs = plane.dir().join("jobset-certs.kubeconfig");
        std::fs::write(&of_certs, kubeconfig_of(plane, &admission::token(plane, admission::CERTS).await?)?)?;
        let arguments = [
            format!("--namespace={}", admission::NAMESPACE),
            "--health-listen=127.0.0.1:0".to_owned(),
            format!("--extra-dns-name={host}"),
        ];
        let beside = program.with_file_name("jobset-certs");
        let certs = Program::start("jobset-certs", &beside, arguments, &[], &of_certs, plane)?;
        let arguments = [
            format!("--namespace={}", admission::NAMESPACE),
            format!("--listen={address}"),
            format!("--health-listen={health}"),
            "--metrics-listen=127.0.0.1:0".to_owned(),
            format!("--extra-dns-name={host}"),
        ];
        let program = Program::start("jobset-webhook", program, arguments, &[], &kubeconfig, plane)?;
        Ok(Self { program, _certs: certs, address, health })
    }

    /// Waits until the service says that the API server can call it.
    pub(super) async fn ready(&mut self) -> Result<()> {
        let health = self.health;
        let ready = wait::until_met(LIMIT, "the admission service to be ready", async || {
            let answer = admission::readyz(health).await?;
            Ok(if answer.starts_with("HTTP/1.1 200") { Check::Met(()) } else { Check::Unmet(answer) })
        });
        self.program.while_running(ready).await
    }

    /// Clients with one connection each. The service is the benchmark's own, so its certificate is not verified.
    pub(super) fn clients(&self) -> Result<Vec<Client>> {
        let mut config = Config::new(format!("https://{}", self.address).parse().context("not an address")?);
        config.accept_invalid_certs = true;
        (0..CONNECTIONS).map(|_| connections::client(&config)).collect()
    }
}

/// The JobSet as the API server would store it.
pub(super) async fn dry_run(plane: &ControlPlane, jobset: &Value) -> Result<Value> {
    let resource = ApiResource::erase::<jobset_api::JobSet>(&());
    let jobsets: Api<DynamicObject> = Api::namespaced_with(plane.client(), "default", &resource);
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let object = serde_json::from_value(jobset.clone()).context("not an object")?;
    let created = jobsets.create(&params, &object).await.context("the API server rejects the JobSet")?;
    serde_json::to_value(created).context("not JSON")
}
