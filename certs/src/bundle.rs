//! The `caBundle` of the webhook configurations: by it the API server decides whether to trust the admission service.
//!
//! [`wanted`] decides what it should be, and is pure.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fmt;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt as _};
use rustls_pki_types::CertificateDer;
use serde_json::{Value, json};

use crate::material::Serving;
use crate::policy::is_issued_before;
use crate::x509;
use crate::{Error, Names};

/// Name by which the API server knows who wrote a field.
pub(crate) const FIELD_MANAGER: &str = "jobset-certs";
/// How many CAs are kept beside the one that signs.
const OTHERS: usize = 5;

/// A webhook configuration by kind and name. All its webhooks are the admission service's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Configuration {
    Validating(String),
    Mutating(String),
}

impl Configuration {
    fn kind(&self) -> &'static str {
        match self {
            Self::Validating(_) => "ValidatingWebhookConfiguration",
            Self::Mutating(_) => "MutatingWebhookConfiguration",
        }
    }

    pub(crate) fn name(&self) -> &str {
        let (Self::Validating(name) | Self::Mutating(name)) = self;
        name
    }

    /// The API of its kind. Of the objects, only what both kinds have in common is read.
    pub(crate) fn api(&self, client: Client) -> Api<DynamicObject> {
        let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", self.kind());
        Api::all_with(client, &ApiResource::from_gvk(&kind))
    }
}

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind(), self.name())
    }
}

/// The caBundle that one webhook has in the API server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveBundle {
    pub configuration: Configuration,
    pub webhook: String,
    /// Its CAs, in PEM; empty where there are none.
    pub pem: Vec<u8>,
}

impl LiveBundle {
    /// Whether the API server would now accept the certificate for all of these names.
    pub fn trusts(&self, serving: &Serving, names: &Names, now: Timestamp) -> bool {
        x509::is_trusted(&serving.certified.cert, &x509::certificates(&self.pem), names, now)
    }

    /// What to tell people when it does not trust the serving certificate.
    pub(crate) fn distrust(&self) -> String {
        let Self { configuration, webhook, .. } = self;
        format!("the caBundle of webhook {webhook} in {configuration} does not verify the serving certificate")
    }
}

/// The CAs that a bundle should have: the one that signs, and the newest of those that are kept beside it for as long as
/// somebody may still serve what they have signed. What has expired or is distrusted is not kept.
pub fn wanted(
    authority: &CertificateDer<'static>,
    kept: impl IntoIterator<Item = CertificateDer<'static>>,
    distrusted: Option<Timestamp>,
    now: Timestamp,
) -> Vec<CertificateDer<'static>> {
    let mut seen = BTreeSet::from([authority.to_vec()]);
    let mut others = Vec::new();
    for certificate in kept {
        let Some(it) = x509::properties(&certificate) else { continue };
        if it.is_ca
            && it.validity.contains(now)
            && !is_issued_before(it.validity, distrusted)
            && seen.insert(certificate.to_vec())
        {
            others.push((Reverse(it.validity.not_before), certificate));
        }
    }
    others.sort_by_key(|(newest_first, _)| *newest_first);
    let others = others.into_iter().take(OTHERS).map(|(_, certificate)| certificate);
    std::iter::once(authority.clone()).chain(others).collect()
}

/// A webhook configuration as it is in the API server.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) bundles: Vec<LiveBundle>,
    version: Option<String>,
    /// Who else has written a caBundle of it.
    pub(crate) writers: BTreeSet<String>,
}

pub(crate) async fn read(client: &Client, configuration: &Configuration) -> Result<Found, Error> {
    let read = configuration.api(client.clone()).get(configuration.name()).await;
    read.map(|it| found(&it, configuration))
        .map_err(|source| Error::ReadConfiguration { configuration: configuration.clone(), source })
}

/// Writes these bundles by the webhooks' names, and only into the version that was read.
pub(crate) async fn write(
    client: &Client,
    configuration: &Configuration,
    found: &Found,
    bundles: &[(String, Vec<u8>)],
) -> Result<Found, Error> {
    let webhook = |(name, bundle): &(String, Vec<u8>)| json!({ "name": name, "clientConfig": { "caBundle": ByteString(bundle.clone()) } });
    let webhooks: Vec<_> = bundles.iter().map(webhook).collect();
    let patch = json!({ "metadata": { "resourceVersion": found.version }, "webhooks": webhooks });
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let api = configuration.api(client.clone());
    let patched = api.patch(configuration.name(), &params, &Patch::Strategic(patch)).await;
    patched
        .map(|it| self::found(&it, configuration))
        .map_err(|source| Error::PatchConfiguration { configuration: configuration.clone(), source })
}

fn found(it: &DynamicObject, configuration: &Configuration) -> Found {
    let bundle = |webhook: &Value| LiveBundle {
        configuration: configuration.clone(),
        webhook: webhook["name"].as_str().unwrap_or_default().to_owned(),
        pem: serde_json::from_value::<ByteString>(webhook["clientConfig"]["caBundle"].clone()).unwrap_or_default().0,
    };
    let webhooks = it.data["webhooks"].as_array().into_iter().flatten();
    let wrote = |fields: &Value| fields.to_string().contains("\"f:caBundle\"");
    let entries = it.managed_fields().iter().filter(|it| it.fields_v1.as_ref().is_some_and(|it| wrote(&it.0)));
    let writers = entries.filter_map(|it| it.manager.clone()).filter(|it| it != FIELD_MANAGER).collect();
    Found { bundles: webhooks.map(bundle).collect(), version: it.resource_version(), writers }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jiff::SignedDuration;

    use super::*;
    use crate::{Lifetimes, issue};

    const ISSUED: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn at(seconds: i64) -> Timestamp {
        ISSUED + SignedDuration::from_secs(seconds)
    }

    fn authority_for(issued: i64, lifetimes: &Lifetimes) -> CertificateDer<'static> {
        let issued = issue::authority(at(issued), lifetimes).unwrap();
        x509::certificates(issued.certificate.as_bytes()).remove(0)
    }

    fn authority(issued: i64) -> CertificateDer<'static> {
        authority_for(issued, &Lifetimes::default())
    }

    #[test]
    fn bundle_has_signing_ca_first_then_newest_others_once() {
        let many: Vec<_> = (0..8).map(authority).collect();
        let signs = authority(100);
        let kept = [&many[..], &many[..], std::slice::from_ref(&signs)].concat();
        let newest = many[3..].iter().rev().cloned();
        assert_eq!(wanted(&signs, kept, None, at(100)), std::iter::once(signs).chain(newest).collect::<Vec<_>>());
    }

    #[test]
    fn expired_distrusted_and_foreign_certificates_leave_bundle() {
        let short = Lifetimes::new(Duration::from_mins(2), Duration::from_mins(1)).unwrap();
        let (expired, old, older, signs) = (authority_for(-300, &short), authority(10), authority(0), authority(20));
        let leaf = crate::handover::tests::candidate().serving.unwrap().certificate().cloned().unwrap();
        let kept = [expired, leaf, old.clone(), older];
        assert_eq!(wanted(&signs, kept, Some(at(10)), at(20)), [signs, old]);
    }
}
