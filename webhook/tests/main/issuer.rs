//! What `jobset-certs` does where not all goes well: others write, permissions are missing, an endpoint is cut off, a CA is
//! stolen; and where versions change.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, Result};
use jiff::{SignedDuration, Timestamp};
use jobset_certs::material::{CA_CERTIFICATES, CA_KEY, Material, with_new_serving};
use jobset_certs::policy::DISTRUST_BEFORE;
use jobset_certs::{Lifetimes, Names, issue};
use jobset_harness::ControlPlane;
use jobset_harness::admission::{allow, kustomize};
use jobset_harness::wait::{self, Check};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::api_server::good;
use crate::certificates::{SECRET, certificates};
use crate::cluster::{LIMIT, MUTATING, NAMESPACE, Plane, VALIDATING};
use crate::load::Load;
use crate::rotation::{Forced, end, only_this_ca_is_trusted};

#[tokio::test]
async fn an_emptied_bundle_is_filled_again_and_who_empties_it_is_named() -> Result<()> {
    let plane = Arc::new(Plane::start().await?);
    let reason = plane.issuer_says().await?;
    assert!(reason.starts_with("HTTP/1.1 503"), "no configuration, not ready: {reason}");
    let replicas = [plane.admission().await?];
    for _ in 0..3 {
        plane.empty_a_bundle().await?;
        plane.wait_until_bundles_are_filled().await?;
    }
    issuer_says(&plane, "HTTP/1.1 200", "is also written by ").await?;
    // With all configurations gone, there is nothing to be ready for.
    plane.validating().delete(VALIDATING, &DeleteParams::default()).await?;
    plane.mutating().delete(MUTATING, &DeleteParams::default()).await?;
    issuer_says(&plane, "HTTP/1.1 503", "there is no webhook in").await?;
    end(plane, replicas).await
}

async fn issuer_says(plane: &Plane, begin: &str, part: &str) -> Result<()> {
    wait::until_met(LIMIT, format!("jobset-certs to say {part:?}"), async || {
        let answer = plane.issuer_says().await?;
        let told = answer.starts_with(begin) && answer.contains(part);
        Ok(if told { Check::Met(()) } else { Check::Unmet(answer) })
    })
    .await
}

#[tokio::test]
async fn a_bundle_that_may_not_be_written_is_told() -> Result<()> {
    let plane = Arc::new(Plane::start().await?);
    let replicas = [plane.admission().await?];
    plane.kubectl(&["delete", "clusterrolebinding", "jobset-certs"]).await?;
    wait::until_met(LIMIT, "jobset-certs not to be ready with an empty caBundle", async || {
        // As long as the API server still allows it, the bundle comes back.
        plane.empty_a_bundle().await?;
        let answer = plane.issuer_says().await?;
        let told = answer.starts_with("HTTP/1.1 503") && answer.contains("cannot");
        Ok(if told { Check::Met(()) } else { Check::Unmet(answer) })
    })
    .await?;
    let refused = plane.dry_run(&good("refused")).await.map(drop).map_err(|error| error.to_string());
    assert!(refused.as_ref().is_err_and(|it| it.contains("x509")), "{refused:?}");
    permit_again(&plane).await?;
    issuer_says(&plane, "HTTP/1.1 200", "ok").await?;
    plane.dry_run(&good("trusted")).await?;
    end(plane, replicas).await
}

#[tokio::test]
async fn while_no_secret_may_be_read_the_bundles_still_trust_what_is_served() -> Result<()> {
    let plane = Arc::new(Plane::start().await?);
    let replicas = [plane.admission().await?];
    for binding in ["jobset-webhook", "jobset-certs"] {
        plane.kubectl(&["delete", "rolebinding", binding, "-n", NAMESPACE]).await?;
    }
    wait::until_met(LIMIT, "the Secrets not to be readable, and the bundles filled", async || {
        plane.empty_a_bundle().await?;
        plane.wait_until_bundles_are_filled().await?;
        let answer = plane.issuer_says().await?;
        Ok(if answer.contains("cannot read Secret") { Check::Met(()) } else { Check::Unmet(answer) })
    })
    .await?;
    plane.dry_run(&good("trusted")).await?;
    let answer = replicas[0].readyz().await?;
    assert!(answer.starts_with("HTTP/1.1 200"), "what is served is good: {answer}");
    permit_again(&plane).await?;
    issuer_says(&plane, "HTTP/1.1 200", "ok").await?;
    end(plane, replicas).await
}

#[tokio::test]
async fn a_ca_stays_trusted_until_the_last_ready_endpoint_serves_its_successor() -> Result<()> {
    let mut plane = Plane::start().await?;
    plane.start_issuer(&["--ca-bundle-settle=1s"]).await?;
    let plane = Arc::new(plane);
    let replicas = [plane.admission().await?];
    // One that cannot be asked, as it is cut off.
    let nobody = std::net::TcpListener::bind((plane.plane.ready().host_address, 0))?.local_addr()?;
    plane.endpoint("cut-off", nobody).await?;
    let before = plane.material().await?.authority.unwrap().certificate;
    plane.secrets().delete(SECRET, &DeleteParams::default()).await?;
    let after = wait::until(LIMIT, "another CA", async || {
        let found =
            plane.material().await.ok().filter(|it| it.authority.as_ref().is_ok_and(|it| it.certificate != before));
        Ok(found)
    })
    .await?;
    replicas[0].wait_until_it_serves_that_of(&after).await?;
    issuer_says(&plane, "HTTP/1.1 200", &format!("because of endpoint {nobody}")).await?;
    assert!(plane.bundles().await?.iter().all(|it| certificates(it) == 2), "the CA before is still there");
    plane.kubectl(&["delete", "endpointslice", "cut-off", "-n", NAMESPACE]).await?;
    only_this_ca_is_trusted(&plane, &after).await?;
    end(plane, replicas).await
}

