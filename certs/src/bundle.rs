//! The `caBundle` of the webhook configurations: by it the API server decides whether to trust this service.
//!
//! [`merge`] decides what it should be, [`publish`] writes it, and only where it differs.

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

use crate::material::Serving;
use crate::x509::{self, Properties};
use crate::{Error, Names};

/// Patches tried in one call; each one that is lost was won by another writer of the same object.
const ATTEMPTS: u32 = 5;
const FIELD_MANAGER: &str = "jobset-webhook";
/// How many predecessors come before the CAs that others have put into the bundle. It leaves room for these.
const BEFORE_OTHERS: usize = 3;

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
        x509::is_trusted(&serving.certified.cert, &x509::certificates(&self.pem), names, now)
    }
}

/// The bundle that a webhook should have, or `None` when the one it has will do.
///
/// The CA, which is the first of `authorities`, comes first. Its predecessors, which are the others, and the newest of the
/// CAs found in the live bundle stay for the overlap, counted from the CA's issue, while replicas still serve
/// certificates that they signed; [`x509::PREDECESSORS`] of them at most. Whatever is newer than the CA stays too: then
/// this replica is the one that has seen an older Secret. Expired ones go.
///
/// Two replicas that do not agree, on the time or on the CA, must not take turns for ever. So the order does not matter,
/// a full bundle is not changed for a predecessor's sake, and an expired CA, which does no harm, is no reason to write.
pub fn merge(
    live: &[u8],
    authorities: &[CertificateDer<'static>],
    now: Timestamp,
    overlap: Duration,
) -> Option<Vec<u8>> {
    let (authority, predecessors) = authorities.split_first()?;
    let issued = x509::properties(authority)?.validity.not_before;
    let overlapping = issued.checked_add(overlap).is_ok_and(|end| now <= end);
    let live = x509::certificates(live);
    let valid = |it: &Properties| now <= it.validity.not_after;
    let overlaps = |it: &Properties| overlapping || it.validity.not_before > issued;
    let stays = |certificate: &&CertificateDer<'_>| {
        *certificate != authority && x509::properties(certificate).is_some_and(|it| valid(&it) && overlaps(&it))
    };
    let outlived = |certificate: &CertificateDer<'_>| {
        certificate != authority && x509::properties(certificate).is_none_or(|it| valid(&it) && !overlaps(&it))
    };
    let mut kept: Vec<_> = predecessors.iter().filter(stays).take(x509::PREDECESSORS).collect();
    let full = live.len() > x509::PREDECESSORS;
    let complete = live.contains(authority) && (full || kept.iter().all(|certificate| live.contains(certificate)));
    if complete && live.len() <= x509::PREDECESSORS + 1 && !live.iter().any(outlived) {
        return None;
    }
    let others: Vec<_> = live.iter().filter(stays).filter(|certificate| !predecessors.contains(certificate)).collect();
    let older = kept.split_off(kept.len().min(BEFORE_OTHERS));
    kept.extend(x509::newest(others, x509::PREDECESSORS - kept.len()));
    let room = x509::PREDECESSORS - kept.len();
    kept.extend(older.into_iter().take(room));
    Some(std::iter::once(authority).chain(kept).map(x509::to_pem).collect::<String>().into_bytes())
}

