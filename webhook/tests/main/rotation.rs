//! The certificate of several replicas in front of a real API server: `jobset-certs` hands it out once it is trusted, and a
//! rotation, whatever forces it, refuses no request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::future::{try_join_all, try_join3};
use jiff::{SignedDuration, Timestamp};
use jobset_certs::material::{CA_CERTIFICATES, CA_KEY, CERTIFICATE, Material, with_new_serving};
use jobset_certs::policy::ROTATE_BEFORE;
use jobset_certs::{Lifetimes, Names, issue};
use jobset_harness::ControlPlane;
use jobset_harness::wait::{self, Check};
use k8s_openapi::ByteString;
use kube::api::{DeleteParams, PostParams};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::time::timeout;

use crate::api_server::good;
use crate::certificates::{LEAF, SECRET, certificates};
use crate::client::Client;
use crate::cluster::{LIMIT, MUTATING, NAMESPACE, Plane, Replica, VALIDATING};
use crate::load::Load;
use crate::refusals::Refusals;

/// After so long, certificates will not come. That they are in service within 10 s is measured, and printed: a test on a busy
/// machine may take longer.
const FIRST_START: Duration = Duration::from_secs(100);

/// Rounds of the tests that have some: `CERTIFICATE_ROUNDS`, else a few.
fn rounds(few: usize) -> usize {
    std::env::var("CERTIFICATE_ROUNDS").map_or(few, |text| text.parse().unwrap())
}

#[tokio::test]
async fn replicas_with_certificate_are_trusted_at_once() -> Result<()> {
    let mut plane = Plane::without_issuer(ControlPlane::start().await?).await?;
    let rounds = rounds(3);
    for round in 0..rounds {
        start_once(&mut plane).await.with_context(|| format!("round {round}"))?;
    }
    println!("rounds: {rounds}");
    plane.plane.stop().await
}

async fn start_once(plane: &mut Plane) -> Result<()> {
    let (a, b, c) = (plane.bind(&[])?, plane.bind(&[])?, plane.bind(&[])?);
    plane.register_all(&[a.address()?, b.address()?, c.address()?]).await?;
    let client = plane.service_client().await?;
    let replicas = [a.run(client.clone())?, b.run(client.clone())?, c.run(client)?];
    replicas[0].not_ready("tls.crt is missing").await?;
    let start = Instant::now();
    plane.start_issuer(&[]).await?;
    let ready = async { try_join_all(replicas.iter().map(|replica| is_trusted_when_ready(plane, replica))).await };
    let ready = timeout(FIRST_START, Refusals::until(plane, ready)).await;
    let (_, refusals) = ready.context("the first start takes too long")??;
    println!("from the start of jobset-certs to three ready replicas: {:.1} s", start.elapsed().as_secs_f64());
    println!("reviews meanwhile: {refusals}");
    // The API server asks all of them.
    plane.dry_run(&good("first")).await?;

    let material = plane.material().await?;
    let bundles = plane.bundles().await?;
    assert_eq!(bundles.iter().map(|it| certificates(it)).collect::<Vec<_>>(), [1], "the same CA everywhere");
    for replica in &replicas {
        assert_eq!(Some(&replica.leaf(&material).await?), material.serving.as_ref().unwrap().certificate());
    }
    let leaf = plane.secrets().get(LEAF).await?.data.context("it is empty")?;
    assert_eq!(leaf.keys().collect::<Vec<_>>(), [CA_CERTIFICATES, CERTIFICATE, "tls.key"], "no key of the CA");
    plane.stop_issuer();
    for replica in replicas {
        replica.stop().await?;
    }
    for secret in [SECRET, LEAF] {
        plane.secrets().delete(secret, &DeleteParams::default()).await?;
    }
    plane.validating().delete(VALIDATING, &DeleteParams::default()).await?;
    plane.mutating().delete(MUTATING, &DeleteParams::default()).await?;
    Ok(())
}

