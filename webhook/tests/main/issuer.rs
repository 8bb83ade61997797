//! What `jobset-certs` does where not all goes well: others write, permissions are missing, a CA is stolen; and where versions change.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use jiff::{SignedDuration, Timestamp};
use jobset_certs::issue::Usage;
use jobset_certs::material::{CA_CERTIFICATES, CA_KEY, CERTIFICATE, KEY, Material, with_new_leaf, with_new_serving};
use jobset_certs::policy::DISTRUST_BEFORE;
use jobset_certs::state::TRUSTED_SINCE;
use jobset_certs::{Lifetimes, Names, issue};
use jobset_harness::ControlPlane;
use jobset_harness::admission::{CERTS, allow, apply, kustomize};
use jobset_harness::wait::{self, Check};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use serde_json::json;
use tokio::time::timeout;

use crate::api_server::good;
use crate::certificates::{SECRET, certificates};
use crate::cluster::{LIMIT, MUTATING, NAMESPACE, Plane, VALIDATING};
use crate::load::Load;
use crate::refusals::Refusals;
use crate::rotation::{Forced, after_issue_of, end, only_this_ca_is_trusted};

/// After so long, a revocation will not end. That reviews are refused for at most 5 s is measured, and printed: a test on a busy
/// machine may take longer.
const REVOCATION: Duration = Duration::from_secs(50);

#[tokio::test]
async fn emptied_bundle_is_refilled_and_its_writer_named() -> Result<()> {
    let plane = Arc::new(Plane::start().await?);
    let reason = plane.issuer_readyz().await?;
    assert!(reason.starts_with("HTTP/1.1 503"), "no configuration, not ready: {reason}");
    let replicas = [plane.admission().await?];
    for _ in 0..3 {
        plane.empty_a_bundle().await?;
        plane.wait_until_bundles_are_filled().await?;
    }
    plane.issuer_says("HTTP/1.1 200", "is also written by ").await?;
    // With all configurations gone, there is nothing to be ready for.
    plane.validating().delete(VALIDATING, &DeleteParams::default()).await?;
    plane.mutating().delete(MUTATING, &DeleteParams::default()).await?;
    plane.issuer_says("HTTP/1.1 503", "there is no webhook in").await?;
    end(plane, replicas).await
}

#[tokio::test]
async fn a_bundle_that_may_not_be_written_is_told() -> Result<()> {
    let plane = Arc::new(Plane::start().await?);
    let replicas = [plane.admission().await?];
    plane.kubectl(&["delete", "clusterrolebinding", "jobset-certs"]).await?;
    wait::until_met(LIMIT, "jobset-certs not to be ready with an empty caBundle", async || {
        // As long as the API server still allows it, the bundle comes back.
        plane.empty_a_bundle().await?;
        let answer = plane.issuer_readyz().await?;
        let told = answer.starts_with("HTTP/1.1 503") && answer.contains("cannot");
        Ok(if told { Check::Met(()) } else { Check::Unmet(answer) })
    })
    .await?;
    let refused = plane.dry_run(&good("refused")).await.map(drop).map_err(|error| error.to_string());
    assert!(refused.as_ref().is_err_and(|it| it.contains("x509")), "{refused:?}");
    permit_again(&plane).await?;
    plane.issuer_says("HTTP/1.1 200", "ok").await?;
    plane.dry_run(&good("trusted")).await?;
    end(plane, replicas).await
}

#[tokio::test]
async fn unreadable_secrets_leave_bundles_trusting_served_certificate() -> Result<()> {
    let plane = Arc::new(Plane::start().await?);
    let replicas = [plane.admission().await?];
    for binding in ["jobset-webhook", "jobset-certs"] {
        plane.kubectl(&["delete", "rolebinding", binding, "-n", NAMESPACE]).await?;
    }
    wait::until_met(LIMIT, "the Secrets not to be readable, and the bundles filled", async || {
        plane.empty_a_bundle().await?;
        plane.wait_until_bundles_are_filled().await?;
        let answer = plane.issuer_readyz().await?;
        Ok(if answer.contains("cannot read Secret") { Check::Met(()) } else { Check::Unmet(answer) })
    })
    .await?;
    plane.dry_run(&good("trusted")).await?;
    let answer = replicas[0].readyz().await?;
    assert!(answer.starts_with("HTTP/1.1 200"), "what is served is good: {answer}");
    permit_again(&plane).await?;
    plane.issuer_says("HTTP/1.1 200", "ok").await?;
    end(plane, replicas).await
}

