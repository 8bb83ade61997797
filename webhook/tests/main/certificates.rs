//! What tests see of the certificates of several replicas: the Secret, the caBundles, and what is served.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use jobset_certs::material::Material;
use jobset_harness::wait;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{Patch, PatchParams};
use rustls::pki_types::CertificateDer;
use serde_json::json;

use crate::client::{Client, authority};
use crate::cluster::{LIMIT, MUTATING, NAMESPACE, Plane, Replica, VALIDATING, says};

pub(crate) const SECRET: &str = "jobset-webhook-server-cert";
/// The Secret with the certificate that is to be served.
pub(crate) const LEAF: &str = "jobset-webhook-leaf";

impl Plane {
    pub(crate) async fn material(&self) -> Result<Material> {
        let secret = self.secrets().get(SECRET).await?;
        Ok(Material::read(&secret.data.context("the Secret is empty")?))
    }

    pub(crate) fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client(), NAMESPACE)
    }

    pub(crate) fn validating(&self) -> Api<ValidatingWebhookConfiguration> {
        Api::all(self.client())
    }

    pub(crate) fn mutating(&self) -> Api<MutatingWebhookConfiguration> {
        Api::all(self.client())
    }

    /// The different caBundles of both configurations.
    pub(crate) async fn bundles(&self) -> Result<BTreeSet<Vec<u8>>> {
        let validating = self.validating().get(VALIDATING).await?.webhooks.into_iter().flatten();
        let mutating = self.mutating().get(MUTATING).await?.webhooks.into_iter().flatten();
        let bundles = validating.map(|it| it.client_config.ca_bundle);
        let bundles = bundles.chain(mutating.map(|it| it.client_config.ca_bundle));
        Ok(bundles.map(|bundle| bundle.unwrap_or_default().0).collect())
    }

    /// Takes all CAs away from one webhook.
    pub(crate) async fn empty_a_bundle(&self) -> Result<()> {
        let wipe = json!({ "webhooks": [{ "name": "vjobset.kb.io", "clientConfig": { "caBundle": null } }] });
        self.validating().patch(VALIDATING, &PatchParams::default(), &Patch::Strategic(wipe)).await?;
        Ok(())
    }

    pub(crate) async fn wait_until_bundles_are_filled(&self) -> Result<()> {
        wait::until(LIMIT, "the caBundle to come back", async || {
            Ok(self.bundles().await?.iter().all(|bundle| certificates(bundle) > 0).then_some(()))
        })
        .await
    }

    /// Fills the caBundles of both configurations, as cert-manager's cainjector does.
    pub(crate) async fn inject(&self, bundle: &[u8]) -> Result<()> {
        let params = PatchParams { field_manager: Some("cainjector".to_owned()), ..PatchParams::default() };
        let patch = |names: Vec<String>| {
            let bundle = ByteString(bundle.to_vec());
            let webhooks: Vec<_> =
                names.iter().map(|name| json!({ "name": name, "clientConfig": { "caBundle": bundle } })).collect();
            Patch::Strategic(json!({ "webhooks": webhooks }))
        };
        let validating = self.validating().get(VALIDATING).await?.webhooks.into_iter().flatten();
        self.validating().patch(VALIDATING, &params, &patch(validating.map(|it| it.name).collect())).await?;
        let mutating = self.mutating().get(MUTATING).await?.webhooks.into_iter().flatten();
        self.mutating().patch(MUTATING, &params, &patch(mutating.map(|it| it.name).collect())).await?;
        Ok(())
    }

    /// Who has written the configurations.
    pub(crate) async fn writers(&self) -> Result<BTreeSet<String>> {
        let validating = self.validating().get(VALIDATING).await?.metadata.managed_fields;
        let mutating = self.mutating().get(MUTATING).await?.metadata.managed_fields;
        Ok(validating.into_iter().chain(mutating).flatten().filter_map(|it| it.manager).collect())
    }
}

impl Replica {
    /// Whether a client that trusts only the CA of this Secret, and none before it, accepts the certificate in service.
    pub(crate) async fn serves(&self, material: &Material) -> bool {
        Client::new(self.address, authority(material)).connect().await.is_ok()
    }

    /// Waits until it is not ready, for this reason.
    pub(crate) async fn not_ready(&self, reason: &str) -> Result<()> {
        says(self.health, "HTTP/1.1 503", reason).await
    }

    pub(crate) async fn wait_until_serving(&self, material: &Material) -> Result<()> {
        wait::until(LIMIT, "the CA of the Secret in service", async || Ok(self.serves(material).await.then_some(())))
            .await
    }

    /// The certificate in service, if its CA is that of the Secret.
    pub(crate) async fn leaf(&self, material: &Material) -> Result<CertificateDer<'static>> {
        let stream = Client::new(self.address, authority(material)).connect().await?;
        let chain = stream.get_ref().1.peer_certificates().context("no certificate")?;
        chain.first().cloned().context("no certificate")
    }

    /// Waits until the certificate of the Secret is in service.
    pub(crate) async fn wait_until_it_serves_that_of(&self, material: &Material) -> Result<()> {
        let wanted = material.serving.as_ref().ok().and_then(|it| it.certificate());
        wait::until(LIMIT, "the certificate of the Secret in service", async || {
            Ok((self.leaf(material).await.ok().as_ref() == wanted).then_some(()))
        })
        .await
    }
}

/// The number of certificates in a bundle.
pub(crate) fn certificates(pem: &[u8]) -> usize {
    String::from_utf8_lossy(pem).matches("BEGIN CERTIFICATE").count()
}
