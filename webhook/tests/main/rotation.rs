//! Certificates as several replicas and a real API server see them.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use jobset_certs::material::Material;
use jobset_certs::secret::{SecretStore, Wanted};
use jobset_certs::{Lifetimes, Names};
use jobset_e2e::wait;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::client::Client;
use crate::cluster::{LIMIT, NAMESPACE, Plane, Replica};

const SECRET: &str = "jobset-webhook-server-cert";
const VALIDATING: &str = "jobset-validating-webhook-configuration";
const MUTATING: &str = "jobset-mutating-webhook-configuration";

impl Plane {
    async fn material(&self) -> Result<Material> {
        let secret = self.secrets().get(SECRET).await?;
        Ok(Material::read(&secret.data.context("the Secret is empty")?))
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client(), NAMESPACE)
    }

    /// The different caBundles of both configurations.
    async fn bundles(&self) -> Result<BTreeSet<Vec<u8>>> {
        let validating = Api::<ValidatingWebhookConfiguration>::all(self.client()).get(VALIDATING).await?;
        let mutating = Api::<MutatingWebhookConfiguration>::all(self.client()).get(MUTATING).await?;
        let validating = validating.webhooks.into_iter().flatten().map(|it| it.client_config.ca_bundle);
        let mutating = mutating.webhooks.into_iter().flatten().map(|it| it.client_config.ca_bundle);
        Ok(validating.chain(mutating).map(|bundle| bundle.unwrap_or_default().0).collect())
    }
}

impl Replica {
    /// Whether a client that trusts only the CA of this Secret accepts the certificate in service.
    async fn serves(&self, material: &Material) -> bool {
        let mut only_current = material.clone();
        only_current.predecessors.clear();
        Client::new(self.address, only_current).connect().await.is_ok()
    }

    async fn wait_until_serving(&self, material: &Material) -> Result<()> {
        wait::until(LIMIT, "the certificate of the Secret in service", async || {
            Ok(self.serves(material).await.then_some(()))
        })
        .await
    }
}

fn certificates(pem: &[u8]) -> usize {
    String::from_utf8_lossy(pem).matches("BEGIN CERTIFICATE").count()
}

#[tokio::test]
async fn replicas_agree_on_one_ca_and_a_rotation_refuses_no_request() -> Result<()> {
    let plane = Arc::new(Plane::start().await?);
    let (a, b, c) = tokio::try_join!(plane.replica(), plane.replica(), plane.replica())?;
    let replicas = [a, b, c];
    let reason = replicas[0].readyz().await?;
    assert!(reason.starts_with("HTTP/1.1 503"), "no configuration, not ready: {reason}");
    plane.register(replicas[0].address).await?;
    for replica in &replicas {
        replica.ready().await?;
    }
    let first = plane.material().await?;
    assert_eq!(first.authorities().len(), 1, "one CA");
    let bundles = plane.bundles().await?;
    assert_eq!(bundles.iter().map(|it| certificates(it)).collect::<Vec<_>>(), [1], "the same one everywhere");
    for replica in &replicas {
        assert!(replica.serves(&first).await);
    }

    // Requests all the while, every one of which has to be answered.
    let load = Load::start(Arc::clone(&plane));
    plane.secrets().delete(SECRET, &DeleteParams::default()).await?;
    let second = wait::until(LIMIT, "a new Secret", async || plane.material().await.map(Some)).await?;
    assert_ne!(first.authority.clone().unwrap().certificate, second.authority.clone().unwrap().certificate);
    assert_eq!(second.authorities().len(), 2, "the CA before stays trusted, although the Secret had gone");
    for replica in &replicas {
        replica.wait_until_serving(&second).await?;
        replica.ready().await?;
    }
    assert_eq!(plane.bundles().await?.iter().map(|it| certificates(it)).collect::<Vec<_>>(), [2]);
    let served = load.stop().await?;
    assert!(served > 20, "{served}");

    // Somebody empties a caBundle.
    let wipe = json!({ "webhooks": [{ "name": "vjobset.kb.io", "clientConfig": { "caBundle": null } }] });
    let validating = Api::<ValidatingWebhookConfiguration>::all(plane.client());
    validating.patch(VALIDATING, &PatchParams::default(), &Patch::Strategic(wipe)).await?;
    wait::until(LIMIT, "the caBundle to come back", async || {
        let bundles = plane.bundles().await?;
        Ok(bundles.iter().all(|bundle| certificates(bundle) > 0).then_some(()))
    })
    .await?;

    for replica in replicas {
        replica.stop().await?;
    }
    Arc::into_inner(plane).context("the plane is in use")?.plane.stop().await
}

#[tokio::test]
async fn of_writers_that_find_no_secret_one_wins_and_the_others_adopt() -> Result<()> {
    const WRITERS: usize = 8;
    const ROUNDS: usize = 25;
    let plane = Plane::start().await?;
    let client = plane.service_client().await?;
    let names = Names::of_service("hook", NAMESPACE)?;
    let wanted = Wanted { names, lifetimes: Lifetimes::default(), overlap: Duration::from_hours(1) };
    for round in 0..ROUNDS {
        let store = SecretStore::new(client.clone(), NAMESPACE, SECRET);
        let writers = (0..WRITERS).map(|_| store.ensure(&wanted, &[], Timestamp::now()));
        let kept = futures::future::try_join_all(writers).await.with_context(|| format!("round {round}"))?;
        let stored = plane.material().await?.authority.unwrap().certificate;
        assert!(kept.iter().all(|it| it.authority.certificate == stored), "round {round}: one CA, the stored one");
        plane.secrets().delete(SECRET, &DeleteParams::default()).await?;
    }
    plane.plane.stop().await
}

/// A client that asks the API server for one JobSet after the other.
struct Load {
    stop: CancellationToken,
    task: tokio::task::JoinHandle<Result<()>>,
    served: Arc<AtomicU32>,
}

impl Load {
    fn start(plane: Arc<Plane>) -> Self {
        let (stop, served) = (CancellationToken::new(), Arc::new(AtomicU32::new(0)));
        let (stopped, counter) = (stop.clone(), Arc::clone(&served));
        let task = tokio::spawn(async move {
            while !stopped.is_cancelled() {
                plane.dry_run(&crate::api_server::good("load")).await.context("refused during a rotation")?;
                counter.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        Self { stop, task, served }
    }

    async fn stop(self) -> Result<u32> {
        self.stop.cancel();
        self.task.await??;
        Ok(self.served.load(Ordering::Relaxed))
    }
}
