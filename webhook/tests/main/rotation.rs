//! Certificates of several replicas in front of a real API server: they agree from the first moment, and a rotation,
//! whatever forces it, refuses no request.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::future::{try_join_all, try_join3};
use jiff::{SignedDuration, Timestamp};
use jobset_certs::backoff::IssueBackoff;
use jobset_certs::material::{CA_CERTIFICATES, CA_KEY, CERTIFICATE, Material, with_new_serving};
use jobset_certs::secret::{SecretStore, Wanted};
use jobset_certs::{Lifetimes, Names, issue};
use jobset_harness::admission::{allow, kustomize};
use jobset_harness::wait;
use k8s_openapi::ByteString;
use kube::api::{DeleteParams, PostParams};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;

use crate::api_server::good;
use crate::certificates::{SECRET, certificates};
use crate::client::Client;
use crate::cluster::{LIMIT, MUTATING, NAMESPACE, Plane, Replica, VALIDATING};
use crate::load::Load;

/// Rounds of the tests that have some: `CERTIFICATE_ROUNDS`, else a few.
fn rounds(few: usize) -> usize {
    std::env::var("CERTIFICATE_ROUNDS").map_or(few, |text| text.parse().unwrap())
}

#[tokio::test]
async fn three_replicas_that_find_no_secret_agree_and_are_trusted_as_soon_as_they_are_ready() -> Result<()> {
    let plane = Plane::start().await?;
    let rounds = rounds(3);
    for round in 0..rounds {
        agree_once(&plane).await.with_context(|| format!("round {round}"))?;
    }
    println!("rounds: {rounds}");
    plane.plane.stop().await
}

