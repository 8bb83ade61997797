//! Keeps a usable certificate in service, for as long as the process runs.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{SelectAll, StreamExt as _};
use futures::{Stream, stream::BoxStream};
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watch_object};
use kube::{Api, Client};
use rustls_pki_types::CertificateDer;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::bundle::{self, Configuration, LiveBundle};
use crate::material::Serving;
use crate::secret::{Kept, SecretStore, Wanted};
use crate::{Error, Resolver};

/// First delay after a failure; it doubles up to [`Settings::interval`].
const FIRST_BACKOFF: Duration = Duration::from_millis(500);

/// What to maintain, and where.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub secret: String,
    /// What the Secret shall hold.
    pub wanted: Wanted,
    /// Webhook configurations whose caBundle is this service's. At least one must have a webhook before the service
    /// is ready.
    pub configurations: Vec<Configuration>,
    /// How often to look by the wall clock when no watch reports a change.
    pub interval: Duration,
    /// How long a new certificate waits, once the live configurations trust it, before it replaces a good one: API
    /// servers see a changed configuration with a delay of their own.
    pub settle: Duration,
}

/// Whether the service can be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// A certificate is in service, and every live caBundle trusts it.
    Ready,
    /// Not yet, or no longer, for this reason.
    NotReady(String),
}

/// Keeps the Secret filled, the caBundles up to date and the resolver supplied, and says when the service is ready.
/// Never returns; drop the future to stop. A failure is logged, shown in the readiness and tried again.
pub async fn maintain(
    client: Client,
    settings: Settings,
    resolver: Arc<Resolver>,
    readiness: watch::Sender<Readiness>,
) -> Infallible {
    let mut changes = watch_changes(&client, &settings);
    let mut maintainer = Maintainer {
        store: SecretStore::new(client.clone(), &settings.namespace, &settings.secret),
        client,
        resolver,
        in_service: None,
        trusted: None,
        settings,
    };
    let mut backoff = FIRST_BACKOFF;
    loop {
        let (state, wait) = match maintainer.pass(Timestamp::now()).await {
            Ok((state, wait)) => {
                backoff = FIRST_BACKOFF;
                (state, wait)
            }
            Err(error) => {
                let cause = chain(&error);
                warn!(error = %cause, "cannot maintain the serving certificate, will try again");
                // Jitter, so that replicas which failed together do not try again together.
                let wait = backoff.mul_f64(0.5 + fastrand::f64());
                backoff = (backoff * 2).min(maintainer.settings.interval);
                // A read that failed says nothing about the bundles. While the service was ready, it stays so.
                let ready = maintainer.in_service.is_some() && *readiness.borrow() == Readiness::Ready;
                (if ready { Readiness::Ready } else { Readiness::NotReady(cause) }, wait)
            }
        };
        readiness.send_if_modified(|current| {
            let differs = *current != state;
            if differs {
                info!(readiness = ?state, "readiness changed");
                *current = state;
            }
            differs
        });
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            Some(()) = changes.next() => debug!("a watched object changed"),
        }
    }
}