#[tokio::test]
async fn new_ca_keeps_lead_time_and_good_certificate_across_restart() -> Result<()> {
    let mut plane = Plane::start().await?;
    let replicas = [plane.admission().await?];
    let (before, first) = (plane.material().await?, noted(&plane, |_| true).await?);
    plane.secrets().delete(SECRET, &DeleteParams::default()).await?;
    // The hour of the new CA has begun: both are trusted, and the certificate of the one before is still handed out.
    let begun = noted(&plane, |it| it != first).await?;
    plane.start_issuer(&[]).await?;
    plane.issuer_says("HTTP/1.1 200", "ok").await?;
    let after = plane.material().await?;
    assert_eq!(noted(&plane, |_| true).await?, begun, "a restart does not begin it again");
    assert!(plane.bundles().await?.iter().all(|it| certificates(it) == 2), "both CAs are trusted");
    assert!(replicas[0].serves(&before).await && !replicas[0].serves(&after).await);
    // As if that had been an hour ago.
    let ago = Timestamp::now() - SignedDuration::from_hours(1);
    let annotation = json!({ "metadata": { "annotations": { TRUSTED_SINCE: ago.to_string() } } });
    plane.secrets().patch(SECRET, &PatchParams::default(), &Patch::Merge(annotation)).await?;
    replicas[0].wait_until_it_serves_that_of(&after).await?;
    assert!(plane.bundles().await?.iter().all(|it| certificates(it) == 2), "the CA before stays trusted");
    end(Arc::new(plane), replicas).await
}

/// Since when the CA is trusted, once there is such a time.
async fn noted(plane: &Plane, is_wanted: impl Fn(&str) -> bool) -> Result<String> {
    wait::until(LIMIT, "the time since when the CA is trusted", async || {
        let secret = plane.secrets().get_opt(SECRET).await?;
        let noted = secret.and_then(|it| it.metadata.annotations?.remove(TRUSTED_SINCE));
        Ok(noted.filter(|it| is_wanted(it)))
    })
    .await
}

#[tokio::test]
async fn a_stolen_ca_is_thrown_out_at_once() -> Result<()> {
    let plane = Arc::new(Plane::start().await?);
    let replicas = [plane.admission().await?];
    let stolen = plane.material().await?;
    let begin = Instant::now();
    let revoked = async {
        distrust(&plane, &stolen).await?;
        let after = wait::until(LIMIT, "another CA in service", async || {
            let found = plane.material().await?;
            Ok((replicas[0].serves(&found).await && !replicas[0].serves(&stolen).await).then_some(found))
        })
        .await?;
        only_this_ca_is_trusted(&plane, &after).await?;
        wait::until(LIMIT, "reviews to be answered", async || Ok(plane.dry_run(&good("after")).await.ok())).await?;
        anyhow::Ok(after)
    };
    let revoked = timeout(REVOCATION, Refusals::until(&plane, revoked)).await;
    let (after, refusals) = revoked.context("the revocation takes too long")??;
    println!("from the annotation to reviews under another CA alone: {:.2} s", begin.elapsed().as_secs_f64());
    println!("reviews meanwhile: {refusals}");
    let again = plane.material().await?.authority.unwrap().certificate;
    assert_eq!(again, after.authority.unwrap().certificate, "once is enough");
    end(plane, replicas).await
}

/// The Secret as older versions filled it, with what they serve in the hands of a replica that reads nothing.
#[tokio::test(flavor = "multi_thread")]
async fn upgrade_and_rollback_keep_issued_certificates() -> Result<()> {
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

    plane.start_issuer(&["--ca-lead-time=1s"]).await?;
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

/// Annotates the Secret with a time after that of its CA.
async fn distrust(plane: &Plane, stolen: &Material) -> Result<()> {
    let now = after_issue_of(stolen).await?;
    let annotation = json!({ "metadata": { "annotations": { DISTRUST_BEFORE: now.to_string() } } });
    plane.secrets().patch(SECRET, &PatchParams::default(), &Patch::Merge(annotation)).await?;
    Ok(())
}

const CLIENT: &str = "jobset-controller";
const CLIENT_LEAF: &str = "jobset-controller-leaf";
const RELAY: &str = "jobset-relay";
const RELAY_LEAF: &str = "jobset-relay-leaf";

/// What a Pod reads that mounts one of these Secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    leaf: CertificateDer<'static>,
    trusted: Vec<CertificateDer<'static>>,
}

impl Mount {
    async fn read(plane: &Plane, secret: &str) -> Result<Option<Self>> {
        let Some(data) = plane.secrets().get_opt(secret).await?.and_then(|it| it.data) else { return Ok(None) };
        assert!(!data.contains_key(CA_KEY), "{secret} has the key of the CA");
        let of = |entry: &str| {
            let pem = data.get(entry).map(|it| it.0.as_slice()).unwrap_or_default();
            CertificateDer::pem_slice_iter(pem).flatten().collect::<Vec<_>>()
        };
        let leaf = of(CERTIFICATE).into_iter().next().filter(|_| data.contains_key(KEY));
        Ok(leaf.map(|leaf| Self { leaf, trusted: of(CA_CERTIFICATES) }))
    }

    /// Waits until relay and client read what this holds for.
    async fn both(plane: &Plane, what: &str, holds: impl Fn(&Self, &Self) -> bool) -> Result<(Self, Self)> {
        wait::until_met(LIMIT, what.to_owned(), async || {
            let found = (Self::read(plane, RELAY_LEAF).await?, Self::read(plane, CLIENT_LEAF).await?);
            Ok(match found {
                (Some(relay), Some(client)) if holds(&relay, &client) => Check::Met((relay, client)),
                found => Check::Unmet(format!("{found:?}")),
            })
        })
        .await
    }

