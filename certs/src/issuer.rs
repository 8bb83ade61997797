//! The one writer: issues, publishes and rotates, for as long as the process runs.
//!
//! ```text
//! Secret with the CA --> caBundles --> Secrets of the servers --> caBundles without the CAs before
//! ```
//!
//! A certificate reaches its server only after the live configurations trust it, and a CA leaves them only after every ready
//! endpoint serves what its successor has signed. So a rotation refuses no request. A distrusted CA leaves at once: then
//! requests are refused until the servers have their new certificate.
//!
//! That is the way of the admission service. The other certificates are of programs that know each other by their mounted Secrets
//! (`mounted.rs`), which the caBundles do not wait for.

use std::convert::Infallible;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use prometheus::IntGauge;
use rustls_pki_types::CertificateDer;
use tokio::sync::watch;
use tracing::info;

use crate::bundle::{Configuration, wanted};
use crate::gate::{Gate, Live};
use crate::issue::Usage;
use crate::material::{Authority, CA_CERTIFICATES, CERTIFICATE, Data, Material, Serving};
use crate::publish::Publisher;
use crate::state::{self, Leaf, State};
use crate::watches::{self, Rounds};
use crate::{Error, Lifetimes, Readiness, endpoints, mounted, x509};

/// How soon endpoints are asked again that did not serve the new certificate.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// What to issue and where to publish it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Namespace of the Secrets and Services.
    pub namespace: String,
    /// The Secret with the CA.
    pub secret: String,
    /// What is issued. The first one is for the admission service, the others are mounted.
    pub leaves: Vec<Leaf>,
    /// Webhook configurations whose caBundles are this program's.
    pub configurations: Vec<Configuration>,
    /// Lifetimes of what is issued.
    pub lifetimes: Lifetimes,
    /// How long API servers get to see a changed caBundle.
    pub settle: Duration,
    /// How long Pods get to read a changed `ca.crt` of a mounted Secret.
    pub mount_settle: Duration,
    /// How often to look by the wall clock when no watch reports a change.
    pub interval: Duration,
}

/// Keeps Secrets and caBundles up to date, and says how that goes. `mismatch` is 1 while a caBundle does not verify the
/// certificate of the first service. Never returns; drop the future to stop.
pub async fn maintain(
    client: Client,
    settings: Settings,
    readiness: watch::Sender<Readiness>,
    mismatch: IntGauge,
) -> Infallible {
    let secrets = std::iter::once(&settings.secret).chain(settings.leaves.iter().map(|it| &it.secret));
    let mut changes = watches::configurations(&client, &settings.configurations);
    for name in secrets {
        changes.push(watches::secret(&client, &settings.namespace, name));
    }
    let names = settings.leaves.first().map(|it| it.names.clone()).unwrap_or_default();
    let mut rounds = Rounds::new(settings.interval);
    let mut issuer = Issuer {
        secrets: Api::namespaced(client.clone(), &settings.namespace),
        publisher: Publisher::new(client.clone(), &settings.configurations),
        client,
        gate: Gate::new(names, settings.settle),
        settings,
        state: None,
        kept: Vec::new(),
        mismatch,
    };
    loop {
        let outcome = issuer.reconcile(Timestamp::now()).await;
        let wait = rounds.after(&readiness, outcome.readiness(), outcome.wait, outcome.failure.as_ref());
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            Some(()) = changes.next() => {}
        }
    }
}

struct Issuer {
    client: Client,
    secrets: Api<Secret>,
    settings: Settings,
    publisher: Publisher,
    gate: Gate,
    /// What the Secret with the CA held when it could last be read.
    state: Option<State>,
    /// The CAs of what the admission service was to read when that could last be read.
    kept: Vec<CertificateDer<'static>>,
    mismatch: IntGauge,
}

/// What one reconciliation came to.
struct Outcome {
    /// Why API servers cannot call the admission service, if they cannot.
    reason: Option<String>,
    /// What somebody should look at before long.
    remark: Option<String>,
    /// The first thing that could not be done.
    failure: Option<Error>,
    /// When to look again at the latest.
    wait: Duration,
}

impl Outcome {
    fn readiness(&self) -> Readiness {
        let failure = self.failure.as_ref().map(watches::chain);
        Readiness::of(self.reason.clone().into_iter().chain(failure), self.remark.clone())
    }
}

/// What the reader of a certificate reads now.
struct Published {
    secret: Option<Secret>,
    serving: Option<Serving>,
    authorities: Vec<CertificateDer<'static>>,
}