async fn agree_once(plane: &Plane) -> Result<()> {
    let (a, b, c) = try_join3(plane.bind(&[]), plane.bind(&[]), plane.bind(&[])).await?;
    plane.register_all(&[a.address()?, b.address()?, c.address()?]).await?;
    let client = plane.service_client().await?;
    let replicas = [a.run(client.clone())?, b.run(client.clone())?, c.run(client)?];
    try_join_all(replicas.iter().map(|replica| is_trusted_when_ready(plane, replica))).await?;
    // The API server asks all of them.
    plane.dry_run(&good("first")).await?;

    let material = plane.material().await?;
    assert_eq!(material.authorities().len(), 1, "one CA");
    let bundles = plane.bundles().await?;
    assert_eq!(bundles.iter().map(|it| certificates(it)).collect::<Vec<_>>(), [1], "the same one everywhere");
    for replica in &replicas {
        assert_eq!(Some(&replica.leaf(&material).await?), material.serving.as_ref().unwrap().certificate());
    }
    for replica in replicas {
        replica.stop().await?;
    }
    plane.secrets().delete(SECRET, &DeleteParams::default()).await?;
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
    let plane = Arc::new(Plane::start().await?);
    let replicas = replicas(&plane, &["--ca-bundle-settle=1s"]).await?;
    let load = Load::start(&plane, &replicas.each_ref()).await?;
    let forced = [Forced::Deletion, Forced::Expiry, Forced::Truncation, Forced::ForeignKey, Forced::ExpiryOfTheCa];
    // Many expired ones in a row look like replicas whose clocks disagree, for which they pause.
    let rounds = rounds(forced.len()).min(2 * forced.len());
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
    if let (false, Some(old)) = (same_ca, certificate(&before)) {
        assert!(after.authorities().contains(&old), "the CA before stays trusted");
    }
    for replica in replicas {
        replica.wait_until_it_serves_that_of(&after).await?;
        let answer = replica.readyz().await?;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    Ok(())
}

/// What forces a rotation.
#[derive(Clone, Copy, Debug)]
enum Forced {
    Deletion,
    Expiry,
    ExpiryOfTheCa,
    Truncation,
    ForeignKey,
}

impl Forced {
    async fn upon(self, plane: &Plane, before: &Material) -> Result<()> {
        let secrets = plane.secrets();
        let mut secret = secrets.get(SECRET).await?;
        let data = secret.data.get_or_insert_default();
        match self {
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
        // Whoever wins, a replica repairs it.
        match secrets.replace(SECRET, &PostParams::default(), &secret).await {
            Err(kube::Error::Api(status)) if status.is_conflict() => Box::pin(self.upon(plane, before)).await,
            result => result.map(drop).map_err(Into::into),
        }
    }
}

/// What a Secret would hold that was written so many days ago.
fn issued_days_ago(days: i64, authority: &issue::Issued) -> Result<BTreeMap<String, ByteString>> {
    let then = Timestamp::now() - SignedDuration::from_hours(24 * days);
    let names = Names::of_service("jobset-webhook-service", NAMESPACE)?;
    Ok(with_new_serving(authority, &[], &names, then, &Lifetimes::default())?)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "takes minutes: make test-certificates"]
async fn certificates_that_live_for_seconds_are_replaced_in_time() -> Result<()> {
    const CAS: usize = 6;
    let plane = Arc::new(Plane::start().await?);
    let short = ["--ca-lifetime=60s", "--cert-lifetime=30s", "--ca-bundle-settle=1s"];
    let replicas = replicas(&plane, &short).await?;
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

#[tokio::test]
async fn an_emptied_bundle_is_filled_again() -> Result<()> {
    let plane = Arc::new(Plane::start().await?);
    let replicas = [plane.replica().await?];
    let reason = replicas[0].readyz().await?;
    assert!(reason.starts_with("HTTP/1.1 503"), "no configuration, not ready: {reason}");
    plane.register(replicas[0].address).await?;
    replicas[0].ready().await?;
    plane.empty_a_bundle().await?;
    plane.wait_until_bundles_are_filled().await?;
    end(plane, replicas).await
}

#[tokio::test]
async fn what_may_not_be_written_is_not_taken_for_trusted() -> Result<()> {
    let plane = Arc::new(Plane::start().await?);
    let replicas = [plane.admission().await?];
    plane.kubectl(&["delete", "clusterrolebinding", "jobset-webhook-ca-bundle"]).await?;
    wait::until_met(LIMIT, "not to be ready with an empty caBundle", async || {
        // As long as the API server still allows it, the bundle comes back.
        plane.empty_a_bundle().await?;
        let answer = replicas[0].readyz().await?;
        let told = answer.starts_with("HTTP/1.1 503")
            && answer.contains("does not verify the serving certificate; cannot patch the caBundle of");
        Ok(if told { wait::Check::Met(()) } else { wait::Check::Unmet(answer) })
    })
    .await?;
    let refused = plane.dry_run(&good("refused")).await.map(drop).map_err(|error| error.to_string());
    assert!(refused.as_ref().is_err_and(|it| it.contains("x509")), "{refused:?}");
    permit_again(&plane).await?;
    replicas[0].ready().await?;

    // With all configurations gone, there is nothing to be ready for.
    plane.validating().delete(VALIDATING, &DeleteParams::default()).await?;
    plane.mutating().delete(MUTATING, &DeleteParams::default()).await?;
    replicas[0].not_ready("there is no webhook in").await?;
    end(plane, replicas).await
}

#[tokio::test]
async fn while_the_secret_may_not_be_read_the_bundles_still_trust_what_is_served() -> Result<()> {
    let plane = Arc::new(Plane::start().await?);
    let replicas = [plane.admission().await?];
    plane.kubectl(&["delete", "rolebinding", "jobset-webhook", "-n", NAMESPACE]).await?;
    wait::until_met(LIMIT, "the Secret not to be readable, the bundles filled, and readiness", async || {
        plane.empty_a_bundle().await?;
        plane.wait_until_bundles_are_filled().await?;
        let answer = replicas[0].readyz().await?;
        let told = answer.starts_with("HTTP/1.1 200") && answer.contains("ok, but cannot read Secret");
        Ok(if told { wait::Check::Met(()) } else { wait::Check::Unmet(answer) })
    })
    .await?;
    plane.dry_run(&good("trusted")).await?;
    permit_again(&plane).await?;
    wait::until(LIMIT, "no remark", async || Ok(replicas[0].readyz().await?.ends_with("ok\n").then_some(()))).await?;
    end(plane, replicas).await
}

/// The permissions as they are deployed.
async fn permit_again(plane: &Plane) -> Result<()> {
    allow(&plane.plane, &kustomize(&plane.plane, "kustomize").await?).await
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
        let ensure = async || {
            let mut backoff = IssueBackoff::new(Duration::from_secs(5), &wanted.lifetimes);
            store.ensure(&wanted, &[], &mut backoff, Timestamp::now()).await
        };
        let writers = (0..WRITERS).map(|_| ensure());
        let kept = try_join_all(writers).await.with_context(|| format!("round {round}"))?;
        let stored = plane.material().await?.authority.unwrap().certificate;
        assert!(kept.iter().all(|it| it.authority.certificate == stored), "round {round}: one CA, the stored one");
        plane.secrets().delete(SECRET, &DeleteParams::default()).await?;
    }
    plane.plane.stop().await
}

/// Three replicas that the API server asks, ready.
async fn replicas(plane: &Plane, flags: &[&str]) -> Result<[Replica; 3]> {
    let (a, b, c) = try_join3(plane.replica_with(flags), plane.replica_with(flags), plane.replica_with(flags)).await?;
    let replicas = [a, b, c];
    plane.register_all(&replicas.each_ref().map(|it| it.address)).await?;
    try_join_all(replicas.iter().map(Replica::ready)).await?;
    Ok(replicas)
}

async fn end(plane: Arc<Plane>, replicas: impl IntoIterator<Item = Replica>) -> Result<()> {
    for replica in replicas {
        replica.stop().await?;
    }
    Arc::into_inner(plane).context("the plane is in use")?.plane.stop().await
}
