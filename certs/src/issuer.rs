//! The one writer: issues, publishes and rotates, for as long as the process runs.
//!
//! ```text
//! Secret with the CA --> caBundles --> Secrets of the servers --> caBundles without the CAs before
//! ```
//!
//! A certificate reaches its server only after the live configurations trust it, and a CA leaves them only after every ready
//! endpoint serves what its successor has signed. So a rotation refuses no request. A distrusted CA leaves at once: then
//! requests are refused until the servers have their new certificate.

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
use crate::material::{CA_CERTIFICATES, Data, Material, Serving};
use crate::publish::Publisher;
use crate::state::{self, Service, State};
use crate::watches::{self, Rounds};
use crate::{Error, Lifetimes, Readiness, endpoints, x509};

/// How soon endpoints are asked again that did not serve the new certificate.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// What to issue and where to publish it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Namespace of the Secrets and Services.
    pub namespace: String,
    /// The Secret with the CA.
    pub secret: String,
    /// Who gets a certificate. The first one is the admission service.
    pub services: Vec<Service>,
    /// Webhook configurations whose caBundles are this program's.
    pub configurations: Vec<Configuration>,
    /// Lifetimes of what is issued.
    pub lifetimes: Lifetimes,
    /// How long API servers get to see a changed caBundle.
    pub settle: Duration,
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
    let secrets = std::iter::once(&settings.secret).chain(settings.services.iter().map(|it| &it.secret));
    let mut changes = watches::configurations(&client, &settings.configurations);
    for name in secrets {
        changes.push(watches::secret(&client, &settings.namespace, name));
    }
    let gates = settings.services.iter().map(|it| Gate::new(it.names.clone(), settings.settle)).collect();
    let mut rounds = Rounds::new(settings.interval);
    let mut issuer = Issuer {
        secrets: Api::namespaced(client.clone(), &settings.namespace),
        publisher: Publisher::new(client.clone(), &settings.configurations),
        client,
        settings,
        gates,
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
    gates: Vec<Gate>,
    /// What the Secret with the CA held when it could last be read.
    state: Option<State>,
    /// The CAs of what the servers were to read when that could last be read.
    kept: Vec<CertificateDer<'static>>,
    mismatch: IntGauge,
}

/// What one reconciliation came to.
struct Outcome {
    /// Why the servers cannot be called, if they cannot.
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

/// What a server reads now.
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

    fn is(&self, candidate: &Serving) -> bool {
        self.serving.as_ref().is_some_and(|it| it.certificate() == candidate.certificate())
    }
}

impl Issuer {
    /// Looks at everything once and does what is due. What fails keeps nothing else from being done.
    async fn reconcile(&mut self, now: Timestamp) -> Outcome {
        let mut outcome = Outcome { reason: None, remark: None, failure: None, wait: Duration::MAX };
        let Settings { secret, services, lifetimes, .. } = &self.settings;
        match state::ensure(&self.secrets, secret, services, lifetimes, now).await {
            Ok(state) => self.state = Some(state),
            Err(error) => outcome.failure = Some(error),
        }
        let Some(state) = self.state.clone() else {
            outcome.reason = Some("there is no CA yet".to_owned());
            return outcome;
        };
        outcome.wait = state.until.duration_since(now).unsigned_abs();
        let published = self.read_published(&mut outcome).await;
        if let Some(published) = &published {
            self.kept = published.iter().flat_map(|it| it.authorities.clone()).collect();
        }
        let (authority, kept) = (&state.authority.certificate, self.kept.clone());
        let merge = |holds| wanted(authority, kept.iter().cloned().chain(holds), state.distrusted, now);
        let mut live = self.publish(&mut outcome, merge).await;
        // While that cannot be read, whoever serves it stays trusted, and nothing else changes.
        let Some(mut published) = published else { return outcome };
        let current = published.iter().zip(&state.candidates).all(|(it, (candidate, _))| it.is(candidate));
        self.hand_out(&mut outcome, &mut published, &state, &live, now).await;
        let is_alone = live.bundles.iter().all(|it| x509::certificates(&it.pem).len() == 1);
        if current && !is_alone && self.is_served_everywhere(&mut outcome, authority).await {
            live = self.publish(&mut outcome, |_| vec![authority.clone()]).await;
        }
        outcome.reason = self.judge(&published, &live, now);
        outcome
    }

    /// What each of the servers reads now; nothing where one cannot be read.
    async fn read_published(&self, outcome: &mut Outcome) -> Option<Vec<Published>> {
        let mut published = Vec::new();
        for service in &self.settings.services {
            match state::read(&self.secrets, &service.secret).await {
                Ok(secret) => published.push(Published::of(secret)),
                Err(error) => {
                    outcome.failure.get_or_insert(error);
                    return None;
                }
            }
        }
        Some(published)
    }

    async fn publish(
        &mut self,
        outcome: &mut Outcome,
        wanted: impl Fn(Vec<CertificateDer<'static>>) -> Vec<CertificateDer<'static>>,
    ) -> Live {
        let published = self.publisher.publish(wanted).await;
        outcome.failure = outcome.failure.take().or(published.failure);
        outcome.remark = published.contested;
        outcome.wait = outcome.wait.min(published.wait);
        published.live
    }

    /// Gives the servers the certificates that may be served by now.
    async fn hand_out(
        &mut self,
        outcome: &mut Outcome,
        published: &mut [Published],
        state: &State,
        live: &Live,
        now: Timestamp,
    ) {
        let of_services = self.settings.services.iter().zip(&mut self.gates);
        for ((service, gate), (published, (candidate, data))) in
            of_services.zip(published.iter_mut().zip(&state.candidates))
        {
            if published.is(candidate) {
                gate.withdraw();
                continue;
            }
            let wait = gate.wait(published.serving.as_ref(), candidate, live, now);
            if !wait.is_zero() {
                outcome.wait = outcome.wait.min(wait);
                continue;
            }
            match state::write(&self.secrets, &service.secret, published.secret.take(), data.clone()).await {
                Ok(()) => {
                    let not_after = candidate.validity.not_after;
                    info!(secret = service.secret, %not_after, names = %candidate.names, "handed out a certificate");
                    published.serving = Some(candidate.clone());
                    gate.withdraw();
                    // To ask the endpoints.
                    outcome.wait = outcome.wait.min(ASK_AGAIN);
                }
                Err(error) => outcome.failure = outcome.failure.take().or(Some(error)),
            }
        }
    }

    /// Whether every ready endpoint of every service serves what this CA has signed.
    async fn is_served_everywhere(&self, outcome: &mut Outcome, authority: &CertificateDer<'static>) -> bool {
        for service in &self.settings.services {
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

    /// Why API servers cannot call the servers, if they cannot.
    fn judge(&self, published: &[Published], live: &Live, now: Timestamp) -> Option<String> {
        let distrusting = published.iter().zip(&self.settings.services).find_map(|(it, service)| {
            live.distrusting(it.serving.as_ref()?, &service.names, now).map(|bundle| (bundle, service))
        });
        self.mismatch.set(distrusting.is_some().into());
        let distrust = || distrusting.map(|(bundle, service)| format!("{} of {}", bundle.distrust(), service.name));
        let waiting = || {
            let missing = published.iter().zip(&self.settings.services).find(|(it, _)| it.serving.is_none());
            missing.map(|(_, it)| format!("Secret {} waits until all API servers have seen the caBundles", it.secret))
        };
        live.without_webhooks(&self.settings.configurations).or_else(distrust).or_else(waiting)
    }
}