/// Merges the CAs into every webhook of the configuration. Returns the bundles as they are afterwards, as far as they
/// could be read, and what failed: that the configuration does not exist, or cannot be read or patched.
pub async fn publish(
    client: &Client,
    configuration: &Configuration,
    merge: impl Fn(&[u8]) -> Option<Vec<u8>>,
) -> (Vec<LiveBundle>, Option<Error>) {
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
) -> (Vec<LiveBundle>, Option<Error>) {
    let api = Api::<K>::all(client.clone());
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let mut attempt = 1;
    loop {
        let found = match api.get(name).await {
            Ok(found) => found,
            Err(source) => {
                return (Vec::new(), Some(Error::ReadConfiguration { configuration: configuration.clone(), source }));
            }
        };
        let changes: Vec<_> = found
            .webhooks()
            .filter_map(|(webhook, client_config)| {
                let bundle = merge(bundle_of(client_config))?;
                Some(json!({ "name": webhook, "clientConfig": { "caBundle": ByteString(bundle) } }))
            })
            .collect();
        if changes.is_empty() {
            return (found.bundles(configuration), None);
        }
        // Merged by the webhooks' names, and only into the version that was read.
        let patch = json!({ "metadata": { "resourceVersion": found.resource_version() }, "webhooks": changes });
        match api.patch(name, &params, &Patch::Strategic(patch)).await {
            Ok(patched) => {
                info!(%configuration, webhooks = changes.len(), "wrote caBundle");
                return (patched.bundles(configuration), None);
            }
            Err(kube::Error::Api(status)) if status.is_conflict() && attempt < ATTEMPTS => attempt += 1,
            Err(source) => {
                let failure = Error::PatchConfiguration { configuration: configuration.clone(), source };
                return (found.bundles(configuration), Some(failure));
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
    use crate::material::{self, Authority, Material};

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

    fn ders(authorities: &[&Authority]) -> Vec<CertificateDer<'static>> {
        authorities.iter().map(|it| it.certificate.clone()).collect()
    }

    fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
        x509::certificates(pem)
    }

    #[test]
    fn an_empty_bundle_gets_the_ca() {
        let ca = authority(0);
        assert_eq!(merge(b"", &ders(&[&ca]), at(0), OVERLAP), Some(pem(&[&ca])));
        assert_eq!(merge(b"\n\xff", &ders(&[&ca]), at(0), OVERLAP), Some(pem(&[&ca])), "damaged");
    }

    #[test]
    fn a_bundle_that_will_do_is_left_alone_in_any_order() {
        let (old, new) = (authority(0), authority(HOUR));
        for live in [pem(&[&old, &new]), pem(&[&new, &old])] {
            assert_eq!(merge(&live, &ders(&[&new, &old]), at(HOUR), OVERLAP), None);
        }
    }

    #[test]
    fn a_rotation_keeps_the_predecessor_and_what_is_live_for_the_overlap() {
        let (old, foreign, new) = (authority(0), authority(10), authority(HOUR));
        let authorities = ders(&[&new, &old]);
        let merged = merge(&pem(&[&foreign]), &authorities, at(HOUR), OVERLAP).unwrap();
        assert_eq!(merged, pem(&[&new, &old, &foreign]));
        assert_eq!(merge(&merged, &authorities, at(23 * HOUR), OVERLAP), None, "within the overlap");
        let later = merge(&merged, &authorities, at(26 * HOUR), OVERLAP).unwrap();
        assert_eq!(later, pem(&[&new]), "after it");
    }

    #[test]
    fn a_replica_with_an_older_secret_does_not_remove_a_newer_ca() {
        let (old, new) = (authority(0), authority(100 * HOUR));
        let live = pem(&[&new]);
        let merged = merge(&live, &ders(&[&old]), at(100 * HOUR), OVERLAP).unwrap();
        assert_eq!(certificates(&merged), [old.certificate.clone(), new.certificate.clone()]);
        assert_eq!(merge(&merged, &ders(&[&old]), at(100 * HOUR), OVERLAP), None);
    }

    #[test]
    fn an_expired_ca_goes_with_the_next_write_even_within_the_overlap() {
        let short = Lifetimes::new(Duration::from_mins(2), Duration::from_mins(1)).unwrap();
        let expired = issue::authority(at(-300), &short).unwrap().certificate;
        let ca = authority(0);
        let next = authority(10);
        let live = [expired.as_bytes(), &pem(&[&ca])].concat();
        assert_eq!(merge(&live, &ders(&[&ca]), at(0), OVERLAP), None, "no reason to write");
        assert_eq!(merge(&live, &ders(&[&next, &ca]), at(10), OVERLAP), Some(pem(&[&next, &ca])));
    }

    #[test]
    fn the_newest_stay_and_those_that_the_secret_names_before_all() {
        let many: Vec<_> = (0..10).map(|hour| authority(hour * 60)).collect();
        let (ca, old) = (authority(HOUR), authority(-HOUR));
        let live = pem(&many.iter().collect::<Vec<_>>());
        let merged = merge(&live, &ders(&[&ca, &old]), at(HOUR), OVERLAP).unwrap();
        assert_eq!(merged, pem(&[&ca, &old, &many[6], &many[7], &many[8], &many[9]]));
        let without = merge(&live, &ders(&[&many[9]]), at(HOUR), OVERLAP).unwrap();
        assert_eq!(certificates(&without).len(), 1 + x509::PREDECESSORS, "one that had grown is cut");
    }

    /// Two replicas that each insist on a CA of its own, one of which lives 400 days later, each with predecessors.
    #[test]
    fn replicas_whose_clocks_disagree_come_to_rest_and_both_stay_trusted() {
        let ahead = 400 * 24 * HOUR;
        let own = |base: i64| (0..6).rev().map(|it| authority(base + it).certificate).collect::<Vec<_>>();
        let replicas = [(own(0), at(10)), (own(ahead), at(ahead + 10))];
        let (mut bundle, mut writes) = (Vec::new(), 0);
        for (authorities, now) in replicas.iter().cycle().take(20) {
            if let Some(merged) = merge(&bundle, authorities, *now, OVERLAP) {
                (bundle, writes) = (merged, writes + 1);
            }
        }
        let found = certificates(&bundle);
        assert!(writes <= 4 && found.len() <= 1 + x509::PREDECESSORS, "{writes} writes, {} CAs", found.len());
        assert!(replicas.iter().all(|(authorities, _)| found.contains(&authorities[0])));
    }
}
