//! What cert-manager has issued, who trusts it, and who serves it.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use jobset_harness::Cluster;
use jobset_harness::group::LIMIT;
use jobset_harness::install::{NAMESPACE, RELAY};
use jobset_harness::order;
use jobset_harness::wait::{self, Check};
use jobset_harness::workload::is_ready;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// The Secret of the own CA.
pub(super) const AUTHORITY: &str = "jobset-webhook-ca";
/// The Secret of the webhook's certificate.
pub(super) const OF_WEBHOOK: &str = "jobset-webhook-certificate";
const OF_RELAY: &str = "jobset-relay-certificate";
/// The Secrets of what the CA has signed.
pub(super) const LEAVES: [&str; 3] = [OF_WEBHOOK, OF_RELAY, "jobset-controller-certificate"];

/// Programs that serve, their Secrets, and the names of their Services.
const SERVERS: [(&str, &str, &str); 2] =
    [("jobset-webhook", OF_WEBHOOK, "jobset-webhook-service"), (RELAY, OF_RELAY, "jobset-relay")];
/// Where both serve.
const PORT: u16 = 9443;
/// Where the webhook has its metrics.
const METRICS_PORT: u16 = 8080;
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const CA: &str = "ca.crt";

/// The Secrets by name, and what each holds.
pub(super) type Stored = BTreeMap<&'static str, BTreeMap<String, Vec<u8>>>;

pub(super) struct Certificates<'a> {
    cluster: &'a Cluster,
}

impl<'a> Certificates<'a> {
    pub(super) fn of(cluster: &'a Cluster) -> Self {
        Self { cluster }
    }

    /// What the Secrets hold.
    pub(super) async fn read(&self) -> Result<Stored> {
        let secrets: Api<Secret> = Api::namespaced(self.cluster.client(), NAMESPACE);
        let mut stored = Stored::new();
        for name in LEAVES.into_iter().chain([AUTHORITY]) {
            let data = secrets.get(name).await?.data.unwrap_or_default();
            stored.insert(name, data.into_iter().map(|(file, bytes)| (file, bytes.0)).collect());
        }
        Ok(stored)
    }

    pub(super) async fn are_of_own_issuer(&self) -> Result<()> {
        let stored = self.read().await?;
        let authority = file(&stored, AUTHORITY, CERTIFICATE)?;
        for name in LEAVES {
            ensure!(file(&stored, name, CA)? == authority, "{name} is not of the own CA");
        }
        Ok(())
    }

    /// Waits until each caBundle has the own CA, and no other.
    pub(super) async fn are_trusted_alone(&self) -> Result<()> {
        wait::until_met(LIMIT, "the own CA alone in all caBundles", || async {
            let stored = self.read().await?;
            let authority = file(&stored, AUTHORITY, CERTIFICATE)?;
            let mut bundles = self.bundles().await?;
            ensure!(bundles.len() > 2, "only {} webhooks", bundles.len());
            bundles.retain(|(_, bundle)| bundle != authority);
            let number = |bundle: &[u8]| CertificateDer::pem_slice_iter(bundle).count();
            let others = bundles.iter().map(|(webhook, bundle)| format!("{webhook} has {} CAs", number(bundle)));
            let others: Vec<_> = others.collect();
            Ok(if others.is_empty() { Check::Met(()) } else { Check::Unmet(others.join(", ")) })
        })
        .await
    }

    /// The webhooks of both configurations, each with its caBundle.
    async fn bundles(&self) -> Result<Vec<(String, Vec<u8>)>> {
        let mutating: Api<MutatingWebhookConfiguration> = Api::all(self.cluster.client());
        let validating: Api<ValidatingWebhookConfiguration> = Api::all(self.cluster.client());
        let mutating = mutating.get("jobset-mutating-webhook-configuration").await?.webhooks;
        let validating = validating.get("jobset-validating-webhook-configuration").await?.webhooks;
        let mutating = mutating.into_iter().flatten().map(|it| (it.name, it.client_config.ca_bundle));
        let validating = validating.into_iter().flatten().map(|it| (it.name, it.client_config.ca_bundle));
        Ok(mutating.chain(validating).map(|(name, bundle)| (name, bundle.unwrap_or_default().0)).collect())
    }