impl Published {
    fn of(secret: Option<Secret>) -> Self {
        let nothing = Data::new();
        let data = secret.as_ref().and_then(|it| it.data.as_ref()).unwrap_or(&nothing);
        let authorities = data.get(CA_CERTIFICATES).map(|it| x509::certificates(&it.0)).unwrap_or_default();
        let serving = Material::read(data).serving.ok();
        Self { secret, serving, authorities }
    }

    fn holds(&self, entries: &Data) -> bool {
        let data = self.secret.as_ref().and_then(|it| it.data.as_ref());
        entries.iter().all(|(entry, value)| data.is_some_and(|it| it.get(entry) == Some(value)))
    }

    fn is(&self, candidate: &Serving) -> bool {
        self.serving.as_ref().is_some_and(|it| it.certificate() == candidate.certificate())
    }
}

impl Issuer {
    /// Looks at everything once and does what is due. What fails keeps nothing else from being done.
    async fn reconcile(&mut self, now: Timestamp) -> Outcome {
        let mut outcome = Outcome { reason: None, remark: None, failure: None, wait: Duration::MAX };
        let Settings { secret, leaves, lifetimes, .. } = &self.settings;
        match state::ensure(&self.secrets, secret, leaves, lifetimes, now).await {
            Ok(state) => self.state = Some(state),
            Err(error) => outcome.failure = Some(error),
        }
        let Some(state) = self.state.clone() else {
            outcome.reason = Some("there is no CA yet".to_owned());
            return outcome;
        };
        outcome.wait = state.until.duration_since(now).unsigned_abs();
        outcome.remark.clone_from(&state.remark);
        let mut published = self.read_published(&mut outcome).await.into_iter();
        let first = published.next().flatten();
        self.hand_out_mounted(&mut outcome, published.collect(), &state, now).await;
        if let Some(first) = &first {
            self.kept.clone_from(&first.authorities);
        }
        let (authority, kept) = (&state.authority.certificate, self.kept.clone());
        let merge = |holds| wanted(authority, kept.iter().cloned().chain(holds), state.distrusted, now);
        let mut live = self.publish(&mut outcome, state.distrusted, merge).await;
        // While that cannot be read, whoever serves it stays trusted, and nothing else changes.
        let (Some(mut first), Some(leaf), Some((candidate, data))) =
            (first, self.settings.leaves.first().cloned(), state.candidates.first())
        else {
            return outcome;
        };
        let current = first.is(candidate);
        self.hand_out(&mut outcome, &mut first, (&leaf, candidate, data), &live, now).await;
        let is_alone = live.bundles.iter().all(|it| x509::certificates(&it.pem).len() == 1);
        if current && !is_alone && self.is_served_everywhere(&mut outcome, std::slice::from_ref(&leaf), authority).await
        {
            live = self.publish(&mut outcome, state.distrusted, |_| vec![authority.clone()]).await;
        }
        outcome.reason = self.judge(&first, &leaf, &live, now);
        outcome
    }

    /// What each Secret holds now, if it can be read.
    async fn read_published(&self, outcome: &mut Outcome) -> Vec<Option<Published>> {
        let mut published = Vec::new();
        for leaf in &self.settings.leaves {
            let found = state::read(&self.secrets, &leaf.secret).await;
            published.push(found.map(Published::of).map_err(|error| outcome.failure.get_or_insert(error)).ok());
        }
        published
    }