async fn is_trusted_when_ready(plane: &Plane, replica: &Replica) -> Result<()> {
    replica.ready().await?;
    for bundle in plane.bundles().await? {
        let trusted = CertificateDer::pem_slice_iter(&bundle).collect::<Result<_, _>>()?;
        Client::new(replica.address, trusted).connect().await.context("ready and not trusted")?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn forced_rotations_under_load_refuse_no_request() -> Result<()> {
    let mut plane = Plane::start().await?;
    plane.start_issuer(&["--ca-lead-time=1s"]).await?;
    let plane = Arc::new(plane);
    let replicas = replicas(&plane).await?;
    let load = Load::start(&plane, &replicas.each_ref()).await?;
    let forced = [
        Forced::Deletion,
        Forced::Expiry,
        Forced::Truncation,
        Forced::ForeignKey,
        Forced::ExpiryOfTheCa,
        Forced::Request,
    ];
    let rounds = rounds(forced.len());
    for (round, forced) in forced.into_iter().cycle().take(rounds).enumerate() {
        rotate_once(&plane, &replicas, forced).await.with_context(|| format!("round {round}: {forced:?}"))?;
    }
    let answered = load.stop().await?;
    answered.expect_at_least(100);
    println!("rotations: {rounds}");
    end(plane, replicas).await
}

async fn rotate_once(plane: &Plane, replicas: &[Replica], forced: Forced) -> Result<()> {
    let before = plane.material().await?;
    forced.upon(plane, &before).await?;
    let leaf = |it: &Material| it.serving.as_ref().ok().and_then(|it| it.certificate().cloned());
    let after = wait::until(LIMIT, "new certificates in the Secret", async || {
        let found = plane.material().await?;
        let valid = found.serving.as_ref().is_ok_and(|it| it.validity.contains(Timestamp::now()));
        Ok((valid && found.authority.is_ok() && leaf(&found) != leaf(&before)).then_some(found))
    })
    .await?;
    let certificate = |it: &Material| it.authority.as_ref().map(|it| it.certificate.clone()).ok();
    let same_ca = certificate(&before) == certificate(&after);
    assert_eq!(same_ca, matches!(forced, Forced::Expiry), "the CA is replaced where it has to be");
    for replica in replicas {
        replica.wait_until_it_serves_that_of(&after).await?;
        let answer = replica.readyz().await?;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    for bundle in plane.bundles().await? {
        let trusted: Vec<_> = CertificateDer::pem_slice_iter(&bundle).flatten().collect();
        let mut both = [certificate(&before), certificate(&after)].into_iter().flatten();
        assert!(both.all(|it| trusted.contains(&it)), "the CA before stays trusted");
    }
    Ok(())
}

/// Waits until the caBundles hold no other CA.
pub(crate) async fn only_this_ca_is_trusted(plane: &Plane, material: &Material) -> Result<()> {
    let authority = &material.authority.as_ref().unwrap().certificate;
    wait::until_met(LIMIT, "the CA alone in the caBundles", async || {
        let bundles = plane.bundles().await?;
        let alone = bundles.iter().all(|it| {
            let trusted: Vec<_> = CertificateDer::pem_slice_iter(it).flatten().collect();
            trusted == std::slice::from_ref(authority)
        });
        let found: Vec<_> = bundles.iter().map(|it| certificates(it)).collect();
        Ok(if alone { Check::Met(()) } else { Check::Unmet(format!("{found:?}; {}", plane.issuer_readyz().await?)) })
    })
    .await
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Forced {
    Deletion,
    Expiry,
    ExpiryOfTheCa,
    Truncation,
    ForeignKey,
    Request,
}

impl Forced {
    pub(crate) async fn upon(self, plane: &Plane, before: &Material) -> Result<()> {
        let secrets = plane.secrets();
        let mut secret = secrets.get(SECRET).await?;
        let data = secret.data.get_or_insert_default();
        match self {
            Self::Request => {
                let times = [(ROTATE_BEFORE.to_owned(), after_issue_of(before).await?.to_string())];
                secret.metadata.annotations.get_or_insert_default().extend(times);
            }
            Self::Deletion => {
                secrets.delete(SECRET, &DeleteParams::default()).await?;
                return Ok(());
            }
            Self::Expiry => data.extend(issued_days_ago(91, &before.authority.clone().unwrap().issued)?),
            Self::ExpiryOfTheCa => {
                let then = Timestamp::now() - SignedDuration::from_hours(24 * 366);
                data.extend(issued_days_ago(366, &issue::authority(then, &Lifetimes::default())?)?);
            }
            Self::Truncation => {
                for entry in [CERTIFICATE, CA_CERTIFICATES] {
                    data.get_mut(entry).context("no such entry")?.0.truncate(300);
                }
            }
            Self::ForeignKey => {
                let other = issue::authority(Timestamp::now(), &Lifetimes::default())?;
                data.insert(CA_KEY.to_owned(), ByteString(other.key.expose().as_bytes().to_vec()));
            }
        }
        // jobset-certs repairs it.
        match secrets.replace(SECRET, &PostParams::default(), &secret).await {
            Err(kube::Error::Api(status)) if status.is_conflict() => Box::pin(self.upon(plane, before)).await,
            result => result.map(drop).map_err(Into::into),
        }
    }
}

/// The time, once it is after the second in which the CA was issued.
pub(crate) async fn after_issue_of(material: &Material) -> Result<Timestamp> {
    wait::until(LIMIT, "a time after that of the CA", async || {
        let now = Timestamp::now();
        let issued = material.authority.as_ref().unwrap().validity.not_before + SignedDuration::from_hours(1);
        Ok((now > issued + SignedDuration::from_secs(1)).then_some(now))
    })
    .await
}

/// What a Secret would hold that was written so many days ago.
fn issued_days_ago(days: i64, authority: &issue::Issued) -> Result<BTreeMap<String, ByteString>> {
    let then = Timestamp::now() - SignedDuration::from_hours(24 * days);
    let names = Names::of_service("jobset-webhook-service", NAMESPACE)?;
    Ok(with_new_serving(authority, &names, then, &Lifetimes::default())?)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: make test-certificates"]
async fn certificates_that_live_for_seconds_are_replaced_in_time() -> Result<()> {
    const CAS: usize = 6;
    let mut plane = Plane::start().await?;
    plane.start_issuer(&["--ca-lifetime=60s", "--cert-lifetime=30s", "--ca-lead-time=1s"]).await?;
    let plane = Arc::new(plane);
    let replicas = replicas(&plane).await?;
    let load = Load::start(&plane, &replicas.each_ref()).await?;
    let mut last = plane.material().await?.authority.unwrap().certificate;
    for number in 0..CAS {
        last = wait::until(LIMIT, format!("CA {number}"), async || {
            let found = plane.material().await?.authority.unwrap().certificate;
            Ok((found != last).then_some(found))
        })
        .await?;
    }
    load.stop().await?.expect_at_least(1000);
    let bundles = plane.bundles().await?;
    assert!(bundles.iter().all(|it| certificates(it) <= 3), "what has expired is gone: {bundles:?}");
    end(plane, replicas).await
}

/// Three replicas that the API server asks, ready.
async fn replicas(plane: &Plane) -> Result<[Replica; 3]> {
    let (a, b, c) = try_join3(plane.replica(), plane.replica(), plane.replica()).await?;
    let replicas = [a, b, c];
    plane.register_all(&replicas.each_ref().map(|it| it.address)).await?;
    try_join_all(replicas.iter().map(Replica::ready)).await?;
    Ok(replicas)
}

pub(crate) async fn end(plane: Arc<Plane>, replicas: impl IntoIterator<Item = Replica>) -> Result<()> {
    for replica in replicas {
        replica.stop().await?;
    }
    Arc::into_inner(plane).context("the plane is in use")?.plane.stop().await
}
