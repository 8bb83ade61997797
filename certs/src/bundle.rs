//! The `caBundle` of the webhook configurations: by it the API server decides whether to trust this service.
//!
//! [`merge`] decides what it should be, [`publish`] writes it, and only where it differs.

use std::collections::BTreeSet;
use std::fmt;
use std::fmt::Debug;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use rustls_pki_types::CertificateDer;
use serde::de::DeserializeOwned;
use serde_json::json;
use tracing::info;

use crate::material::{Authority, Serving};
use crate::{Error, Names, x509};

/// Patches tried in one call; each one that is lost was won by another writer of the same object.
const ATTEMPTS: u32 = 5;
const FIELD_MANAGER: &str = "jobset-webhook";

/// A webhook configuration by kind and name. All its webhooks are this service's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Configuration {
    /// ValidatingWebhookConfiguration of that name.
    Validating(String),
    /// MutatingWebhookConfiguration of that name.
    Mutating(String),
}

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Validating(name) => write!(f, "ValidatingWebhookConfiguration {name}"),
            Self::Mutating(name) => write!(f, "MutatingWebhookConfiguration {name}"),
        }
    }
}

/// The caBundle that one webhook has in the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveBundle {
    /// Configuration that the webhook belongs to.
    pub configuration: Configuration,
    /// Name of the webhook.
    pub webhook: String,
    /// Its CAs, in PEM; empty where there are none.
    pub pem: Vec<u8>,
}

impl LiveBundle {
    /// Whether the API server would now accept the certificate for all of these names.
    pub fn trusts(&self, serving: &Serving, names: &Names, now: Timestamp) -> bool {
        serving
            .certificate()
            .is_some_and(|certificate| x509::is_trusted(certificate, &x509::certificates(&self.pem), names, now))
    }
}

/// The bundle that a webhook should have, or `None` when the one it has will do.
///
/// The CA comes first. Its predecessors, and other CAs found in the live bundle, stay for the overlap, counted from the
/// CA's issue, while replicas still serve certificates that they signed. Whatever is newer than the CA stays too: then
/// this replica is the one that has seen an older Secret. Expired ones go.
pub fn merge(
    live: &[u8],
    authority: &Authority,
    predecessors: &[CertificateDer<'static>],
    now: Timestamp,
    overlap: Duration,
) -> Option<Vec<u8>> {
    let live = x509::certificates(live);
    let overlapping = authority.validity.not_before.checked_add(overlap).is_ok_and(|end| now <= end);
    let stays = |certificate: &CertificateDer<'_>| {
        x509::properties(certificate).is_some_and(|it| {
            now <= it.validity.not_after && (overlapping || it.validity.not_before > authority.validity.not_before)
        })
    };
    let mut wanted = vec![&authority.certificate];
    for certificate in predecessors.iter().chain(&live) {
        if !wanted.contains(&certificate) && stays(certificate) {
            wanted.push(certificate);
        }
    }
    // The order does not matter to anybody. If it did here, two writers could take turns for ever.
    let set = |certificates: &[&CertificateDer<'_>]| -> BTreeSet<Vec<u8>> {
        certificates.iter().map(|certificate| certificate.to_vec()).collect()
    };
    if set(&wanted) == set(&live.iter().collect::<Vec<_>>()) {
        return None;
    }
    Some(wanted.into_iter().map(x509::to_pem).collect::<String>().into_bytes())
}

/// Merges the CAs into every webhook of the configuration, and returns the bundles as they are afterwards.
///
/// # Errors
/// When the configuration does not exist, or cannot be read or patched.
pub async fn publish(
    client: &Client,
    configuration: &Configuration,
    merge: impl Fn(&[u8]) -> Option<Vec<u8>>,
) -> Result<Vec<LiveBundle>, Error> {
    match configuration {
        Configuration::Validating(name) => {
            publish_to::<ValidatingWebhookConfiguration>(client, name, configuration, merge).await
        }
        Configuration::Mutating(name) => {
            publish_to::<MutatingWebhookConfiguration>(client, name, configuration, merge).await
        }
    }
}

async fn publish_to<K: WebhookConfiguration>(
    client: &Client,
    name: &str,
    configuration: &Configuration,
    merge: impl Fn(&[u8]) -> Option<Vec<u8>>,
) -> Result<Vec<LiveBundle>, Error> {
    let api = Api::<K>::all(client.clone());
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let mut attempt = 1;
    loop {
        let read = api.get(name).await;
        let found = read.map_err(|source| Error::ReadConfiguration { configuration: configuration.clone(), source })?;
        let changes: Vec<_> = found
            .webhooks()
            .filter_map(|(webhook, client_config)| {
                let bundle = merge(bundle_of(client_config))?;
                Some(json!({ "name": webhook, "clientConfig": { "caBundle": ByteString(bundle) } }))
            })
            .collect();
        if changes.is_empty() {
            return Ok(found.bundles(configuration));
        }
        // Merged by the webhooks' names, and only into the version that was read.
        let patch = json!({ "metadata": { "resourceVersion": found.resource_version() }, "webhooks": changes });
        match api.patch(name, &params, &Patch::Strategic(patch)).await {
            Ok(patched) => {
                info!(%configuration, webhooks = changes.len(), "wrote caBundle");
                return Ok(patched.bundles(configuration));
            }
            Err(kube::Error::Api(status)) if status.is_conflict() && attempt < ATTEMPTS => attempt += 1,
            Err(source) => {
                return Err(Error::PatchConfiguration { configuration: configuration.clone(), source });
            }
        }
    }
}

