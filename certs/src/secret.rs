//! The Secret that all replicas share. Written by compare-and-swap on its resourceVersion: of several replicas that
//! find it wanting, one writes, and the others read again and adopt what they find.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use rustls_pki_types::CertificateDer;
use tokio::time::Instant;
use tracing::{debug, info};

use crate::backoff::IssueBackoff;
use crate::material::{self, Authority, Material, Serving};

use crate::policy::{Cause, Decision, decide};
use crate::{Error, Lifetimes, Names, issue, x509};

/// Writes tried in one call. Each one that is lost was won by another replica, whose result will do.
const ATTEMPTS: u32 = 5;
const OPAQUE: &str = "Opaque";
const FIELD_MANAGER: &str = "jobset-webhook";

/// What the Secret shall hold.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Names of the serving certificate.
    pub names: Names,
    /// Lifetimes of what is issued.
    pub lifetimes: Lifetimes,
    /// How long a CA stays trusted after another has replaced it.
    pub overlap: Duration,
}

/// The Secret's contents, ready for use.
#[derive(Clone, Debug)]
pub struct Kept {
    /// The CA.
    pub authority: Authority,
    /// CAs before it.
    pub predecessors: Vec<CertificateDer<'static>>,
    /// The serving certificate.
    pub serving: Serving,
    /// When to look again at the latest.
    pub until: Timestamp,
}

impl Kept {
    /// The certificates to be trusted: the CA's and those of its predecessors.
    pub fn authorities(&self) -> Vec<CertificateDer<'static>> {
        std::iter::once(&self.authority.certificate).chain(&self.predecessors).cloned().collect()
    }
}

/// The Secret by name.
#[derive(Clone)]
pub struct SecretStore {
    api: Api<Secret>,
    namespace: String,
    name: String,
}