    /// Waits until these Secrets have new certificates, and those alone. A certificate gets a new key; the CA keeps its own.
    pub(super) async fn are_renewed(&self, names: &[&str], before: &Stored) -> Result<()> {
        wait::until_met(LIMIT, format!("new certificates in {names:?}"), || async {
            let stored = self.read().await?;
            for (name, old) in before {
                let changed = |file: &str| stored[name].get(file) != old.get(file);
                if changed(CERTIFICATE) != names.contains(name) {
                    return Ok(Check::Unmet(format!("{name} has changed: {}", changed(CERTIFICATE))));
                }
                ensure!(changed(KEY) == (changed(CERTIFICATE) && *name != AUTHORITY), "the key of {name}");
            }
            Ok(Check::Met(()))
        })
        .await
    }

    /// All keys are others, that of the CA, too.
    pub(super) async fn have_other_keys(&self, before: &Stored) -> Result<()> {
        let stored = self.read().await?;
        for name in LEAVES.into_iter().chain([AUTHORITY]) {
            ensure!(file(&stored, name, KEY)? != file(before, name, KEY)?, "{name} has its key still");
        }
        Ok(())
    }

    /// Waits until all replicas serve what their Secret holds, and whoever trusts its CA alone accepts it.
    pub(super) async fn are_served(&self) -> Result<()> {
        for (program, secret, service) in SERVERS {
            wait::until_met(LIMIT, format!("all of {program} to serve {secret}"), || async {
                let stored = self.read().await?;
                let wanted = CertificateDer::from_pem_slice(file(&stored, secret, CERTIFICATE)?)?;
                let pods = self.replicas(program).await?;
                if pods.len() != 2 {
                    return Ok(Check::Unmet(format!("{} replicas are ready", pods.len())));
                }
                for pod in pods {
                    let serves = served(&pod, service, file(&stored, secret, CA)?).await;
                    if serves.with_context(|| pod.name_any())? != wanted {
                        return Ok(Check::Unmet(format!("{} serves another one", pod.name_any())));
                    }
                }
                Ok(Check::Met(()))
            })
            .await?;
        }
        Ok(())
    }

    /// No webhook that runs has had another certificate before the one that it serves.
    pub(super) async fn were_there_at_the_start(&self) -> Result<()> {
        for pod in self.replicas("jobset-webhook").await? {
            let metrics = order::get(&pod, METRICS_PORT, "/metrics").await?;
            let reloads = metrics.lines().find_map(|line| line.strip_prefix("jobset_webhook_cert_reloads_total "));
            ensure!(reloads == Some("0"), "{} has replaced its certificate: {reloads:?}", pod.name_any());
        }
        Ok(())
    }

    /// The Pods of a program that are ready.
    async fn replicas(&self, program: &str) -> Result<Vec<Pod>> {
        let pods: Api<Pod> = Api::namespaced(self.cluster.client(), NAMESPACE);
        let labels = format!("app.kubernetes.io/name={program}");
        let mut pods = pods.list(&ListParams::default().labels(&labels)).await?.items;
        pods.retain(is_ready);
        Ok(pods)
    }
}

fn file<'a>(stored: &'a Stored, secret: &str, name: &str) -> Result<&'a [u8]> {
    let found = stored.get(secret).and_then(|files| files.get(name));
    found.map(Vec::as_slice).with_context(|| format!("{secret} has no {name}"))
}

/// The certificate that a Pod serves to whoever trusts these CAs alone.
async fn served(pod: &Pod, service: &str, authorities: &[u8]) -> Result<CertificateDer<'static>> {
    let mut roots = RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(authorities) {
        roots.add(authority?)?;
    }
    let config =
        ClientConfig::builder_with_provider(Arc::new(default_provider())).with_safe_default_protocol_versions()?;
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let address = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()).context("the Pod has no address")?;
    let stream = TcpStream::connect((address, PORT)).await?;
    let name = ServerName::try_from(format!("{service}.{NAMESPACE}.svc"))?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    let chain = stream.get_ref().1.peer_certificates().context("no certificate is served")?;
    Ok(chain.first().context("no certificate is served")?.clone().into_owned())
}