    async fn publish(
        &mut self,
        outcome: &mut Outcome,
        distrusted: Option<Timestamp>,
        wanted: impl Fn(Vec<CertificateDer<'static>>) -> Vec<CertificateDer<'static>>,
    ) -> Live {
        let published = self.publisher.publish(distrusted, wanted).await;
        outcome.failure = outcome.failure.take().or(published.failure);
        outcome.remark = published.contested.or_else(|| outcome.remark.take());
        outcome.wait = outcome.wait.min(published.wait);
        published.live
    }

    /// Gives the admission service its certificate, if that may be served by now.
    async fn hand_out(
        &mut self,
        outcome: &mut Outcome,
        published: &mut Published,
        (leaf, candidate, data): (&Leaf, &Serving, &Data),
        live: &Live,
        now: Timestamp,
    ) {
        if published.is(candidate) {
            return self.gate.withdraw();
        }
        let wait = self.gate.wait(published.serving.as_ref(), candidate, live, now);
        if !wait.is_zero() {
            outcome.wait = outcome.wait.min(wait);
        } else if self.write(outcome, leaf, published.secret.take(), data.clone(), candidate).await {
            published.serving = Some(candidate.clone());
            self.gate.withdraw();
        }
    }

    /// Brings the mounted Secrets to what they are to hold by now.
    async fn hand_out_mounted(
        &self,
        outcome: &mut Outcome,
        published: Vec<Option<Published>>,
        state: &State,
        now: Timestamp,
    ) {
        let Some((_, leaves)) = self.settings.leaves.split_first().filter(|(_, it)| !it.is_empty()) else { return };
        let of_leaves = || leaves.iter().zip(state.candidates.iter().skip(1));
        let Authority { certificate, validity, .. } = &state.authority;
        let settles_in = |times| mounted::settles_in(*validity, self.settings.mount_settle, times, now);
        let held = published.iter().flatten().flat_map(|it| it.authorities.clone());
        let mut trusted = wanted(certificate, held, state.distrusted, now);
        let mut current = published.iter().zip(of_leaves());
        if trusted.len() > 1
            && current.all(|(it, (_, (candidate, _)))| it.as_ref().is_some_and(|it| it.is(candidate)))
            && settles_in(2).is_zero()
            && self.is_served_everywhere(outcome, leaves, certificate).await
        {
            trusted = vec![certificate.clone()];
        }
        let again = [settles_in(1), settles_in(2)].into_iter().find(|it| !it.is_zero());
        outcome.wait = outcome.wait.min(again.unwrap_or(Duration::MAX));
        for (published, (leaf, (candidate, data))) in published.into_iter().zip(of_leaves()) {
            let Some(published) = published else { continue };
            let due = mounted::due(leaf.usage, published.serving.as_ref(), data, &trusted, settles_in(1), now);
            if !published.holds(&due) {
                self.write(outcome, leaf, published.secret, due, candidate).await;
            }
        }
    }

    /// Adds this to the Secret of a certificate, and says whether that succeeded.
    async fn write(
        &self,
        outcome: &mut Outcome,
        leaf: &Leaf,
        found: Option<Secret>,
        data: Data,
        candidate: &Serving,
    ) -> bool {
        let has_certificate = data.contains_key(CERTIFICATE);
        if let Err(error) = state::write(&self.secrets, &leaf.secret, found, data).await {
            outcome.failure.get_or_insert(error);
            return false;
        }
        if has_certificate {
            let (secret, not_after) = (&leaf.secret, candidate.validity.not_after);
            info!(secret, %not_after, names = %candidate.names, "handed out a certificate");
        } else {
            info!(secret = leaf.secret, "wrote the CAs to be trusted");
        }
        // To ask the endpoints.
        outcome.wait = outcome.wait.min(ASK_AGAIN);
        true
    }

    /// Whether every ready endpoint of every one of these Services serves what this CA has signed.
    async fn is_served_everywhere(
        &self,
        outcome: &mut Outcome,
        leaves: &[Leaf],
        authority: &CertificateDer<'static>,
    ) -> bool {
        for service in leaves.iter().filter(|it| it.usage == Usage::Server) {
            match endpoints::lagging(&self.client, &self.settings.namespace, service, authority).await {
                Ok(None) => {}
                Ok(Some(endpoint)) => {
                    outcome.remark = Some(format!("CAs from before stay trusted, because of endpoint {endpoint}"));
                    outcome.wait = outcome.wait.min(ASK_AGAIN);
                    return false;
                }
                Err(error) => {
                    outcome.failure.get_or_insert(error);
                    return false;
                }
            }
        }
        true
    }

    /// Why API servers cannot call the admission service, if they cannot.
    fn judge(&self, published: &Published, leaf: &Leaf, live: &Live, now: Timestamp) -> Option<String> {
        let distrusting = published.serving.as_ref().and_then(|it| live.distrusting(it, &leaf.names, now));
        self.mismatch.set(distrusting.is_some().into());
        let distrust = || distrusting.map(|bundle| format!("{} of {}", bundle.distrust(), leaf.name));
        let waiting = || {
            let secret = &leaf.secret;
            let missing = published.serving.is_none();
            missing.then(|| format!("Secret {secret} waits until all API servers have seen the caBundles"))
        };
        live.without_webhooks(&self.settings.configurations).or_else(distrust).or_else(waiting)
    }
}