impl SecretStore {
    /// The Secret of that name; it need not exist.
    pub fn new(client: Client, namespace: &str, name: &str) -> Self {
        Self { api: Api::namespaced(client, namespace), namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// Reads the Secret, and issues what is missing, broken or due. `known` are authorities that this replica is
    /// serving under: they stay trusted even where the Secret has forgotten them. `backoff` is this replica's own.
    ///
    /// # Errors
    /// When the API server refuses to read or write, others win each time, or the clocks of replicas disagree.
    pub async fn ensure(
        &self,
        wanted: &Wanted,
        known: &[CertificateDer<'static>],
        backoff: &mut IssueBackoff,
        now: Timestamp,
    ) -> Result<Kept, Error> {
        for _ in 0..ATTEMPTS {
            let found = self.read().await?;
            let data = found.as_ref().and_then(|secret| secret.data.clone()).unwrap_or_default();
            let material = Material::read(&data);
            let decision = decide(&material, &wanted.names, &wanted.lifetimes, now);
            if let Decision::Reissue(cause) | Decision::RotateCa(cause) = &decision
                && !backoff.allows(cause, Instant::now())
            {
                return Err(Error::ClocksDisagree { secret: self.id(), cause: cause.clone() });
            }
            let (issued, cause) = match decision {
                Decision::Keep(until) => return self.kept(material, until),
                Decision::Reissue(cause) => (self.reissue(&material, &cause, wanted, now)?, cause),
                Decision::RotateCa(cause) => (rotate(&material, known, wanted, now)?, cause),
            };
            if self.write(found, issued.clone()).await? {
                backoff.issued(Instant::now());
                info!(secret = %self.id(), %cause, "issued certificates");
                let material = Material::read(&issued);
                return match decide(&material, &wanted.names, &wanted.lifetimes, now) {
                    Decision::Keep(until) => self.kept(material, until),
                    Decision::Reissue(cause) | Decision::RotateCa(cause) => Err(self.unusable(cause)),
                };
            }
            debug!(secret = %self.id(), "another replica wrote the Secret first");
        }
        Err(Error::Contended { secret: self.id(), attempts: ATTEMPTS })
    }

    fn kept(&self, material: Material, until: Timestamp) -> Result<Kept, Error> {
        let defect = |defect| self.unusable(Cause::Defect(defect));
        Ok(Kept {
            authority: material.authority.map_err(defect)?,
            predecessors: material.predecessors,
            serving: material.serving.map_err(defect)?,
            until,
        })
    }

    fn reissue(
        &self,
        material: &Material,
        cause: &Cause,
        wanted: &Wanted,
        now: Timestamp,
    ) -> Result<BTreeMap<String, ByteString>, Error> {
        let authority = material.authority.as_ref().map_err(|defect| self.unusable(Cause::Defect(*defect)))?;
        let mut names = wanted.names.clone();
        if let (Cause::Names(_), Ok(serving)) = (cause, &material.serving) {
            names = names.union(&serving.names);
        }
        let predecessors = predecessors(material.predecessors.iter(), authority.validity.not_before, wanted, now);
        material::with_new_serving(&authority.issued, &predecessors, &names, now, &wanted.lifetimes)
    }

    async fn read(&self) -> Result<Option<Secret>, Error> {
        self.api.get_opt(&self.name).await.map_err(|source| Error::ReadSecret { secret: self.id(), source })
    }

    /// Whether this write won.
    async fn write(&self, found: Option<Secret>, issued: BTreeMap<String, ByteString>) -> Result<bool, Error> {
        let params = PostParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PostParams::default() };
        let result = if let Some(mut secret) = found {
            // The resourceVersion that was read goes along: the API server refuses the write if it is not the latest.
            secret.data.get_or_insert_default().extend(issued);
            self.api.replace(&self.name, &params, &secret).await
        } else {
            let metadata = ObjectMeta {
                name: Some(self.name.clone()),
                namespace: Some(self.namespace.clone()),
                ..ObjectMeta::default()
            };
            let secret = Secret { metadata, type_: Some(OPAQUE.to_owned()), data: Some(issued), ..Secret::default() };
            self.api.create(&params, &secret).await
        };
        match result {
            Ok(_) => Ok(true),
            // Changed, created or deleted since it was read.
            Err(kube::Error::Api(status))
                if status.is_conflict() || status.is_already_exists() || status.is_not_found() =>
            {
                Ok(false)
            }
            Err(source) => Err(Error::WriteSecret { secret: self.id(), source }),
        }
    }

    fn unusable(&self, cause: Cause) -> Error {
        Error::Unusable { secret: self.id(), cause }
    }

    fn id(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }
}

fn rotate(
    material: &Material,
    known: &[CertificateDer<'static>],
    wanted: &Wanted,
    now: Timestamp,
) -> Result<BTreeMap<String, ByteString>, Error> {
    let authority = issue::authority(now, &wanted.lifetimes)?;
    let authorities = material.authorities();
    let predecessors = predecessors(authorities.iter().chain(known), now, wanted, now);
    material::with_new_serving(&authority, &predecessors, &wanted.names, now, &wanted.lifetimes)
}

/// Those CAs that may still have signed what some replica serves, each once.
fn predecessors<'a>(
    candidates: impl Iterator<Item = &'a CertificateDer<'static>>,
    replaced: Timestamp,
    wanted: &Wanted,
    now: Timestamp,
) -> Vec<CertificateDer<'static>> {
    if replaced.checked_add(wanted.overlap).is_ok_and(|end| end < now) {
        return Vec::new();
    }
    let mut seen = BTreeSet::new();
    let valid = candidates
        .filter(|certificate| x509::properties(certificate).is_some_and(|it| it.is_ca && it.validity.contains(now)))
        .filter(|certificate| seen.insert(certificate.to_vec()));
    x509::newest(valid.collect(), x509::PREDECESSORS).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_predecessors_are_kept_and_no_more() {
        let wanted =
            Wanted { names: Names::default(), lifetimes: Lifetimes::default(), overlap: Duration::from_hours(24) };
        let start = Timestamp::constant(1_800_000_000, 0);
        let at = |second: i64| start + jiff::SignedDuration::from_secs(second);
        let mut data = BTreeMap::new();
        let mut issued = Vec::new();
        for second in 0..20 {
            let material = Material::read(&data);
            let known: Vec<_> = issued.last().cloned().into_iter().collect();
            data = rotate(&material, &known, &wanted, at(second)).unwrap();
            issued.push(Material::read(&data).authority.unwrap().certificate);
        }
        issued.reverse();
        assert_eq!(Material::read(&data).authorities(), issued[..=x509::PREDECESSORS]);
    }
}