/// With an endpoint that cannot be asked, for which a rotation would keep the CA.
#[tokio::test]
async fn a_stolen_ca_is_thrown_out_at_once() -> Result<()> {
    let plane = Arc::new(Plane::start().await?);
    let replicas = [plane.admission().await?];
    let nobody = std::net::TcpListener::bind((plane.plane.ready().host_address, 0))?.local_addr()?;
    plane.endpoint("cut-off", nobody).await?;
    let stolen = plane.material().await?;
    let now = wait::until(LIMIT, "a time after that of the CA", async || {
        let now = Timestamp::now();
        let issued = stolen.authority.as_ref().unwrap().validity.not_before + SignedDuration::from_hours(1);
        Ok((now > issued + SignedDuration::from_secs(1)).then_some(now))
    })
    .await?;
    let (begin, text) = (Instant::now(), now.to_string());
    let annotation = json!({ "metadata": { "annotations": { DISTRUST_BEFORE: text } } });
    plane.secrets().patch(SECRET, &PatchParams::default(), &Patch::Merge(annotation)).await?;
    let after = wait::until(LIMIT, "another CA in service", async || {
        let found = plane.material().await?;
        Ok((replicas[0].serves(&found).await && !replicas[0].serves(&stolen).await).then_some(found))
    })
    .await?;
    only_this_ca_is_trusted(&plane, &after).await?;
    wait::until(LIMIT, "reviews to be answered", async || Ok(plane.dry_run(&good("after")).await.ok())).await?;
    println!("from the annotation to reviews under another CA alone: {:.2} s", begin.elapsed().as_secs_f64());
    let again = plane.material().await?.authority.unwrap().certificate;
    assert_eq!(again, after.authority.unwrap().certificate, "once is enough");
    end(plane, replicas).await
}

/// The Secret as older versions filled it, with what they serve in the hands of a replica that reads nothing.
#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_issues_nothing_anew_and_a_rollback_finds_what_it_knows() -> Result<()> {
    let mut plane = Plane::without_issuer(ControlPlane::start().await?).await?;
    let names =
        Names::of_service("jobset-webhook-service", NAMESPACE)?.with(&plane.plane.ready().host_address.to_string())?;
    let (now, lifetimes) = (Timestamp::now(), Lifetimes::default());
    let stored = with_new_serving(&issue::authority(now, &lifetimes)?, &names, now, &lifetimes)?;
    let mut secret = Secret { data: Some(stored.clone()), ..Secret::default() };
    secret.metadata.name = Some(SECRET.to_owned());
    plane.secrets().create(&PostParams::default(), &secret).await?;
    let served = tempfile::tempdir()?;
    for (file, bytes) in stored.iter().filter(|(file, _)| *file != CA_KEY) {
        std::fs::write(served.path().join(file), &bytes.0)?;
    }
    permit_to_look(&plane).await?;
    let directory = format!("--cert-dir={}", served.path().display());
    let older = plane.replica_with(&["--cert-source=mounted", &directory]).await?;
    plane.register(older.address).await?;
    plane.inject(&stored[CA_CERTIFICATES].0).await?;
    older.ready().await?;

    plane.start_issuer(&["--ca-bundle-settle=1s"]).await?;
    let plane = Arc::new(plane);
    let load = Load::start(&plane, &[&older]).await?;
    let newer = plane.replica().await?;
    newer.ready().await?;
    let found = plane.secrets().get(SECRET).await?.data.context("it is empty")?;
    assert_eq!(found, stored, "CA and certificate are as they were");
    newer.wait_until_it_serves_that_of(&Material::read(&stored)).await?;
    load.stop().await?.expect_at_least(1);

    // After rotations of all kinds, an older version finds a CA, its key, and a certificate of it that is good.
    for forced in [Forced::Expiry, Forced::Deletion] {
        let before = plane.material().await?;
        forced.upon(&plane, &before).await?;
        wait::until(LIMIT, "a Secret that older versions can use", async || {
            let found = plane.material().await.ok();
            let usable = |it: &Material| {
                let now = Timestamp::now();
                it.authority.is_ok() && it.serving.as_ref().is_ok_and(|it| it.validity.contains(now))
            };
            Ok(found.filter(usable).map(drop))
        })
        .await?;
    }
    end(plane, [older, newer]).await
}

/// What a webhook with a mounted certificate may read beyond the others.
async fn permit_to_look(plane: &Plane) -> Result<()> {
    let manifests = kustomize(&plane.plane, "cert-manager").await?;
    allow(&plane.plane, &manifests).await
}

/// The permissions as they are deployed.
async fn permit_again(plane: &Plane) -> Result<()> {
    allow(&plane.plane, &kustomize(&plane.plane, "kustomize").await?).await
}