    /// Whether a server that reads this lets a client with that certificate in.
    fn admits(&self, client: &Self) -> Result<bool> {
        let provider = Arc::new(default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(self.roots()?, provider).build()?;
        Ok(verifier.verify_client_cert(&client.leaf, &[], UnixTime::now()).is_ok())
    }

    /// Whether a client that reads this takes a server with that certificate for the one of this name.
    fn believes(&self, server: &Self, name: &str) -> Result<bool> {
        let provider = Arc::new(default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(self.roots()?, provider).build()?;
        let name = ServerName::try_from(format!("{name}.{NAMESPACE}.svc"))?;
        Ok(verifier.verify_server_cert(&server.leaf, &[], &name, &[], UnixTime::now()).is_ok())
    }

    fn roots(&self) -> Result<Arc<RootCertStore>> {
        let mut roots = RootCertStore::empty();
        for authority in &self.trusted {
            roots.add(authority.clone())?;
        }
        Ok(roots.into())
    }
}

/// Without any webhook configuration: the caBundles have no part in it.
#[tokio::test]
async fn client_certificate_is_issued_for_clients_alone_renewed_and_revoked() -> Result<()> {
    let mut plane = Plane::without_issuer(ControlPlane::start().await?).await?;
    permit_relay(&plane).await?;
    plane
        .start_issuer(&[
            "--service=jobset-webhook-service=jobset-webhook-leaf",
            &format!("--service={RELAY}={RELAY_LEAF}"),
            &format!("--client={CLIENT}={CLIENT_LEAF}"),
            "--ca-lead-time=1s",
        ])
        .await?;
    let (relay, client) = Mount::both(&plane, "both certificates", |_, _| true).await?;
    assert!(relay.admits(&client)? && client.believes(&relay, RELAY)?, "they know each other");
    assert!(!relay.admits(&relay)? && !client.believes(&client, CLIENT)?, "each certificate has one purpose");

    let before = plane.material().await?;
    expire_client(&plane, &before).await?;
    let (_, renewed) = Mount::both(&plane, "another certificate", |_, it| it.leaf != client.leaf).await?;
    assert_eq!(renewed.trusted, [before.authority.clone().unwrap().certificate], "of the same CA");
    assert!(relay.admits(&renewed)?);

    // Each knows the other with its certificate from before or after.
    let rotated = |relay: &Mount, client: &Mount, before: &Mount| {
        let both = relay.trusted.len() == 2 && relay.trusted == client.trusted;
        both && client.leaf != before.leaf && client.trusted[1..] == before.trusted
    };
    plane.secrets().delete(SECRET, &DeleteParams::default()).await?;
    let (relay, client) = Mount::both(&plane, "a rotation", |relay, it| rotated(relay, it, &renewed)).await?;
    assert!(relay.admits(&client)? && relay.admits(&renewed)? && renewed.trusted != client.trusted);

    distrust(&plane, &plane.material().await?).await?;
    let alone = |relay: &Mount, client: &Mount| relay.trusted.len() == 1 && relay.trusted == client.trusted;
    let (relay, after) =
        Mount::both(&plane, "another CA alone", |relay, it| alone(relay, it) && it.leaf != client.leaf).await?;
    assert!(relay.admits(&after)? && !relay.admits(&client)?, "what was stolen opens nothing");

    plane.secrets().delete(SECRET, &DeleteParams::default()).await?;
    Mount::both(&plane, "a rotation", |relay, it| rotated(relay, it, &after)).await?;
    plane.plane.stop().await
}

/// The certificate of the client in the Secret with the CA, as it was issued 91 days ago.
async fn expire_client(plane: &Plane, before: &Material) -> Result<()> {
    let then = Timestamp::now() - SignedDuration::from_hours(24 * 91);
    let (authority, names) = (&before.authority.as_ref().unwrap().issued, Names::of_host(CLIENT, NAMESPACE)?);
    let data = with_new_leaf(authority, Usage::Client, &names, then, &Lifetimes::default())?;
    let data = json!({ format!("{CLIENT}.crt"): data[CERTIFICATE], format!("{CLIENT}.key"): data[KEY] });
    plane.secrets().patch(SECRET, &PatchParams::default(), &Patch::Merge(json!({ "data": data }))).await?;
    Ok(())
}

/// The Secrets that the chart lets `jobset-certs` write with `stream.enabled`.
async fn permit_relay(plane: &Plane) -> Result<()> {
    let metadata = json!({ "name": RELAY, "namespace": NAMESPACE });
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": metadata,
        "rules": [{ "apiGroups": [""], "resources": ["secrets"], "resourceNames": [RELAY_LEAF, CLIENT_LEAF],
            "verbs": ["get", "list", "watch", "update"] }],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": metadata,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": RELAY },
        "subjects": [{ "kind": "ServiceAccount", "name": CERTS, "namespace": NAMESPACE }],
    });
    apply(&plane.plane, "permit-relay.yaml", &[role, binding]).await
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
