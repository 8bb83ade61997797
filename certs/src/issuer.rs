//! The one writer: issues, publishes and rotates, for as long as the process runs.
//!
//! ```text
//! Secret with the CA --> caBundles, and ca.crt of all Secrets --> an hour later, the certificates
//! ```
//!
//! All that verify certificates trust a new CA for the lead time (an hour) before a certificate of it takes the place of a good
//! one, and the CAs before it for as long as a certificate of theirs can live. So a rotation rejects no request, and nobody has
//! to be asked how far it has come. Where there is no good certificate, the next one does not wait. A distrusted CA leaves at
//! once: then requests are rejected until the servers have their new certificate.
//!
//! API servers verify the certificate of the admission service, by the caBundles. The other certificates are of programs that know
//! each other by the `ca.crt` that is mounted beside each certificate.

use std::convert::Infallible;
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use prometheus::IntGauge;
use rustls_pki_types::CertificateDer;
use tokio::sync::watch;
use tracing::info;

use crate::bundle::{Configuration, wanted};
use crate::handover::{self, InService, Live};
use crate::material::{Authority, CA_CERTIFICATES, Data, Material, Serving};
use crate::publish::{Published, Publisher};
use crate::state::{self, Leaf, Since, State};
use crate::watches::{self, Rounds};
use crate::{Error, Lifetimes, Readiness, policy, x509};

/// What to issue and where to publish it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Namespace of the Secrets and Services.
    pub namespace: String,
    pub secret: String,
    /// What is issued. The first one is for the admission service, the others are mounted.
    pub leaves: Vec<Leaf>,
    /// Webhook configurations whose caBundles are this program's.
    pub configurations: Vec<Configuration>,
    pub lifetimes: Lifetimes,
    /// How long a new CA is trusted before a certificate of it takes the place of a good one.
    pub lead: Duration,
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
    let mut rounds = Rounds::new(settings.interval);
    let mut issuer = Issuer {
        secrets: Api::namespaced(client.clone(), &settings.namespace),
        publisher: Publisher::new(client, &settings.configurations),
        settings,
        state: None,
        trusted: Vec::new(),
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
    secrets: Api<Secret>,
    settings: Settings,
    publisher: Publisher,
    /// What the Secret with the CA held when it could last be read.
    state: Option<State>,
    /// The CAs that were to be trusted at the last look.
    trusted: Vec<CertificateDer<'static>>,
    mismatch: IntGauge,
}

/// What one reconciliation came to.
pub(crate) struct Outcome {
    /// Why API servers cannot call the admission service, if they cannot.
    reason: Option<String>,
    /// What somebody should look at before long.
    pub(crate) remark: Option<String>,
    /// The first thing that could not be done.
    failure: Option<Error>,
    /// When to look again at the latest.
    pub(crate) wait: Duration,
}

impl Outcome {
    /// Something could not be done. That keeps nothing else from being done.
    pub(crate) fn fails(&mut self, error: Error) {
        self.failure.get_or_insert(error);
    }

    fn readiness(&self) -> Readiness {
        let failure = self.failure.as_ref().map(watches::chain);
        Readiness::of(self.reason.clone().into_iter().chain(failure), self.remark.clone())
    }
}

/// What the Secret of a certificate holds now.
struct Held {
    secret: Option<Secret>,
    serving: Option<Serving>,
    authorities: Vec<CertificateDer<'static>>,
}

