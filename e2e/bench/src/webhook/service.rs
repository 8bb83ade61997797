//! The admission service under measurement, and connections to it.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use jobset_api::JobSet;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, Client, Config};
use serde_json::Value;

use super::pod;
use crate::connections;
use crate::program::{Program, free, kubeconfig_of};
use jobset_harness::admission;
use jobset_harness::cluster::ControlPlane;
use jobset_harness::wait::{self, Check};

/// Connections: one from each API server of a replicated control plane.
const CONNECTIONS: usize = 3;
const LIMIT: Duration = Duration::from_mins(1);

/// A running service. It ends when this is dropped.
pub(super) struct Service {
    pub(super) program: Program,
    /// It issues the certificate.
    _certs: Program,
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
    let params = PostParams { dry_run: true, ..PostParams::default() };
    created(plane, &ApiResource::erase::<JobSet>(&()), &params, jobset).await
}

/// The Pod as the API server would store it, and so as the webhook gets it, without what admission adds.
pub(super) async fn pod_dry_run(plane: &ControlPlane, pod: &Value) -> Result<Value> {
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let resource = ApiResource::erase::<Pod>(&());
    // A Pod that comes before its namespace's ServiceAccount is refused.
    let created = async || created(plane, &resource, &params, pod).await.map(Some);
    let mut stored = wait::until(LIMIT, "a Pod to be accepted", created).await?;
    if let Some(spec) = stored["spec"].as_object_mut() {
        spec.remove("affinity");
    }
    Ok(stored)
}

/// Stores the JobSet, with nodes that it avoids, and gives its UID.
pub(super) async fn avoiding(plane: &ControlPlane, jobset: &Value) -> Result<String> {
    let created = created(plane, &ApiResource::erase::<JobSet>(&()), &PostParams::default(), jobset).await?;
    let jobsets: Api<JobSet> = Api::namespaced(plane.client(), "default");
    jobsets.patch_status("bench", &PatchParams::default(), &Patch::Merge(pod::avoiding())).await?;
    Ok(created["metadata"]["uid"].as_str().context("a JobSet without a UID")?.to_owned())
}

async fn created(plane: &ControlPlane, resource: &ApiResource, params: &PostParams, object: &Value) -> Result<Value> {
    let objects: Api<DynamicObject> = Api::namespaced_with(plane.client(), "default", resource);
    let object = serde_json::from_value(object.clone()).context("not an object")?;
    let kind = &resource.kind;
    let created =
        objects.create(params, &object).await.with_context(|| format!("the API server rejects the {kind}"))?;
    serde_json::to_value(created).context("not JSON")
}
