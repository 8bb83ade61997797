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
        let pass = issuer.pass(Timestamp::now()).await;
        let wait = rounds.after(&readiness, pass.readiness(), pass.wait, pass.failure.as_ref());
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

/// What one look at everything came to.
struct Pass {
    /// Why the servers cannot be called, if they cannot.
    reason: Option<String>,
    /// What somebody should look at before long.
    remark: Option<String>,
    /// The first thing that could not be done.
    failure: Option<Error>,
    /// When to look again at the latest.
    wait: Duration,
}

impl Pass {
    fn readiness(&self) -> Readiness {
        let failure = self.failure.as_ref().map(watches::chain);
        let texts: Vec<_> = [&self.reason, &failure, &self.remark].into_iter().flatten().map(String::as_str).collect();
        match texts.join("; ") {
            text if text.is_empty() => Readiness::Ready,
            text if self.reason.is_none() && failure.is_none() => Readiness::ReadyBut(text),
            text => Readiness::NotReady(text),
        }
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
    async fn pass(&mut self, now: Timestamp) -> Pass {
        let mut pass = Pass { reason: None, remark: None, failure: None, wait: Duration::MAX };
        let Settings { secret, services, lifetimes, .. } = &self.settings;
        match state::ensure(&self.secrets, secret, services, lifetimes, now).await {
            Ok(state) => self.state = Some(state),
            Err(error) => pass.failure = Some(error),
        }
        let Some(state) = self.state.clone() else {
            pass.reason = Some("there is no CA yet".to_owned());
            return pass;
        };
        pass.wait = state.until.duration_since(now).unsigned_abs();
        let published = self.read_published(&mut pass).await;
        if let Some(published) = &published {
            self.kept = published.iter().flat_map(|it| it.authorities.clone()).collect();
        }
        let (authority, kept) = (&state.authority.certificate, self.kept.clone());
        let merge = |holds| wanted(authority, kept.iter().cloned().chain(holds), state.distrusted, now);
        let mut live = self.publish(&mut pass, merge).await;
        // While that cannot be read, whoever serves it stays trusted, and nothing else changes.
        let Some(mut published) = published else { return pass };
        let current = published.iter().zip(&state.candidates).all(|(it, (candidate, _))| it.is(candidate));
        self.hand_out(&mut pass, &mut published, &state, &live, now).await;
        let is_alone = live.bundles.iter().all(|it| x509::certificates(&it.pem).len() == 1);
        if current && !is_alone && self.is_served_everywhere(&mut pass, authority).await {
            live = self.publish(&mut pass, |_| vec![authority.clone()]).await;
        }
        pass.reason = self.judge(&published, &live, now);
        pass
    }

    /// What each of the servers reads now; nothing where one cannot be read.
    async fn read_published(&self, pass: &mut Pass) -> Option<Vec<Published>> {
        let mut published = Vec::new();
        for service in &self.settings.services {
            match state::read(&self.secrets, &service.secret).await {
                Ok(secret) => published.push(Published::of(secret)),
                Err(error) => {
                    pass.failure.get_or_insert(error);
                    return None;
                }
            }
        }
        Some(published)
    }

    async fn publish(
        &mut self,
        pass: &mut Pass,
        wanted: impl Fn(Vec<CertificateDer<'static>>) -> Vec<CertificateDer<'static>>,
    ) -> Live {
        let published = self.publisher.publish(wanted).await;
        pass.failure = pass.failure.take().or(published.failure);
        pass.remark = published.contested;
        pass.wait = pass.wait.min(published.wait);
        published.live
    }

    /// Gives the servers the certificates that may be served by now.
    async fn hand_out(
        &mut self,
        pass: &mut Pass,
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
                pass.wait = pass.wait.min(wait);
                continue;
            }
            match state::write(&self.secrets, &service.secret, published.secret.take(), data.clone()).await {
                Ok(()) => {
                    let not_after = candidate.validity.not_after;
                    info!(secret = service.secret, %not_after, names = %candidate.names, "handed out a certificate");
                    published.serving = Some(candidate.clone());
                    gate.withdraw();
                    // To ask the endpoints.
                    pass.wait = pass.wait.min(ASK_AGAIN);
                }
                Err(error) => pass.failure = pass.failure.take().or(Some(error)),
            }
        }
    }

    /// Whether every ready endpoint of every service serves what this CA has signed.
    async fn is_served_everywhere(&self, pass: &mut Pass, authority: &CertificateDer<'static>) -> bool {
        for service in &self.settings.services {
            match endpoints::lagging(&self.client, &self.settings.namespace, service, authority).await {
                Ok(None) => {}
                Ok(Some(endpoint)) => {
                    pass.remark = Some(format!("CAs from before stay trusted, because of endpoint {endpoint}"));
                    pass.wait = pass.wait.min(ASK_AGAIN);
                    return false;
                }
                Err(error) => {
                    pass.failure.get_or_insert(error);
                    return false;
                }
            }
        }
        true
    }

    /// Why API servers cannot call the servers, if they cannot.
    fn judge(&self, published: &[Published], live: &Live, now: Timestamp) -> Option<String> {
        let configurations = &self.settings.configurations;
        let distrusting = published.iter().zip(&self.settings.services).find_map(|(it, service)| {
            live.distrusting(it.serving.as_ref()?, &service.names, now).map(|bundle| (bundle, service))
        });
        self.mismatch.set(distrusting.is_some().into());
        if live.bundles.is_empty() && !live.hidden {
            let names: Vec<_> = configurations.iter().map(ToString::to_string).collect();
            return Some(format!("there is no webhook in {}", names.join(", ")));
        }
        if let Some((it, service)) = distrusting {
            let (webhook, configuration) = (&it.webhook, &it.configuration);
            return Some(format!(
                "the caBundle of webhook {webhook} in {configuration} does not verify the certificate of {}",
                service.name
            ));
        }
        let missing = published.iter().position(|it| it.serving.is_none())?;
        let secret = &self.settings.services.get(missing)?.secret;
        Some(format!("Secret {secret} waits until all API servers have seen the caBundles"))
    }
}