impl Held {
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
            Err(error) => outcome.fails(error),
        }
        let Some(mut state) = self.state.clone() else {
            outcome.reason = Some("there is no CA yet".to_owned());
            return outcome;
        };
        outcome.wait = state.until.duration_since(now).unsigned_abs();
        outcome.remark.clone_from(&state.remark);
        let mut held = Vec::new();
        for leaf in &self.settings.leaves {
            let found = state::read(&self.secrets, &leaf.secret).await;
            held.push(found.map(Held::of).map_err(|error| outcome.fails(error)).ok());
        }
        let published = self.trust(&mut outcome, &state, &held, now).await;
        let since = trusted_since(&state, &held, &published, now);
        if since != state.since
            && let Err(error) = state.note(&self.secrets, &self.settings.secret, since).await
        {
            outcome.fails(error);
        }
        for (index, held) in held.iter_mut().enumerate() {
            if let Some(held) = held {
                self.hand_out(&mut outcome, &state, index, held, &published.live, now).await;
            }
        }
        // While the certificate of the admission service cannot be read, that failure is the reason.
        if let (Some(Some(held)), Some(leaf)) = (held.first(), self.settings.leaves.first()) {
            outcome.reason = self.judge(held, leaf, &published.live, now);
        }
        outcome
    }

    /// Decides which CAs are trusted, and publishes them in the caBundles. What those hold beyond the Secrets stays in them, and
    /// gets nowhere else: it may be from somebody else.
    async fn trust(
        &mut self,
        outcome: &mut Outcome,
        state: &State,
        held: &[Option<Held>],
        now: Timestamp,
    ) -> Published {
        let Authority { certificate, validity, .. } = &state.authority;
        let mut current = held.iter().zip(&state.candidates);
        let all_replaced = current.all(|(it, (candidate, _))| it.as_ref().is_some_and(|it| it.is(candidate)));
        let is_alone = policy::is_settled(*validity, all_replaced, &self.settings.lifetimes, now);
        let known = held.iter().flatten().flat_map(|it| &it.authorities).chain(&self.trusted);
        let known: Vec<_> = known.filter(|_| !is_alone).cloned().collect();
        self.trusted = wanted(certificate, known, state.distrusted, now);
        let merge = |holds: Vec<_>| {
            let holds = holds.into_iter().filter(|_| !is_alone);
            wanted(certificate, self.trusted.iter().cloned().chain(holds), state.distrusted, now)
        };
        self.publisher.publish(outcome, state.distrusted, merge).await
    }

    /// Brings the Secret of a certificate to what it is to hold by now.
    async fn hand_out(
        &self,
        outcome: &mut Outcome,
        state: &State,
        index: usize,
        held: &mut Held,
        live: &Live,
        now: Timestamp,
    ) {
        let (Some(leaf), Some((candidate, data))) = (self.settings.leaves.get(index), state.candidates.get(index))
        else {
            return;
        };
        let current = held.serving.as_ref();
        let (in_service, since) = if index == 0 {
            let since = state.since.bundles.filter(|_| live.trusts(candidate, &leaf.names, now));
            (InService::of(current, candidate, live, &leaf.names, now), since)
        } else {
            (InService::of_mounted(current, leaf.usage, &self.trusted, now), state.since.mounts)
        };
        let is_current = held.is(candidate);
        let wait = if is_current { Duration::MAX } else { in_service.wait(since, self.settings.lead, now) };
        outcome.wait = outcome.wait.min(wait);
        let mut due = if wait.is_zero() { data.clone() } else { Data::new() };
        due.insert(CA_CERTIFICATES.to_owned(), ByteString(x509::bundle(&self.trusted)));
        if held.holds(&due) {
            return;
        }
        let (secret, not_after) = (&leaf.secret, candidate.validity.not_after);
        match state::write(&self.secrets, secret, held.secret.take(), due).await {
            Err(error) => outcome.fails(error),
            Ok(_) if wait.is_zero() => {
                info!(secret, %not_after, names = %candidate.names, "handed out a certificate");
                held.serving = Some(candidate.clone());
            }
            Ok(_) => info!(secret, "wrote the CAs to be trusted"),
        }
    }

    /// Why API servers cannot call the admission service, if they cannot.
    fn judge(&self, held: &Held, leaf: &Leaf, live: &Live, now: Timestamp) -> Option<String> {
        let distrusting = held.serving.as_ref().and_then(|it| live.distrusting(it, &leaf.names, now));
        self.mismatch.set(distrusting.is_some().into());
        let distrust = || distrusting.map(|bundle| format!("{} of {}", bundle.distrust(), leaf.name));
        let waiting = || {
            let secret = &leaf.secret;
            let missing = held.serving.is_none();
            missing.then(|| format!("Secret {secret} waits until all API servers have seen the caBundles"))
        };
        live.without_webhooks(&self.settings.configurations).or_else(distrust).or_else(waiting)
    }
}

/// Since when the caBundles and the mounted Secrets have held the CA, by what this look has found.
fn trusted_since(state: &State, held: &[Option<Held>], published: &Published, now: Timestamp) -> Since {
    let authority = &state.authority.certificate;
    let in_bundles = published.found.iter().all(|it| x509::certificates(&it.pem).contains(authority));
    let mut mounted = held.iter().skip(1);
    let in_mounts = mounted.try_fold(true, |all, held| Some(all && held.as_ref()?.authorities.contains(authority)));
    Since {
        bundles: handover::since(state.since.bundles, (!published.live.hidden).then_some(in_bundles), now),
        mounts: handover::since(state.since.mounts, in_mounts, now),
    }
}