fn bundle_of(client_config: &WebhookClientConfig) -> &[u8] {
    client_config.ca_bundle.as_ref().map_or(&[], |bundle| bundle.0.as_slice())
}

/// What the two kinds have in common.
trait WebhookConfiguration: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned {
    fn webhooks(&self) -> impl Iterator<Item = (&str, &WebhookClientConfig)>;

    fn bundles(&self, configuration: &Configuration) -> Vec<LiveBundle> {
        self.webhooks()
            .map(|(webhook, client_config)| LiveBundle {
                configuration: configuration.clone(),
                webhook: webhook.to_owned(),
                pem: bundle_of(client_config).to_vec(),
            })
            .collect()
    }
}

impl WebhookConfiguration for ValidatingWebhookConfiguration {
    fn webhooks(&self) -> impl Iterator<Item = (&str, &WebhookClientConfig)> {
        self.webhooks.iter().flatten().map(|webhook| (webhook.name.as_str(), &webhook.client_config))
    }
}

impl WebhookConfiguration for MutatingWebhookConfiguration {
    fn webhooks(&self) -> impl Iterator<Item = (&str, &WebhookClientConfig)> {
        self.webhooks.iter().flatten().map(|webhook| (webhook.name.as_str(), &webhook.client_config))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Lifetimes;
    use crate::issue;
    use crate::material::{self, Material};

    const ISSUED: Timestamp = Timestamp::constant(1_800_000_000, 0);
    const HOUR: i64 = 3600;
    const OVERLAP: Duration = Duration::from_hours(24);

    fn at(seconds: i64) -> Timestamp {
        ISSUED + jiff::SignedDuration::from_secs(seconds)
    }

    fn authority(issued: i64) -> Authority {
        let lifetimes = Lifetimes::default();
        let authority = issue::authority(at(issued), &lifetimes).unwrap();
        let data = material::with_new_serving(&authority, &[], &Names::default(), at(issued), &lifetimes).unwrap();
        Material::read(&data).authority.unwrap()
    }

    fn pem(authorities: &[&Authority]) -> Vec<u8> {
        authorities.iter().map(|it| x509::to_pem(&it.certificate)).collect::<String>().into_bytes()
    }

    fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
        x509::certificates(pem)
    }

    #[test]
    fn an_empty_bundle_gets_the_ca() {
        let ca = authority(0);
        assert_eq!(merge(b"", &ca, &[], at(0), OVERLAP), Some(pem(&[&ca])));
        assert_eq!(merge(b"\n\xff", &ca, &[], at(0), OVERLAP), Some(pem(&[&ca])), "damaged");
    }

    #[test]
    fn a_bundle_that_will_do_is_left_alone_in_any_order() {
        let (old, new) = (authority(0), authority(HOUR));
        for live in [pem(&[&old, &new]), pem(&[&new, &old])] {
            assert_eq!(merge(&live, &new, std::slice::from_ref(&old.certificate), at(HOUR), OVERLAP), None);
        }
    }

    #[test]
    fn a_rotation_keeps_the_predecessor_and_what_is_live_for_the_overlap() {
        let (old, foreign, new) = (authority(0), authority(10), authority(HOUR));
        let predecessors = [old.certificate.clone()];
        let merged = merge(&pem(&[&foreign]), &new, &predecessors, at(HOUR), OVERLAP).unwrap();
        assert_eq!(merged, pem(&[&new, &old, &foreign]));
        assert_eq!(merge(&merged, &new, &predecessors, at(23 * HOUR), OVERLAP), None, "within the overlap");
        let later = merge(&merged, &new, &predecessors, at(26 * HOUR), OVERLAP).unwrap();
        assert_eq!(later, pem(&[&new]), "after it");
    }

    #[test]
    fn a_replica_with_an_older_secret_does_not_remove_a_newer_ca() {
        let (old, new) = (authority(0), authority(100 * HOUR));
        let live = pem(&[&new]);
        let merged = merge(&live, &old, &[], at(100 * HOUR), OVERLAP).unwrap();
        assert_eq!(certificates(&merged), [old.certificate.clone(), new.certificate.clone()]);
        assert_eq!(merge(&merged, &old, &[], at(100 * HOUR), OVERLAP), None);
    }

    #[test]
    fn an_expired_ca_goes_even_within_the_overlap() {
        let short = Lifetimes::new(Duration::from_mins(2), Duration::from_mins(1)).unwrap();
        let expired = issue::authority(at(-300), &short).unwrap().certificate;
        let ca = authority(0);
        let live = [expired.as_bytes(), &pem(&[&ca])].concat();
        assert_eq!(merge(&live, &ca, &[], at(0), OVERLAP), Some(pem(&[&ca])));
    }
}