struct Maintainer {
    client: Client,
    settings: Settings,
    store: SecretStore,
    resolver: Arc<Resolver>,
    in_service: Option<InService>,
    /// The certificate that waits to be put into service, and since when all live bundles have been seen to trust it.
    trusted: Option<(CertificateDer<'static>, Instant)>,
}

struct InService {
    serving: Serving,
    /// CAs that were stored with it.
    authorities: Vec<CertificateDer<'static>>,
}

impl Maintainer {
    /// Looks at everything once and does what is due. Returns when to look again at the latest.
    async fn pass(&mut self, now: Timestamp) -> Result<(Readiness, Duration), Error> {
        let known = self.in_service.as_ref().map(|it| it.authorities.clone()).unwrap_or_default();
        let kept = self.store.ensure(&self.settings.wanted, &known, now).await?;
        if self.in_service.is_none() {
            self.serve(&kept);
        }
        let overlap = self.settings.wanted.overlap;
        let merge = |live: &[u8]| bundle::merge(live, &kept.authority, &kept.predecessors, now, overlap);
        let mut live = Vec::new();
        let mut failure = None;
        for configuration in &self.settings.configurations {
            // One that cannot be written must not keep the others from being written.
            match bundle::publish(&self.client, configuration, merge).await {
                Ok(bundles) => live.extend(bundles),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        if let Some(error) = failure {
            return Err(error);
        }
        let wait = self.replace(&kept, &live, now);
        let due = kept.until.duration_since(now).unsigned_abs();
        Ok((self.readiness(&live, now), wait.min(due).min(self.settings.interval)))
    }

    /// Replaces the certificate in service by that of the Secret when it is time. Returns when it will be.
    fn replace(&mut self, kept: &Kept, live: &[LiveBundle], now: Timestamp) -> Duration {
        let Some(in_service) = &self.in_service else { return Duration::ZERO };
        if in_service.serving.certificate() == kept.serving.certificate() {
            return Duration::MAX;
        }
        let names = &self.settings.wanted.names;
        let is_trusted = |serving: &Serving| live.iter().all(|bundle| bundle.trusts(serving, names, now));
        let candidate = kept.serving.certificate().filter(|_| is_trusted(&kept.serving)).cloned();
        if self.trusted.as_ref().map(|(certificate, _)| certificate) != candidate.as_ref() {
            self.trusted = candidate.map(|certificate| (certificate, Instant::now()));
        }
        let Some((_, since)) = &self.trusted else { return Duration::MAX };
        // One that is not trusted itself is replaced at once: there is nothing to lose.
        let settle = if is_trusted(&in_service.serving) { self.settings.settle } else { Duration::ZERO };
        let wait = settle.saturating_sub(since.elapsed());
        if wait.is_zero() {
            self.serve(kept);
            return Duration::MAX;
        }
        wait
    }

    fn serve(&mut self, kept: &Kept) {
        let serving = kept.serving.clone();
        self.resolver.serve(Arc::clone(&serving.certified));
        self.trusted = None;
        info!(not_after = %serving.validity.not_after, names = %serving.names, "put a certificate into service");
        self.in_service = Some(InService { serving, authorities: kept.authorities() });
    }

    fn readiness(&self, live: &[LiveBundle], now: Timestamp) -> Readiness {
        let Some(in_service) = &self.in_service else {
            return Readiness::NotReady("no certificate is in service".to_owned());
        };
        if live.is_empty() {
            let configurations: Vec<_> = self.settings.configurations.iter().map(ToString::to_string).collect();
            return Readiness::NotReady(format!("there is no webhook in {}", configurations.join(", ")));
        }
        let distrusts = |it: &&LiveBundle| !it.trusts(&in_service.serving, &self.settings.wanted.names, now);
        live.iter().find(distrusts).map_or(Readiness::Ready, |it| {
            Readiness::NotReady(format!(
                "the caBundle of webhook {} in {} does not verify the serving certificate",
                it.webhook, it.configuration
            ))
        })
    }
}

/// Emits whenever the Secret or one of the configurations may have changed.
fn watch_changes(client: &Client, settings: &Settings) -> SelectAll<BoxStream<'static, ()>> {
    let mut changes = SelectAll::new();
    let secrets: Api<Secret> = Api::namespaced(client.clone(), &settings.namespace);
    changes.push(signal(watch_object(secrets, &settings.secret)));
    for configuration in &settings.configurations {
        changes.push(match configuration {
            Configuration::Validating(name) => {
                signal(watch_object(Api::<ValidatingWebhookConfiguration>::all(client.clone()), name))
            }
            Configuration::Mutating(name) => {
                signal(watch_object(Api::<MutatingWebhookConfiguration>::all(client.clone()), name))
            }
        });
    }
    changes
}

fn signal<T: Send + 'static>(
    objects: impl Stream<Item = watcher::Result<T>> + Send + 'static,
) -> BoxStream<'static, ()> {
    objects
        .default_backoff()
        .filter_map(async |event| {
            // The interval makes up for what a watch misses.
            event.map_err(|error| debug!(error = %chain(&error), "a watch failed, will try again")).ok().map(drop)
        })
        .boxed()
}

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
