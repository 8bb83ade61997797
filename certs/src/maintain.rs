//! Keeps a usable certificate in service, for as long as the process runs.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use futures::stream::{SelectAll, StreamExt as _};
use futures::{Stream, stream::BoxStream};
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watch_object};
use kube::{Api, Client};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::backoff::IssueBackoff;
use crate::bundle::{self, Configuration};
use crate::in_service::{Candidate, InService, Live};
use crate::mounted::{self, Files};
use crate::secret::{SecretStore, Wanted};
use crate::{Error, Metrics, Names, Resolver};

/// First delay after a failure; it doubles up to [`Settings::interval`].
const FIRST_BACKOFF: Duration = Duration::from_millis(500);

/// What to maintain, and where.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the certificate comes from.
    pub source: Source,
    /// Names that API servers call the service by.
    pub names: Names,
    /// Webhook configurations whose caBundle is this service's. At least one must have a webhook before the service
    /// is ready.
    pub configurations: Vec<Configuration>,
    /// How often to look by the wall clock when no watch reports a change.
    pub interval: Duration,
    /// How long a new certificate waits, once the live configurations trust it, before it replaces a good one: API
    /// servers see a changed configuration with a delay of their own.
    pub settle: Duration,
    /// How long, for the same reason, the live configurations have to trust the certificate before the service is
    /// ready.
    pub propagation: Duration,
}

/// Where the certificate comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A Secret with a CA of this service's own, which all replicas share and fill. They also write the caBundles.
    Secret {
        /// Its namespace.
        namespace: String,
        /// Its name.
        name: String,
        /// What it shall hold.
        wanted: Wanted,
    },
    /// A directory with `tls.crt`, `tls.key` and perhaps `ca.crt`, in PEM, that others fill, as well as the caBundles.
    Directory(PathBuf),
}

/// Whether the service can be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// A certificate is in service, and every live caBundle trusts it.
    Ready,
    /// The same, but somebody should look at this before long.
    ReadyBut(String),
    /// Not yet, or no longer, for this reason.
    NotReady(String),
}

impl Readiness {
    /// The same with a remark.
    fn remarked(self, remark: Option<String>) -> Self {
        match (self, remark) {
            (Self::Ready, Some(remark)) => Self::ReadyBut(remark),
            (Self::ReadyBut(first), Some(remark)) => Self::ReadyBut(format!("{first}; {remark}")),
            (Self::NotReady(reason), Some(remark)) => Self::NotReady(format!("{reason}; {remark}")),
            (it, _) => it,
        }
    }
}

/// Keeps the caBundles up to date and the Secret filled, where they are this service's, supplies the resolver, says
/// when the service is ready, and measures all that. Never returns; drop the future to stop. A failure is logged, shown
/// in the readiness and tried again.
pub async fn maintain(
    client: Client,
    settings: Settings,
    resolver: Arc<Resolver>,
    readiness: watch::Sender<Readiness>,
    metrics: Metrics,
) -> Infallible {
    let mut changes = watch_configurations(&client, &settings.configurations);
    let origin = match &settings.source {
        Source::Secret { namespace, name, wanted } => {
            changes.push(signal(watch_object(Api::<Secret>::namespaced(client.clone(), namespace), name)));
            let store = SecretStore::new(client.clone(), namespace, name);
            let backoff = IssueBackoff::new(settings.settle, &wanted.lifetimes);
            Origin::Secret(Box::new(store), wanted.clone(), Box::new(backoff))
        }
        Source::Directory(path) => {
            let (sender, files) = watch::channel(mounted::read(path.clone()).await);
            changes.push(mounted::poll(path.clone(), sender).boxed());
            Origin::Directory(path.clone(), files)
        }
    };
    let in_service = InService::new(resolver, settings.names.clone(), settings.settle, settings.propagation);
    let mut maintainer = Maintainer { client, settings, origin, in_service, metrics };
    let backoff = ExponentialBuilder::new()
        .with_min_delay(FIRST_BACKOFF)
        .with_max_delay(maintainer.settings.interval)
        .without_max_times();
    let mut delays = backoff.build();
    loop {
        let now = Timestamp::now();
        let Pass { readiness: state, mut wait, failure } = maintainer.pass(now).await;
        if let Some(error) = failure {
            warn!(error, "cannot maintain the serving certificate, will try again");
            // Jitter, so that replicas which failed together do not try again together.
            let delay = delays.next().unwrap_or(maintainer.settings.interval);
            wait = wait.min(delay.mul_f64(0.5 + fastrand::f64()));
        } else {
            delays = backoff.build();
        }
        readiness.send_if_modified(|current| {
            let differs = *current != state;
            if differs {
                match &state {
                    Readiness::Ready => info!("ready"),
                    Readiness::ReadyBut(remark) => warn!(remark, "ready, but"),
                    Readiness::NotReady(reason) => warn!(reason, "not ready"),
                }
                *current = state;
            }
            differs
        });
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            Some(()) = changes.next() => debug!("what is watched has changed"),
        }
    }
}

struct Maintainer {
    client: Client,
    settings: Settings,
    origin: Origin,
    in_service: InService,
    metrics: Metrics,
}

/// Where the certificate comes from, opened.
enum Origin {
    Secret(Box<SecretStore>, Wanted, Box<IssueBackoff>),
    Directory(PathBuf, watch::Receiver<Files>),
}

/// What one look at everything came to.
struct Pass {
    readiness: Readiness,
    /// When to look again at the latest.
    wait: Duration,
    /// What could not be done.
    failure: Option<String>,
}

impl Maintainer {
    /// Looks at everything once and does what is due. What fails keeps nothing else from being done, nor what is seen
    /// from being judged.
    async fn pass(&mut self, now: Timestamp) -> Pass {
        let (candidate, live, due, remark, failure) = match &mut self.origin {
            Origin::Secret(store, wanted, backoff) => {
                let (kept, failure) = match store.ensure(wanted, &self.in_service.authorities(), backoff, now).await {
                    Ok(kept) => (Some(kept), None),
                    Err(error) => (None, Some(error)),
                };
                let due = kept.as_ref().map_or(Timestamp::MAX, |it| it.until);
                let candidate = kept.map(|it| Candidate { authorities: it.authorities(), serving: it.serving });
                if let Some(candidate) = &candidate {
                    self.in_service.begin(candidate);
                }
                // Where the Secret cannot be had, those of the certificate in service.
                let authorities =
                    candidate.as_ref().map_or_else(|| self.in_service.authorities(), |it| it.authorities.clone());
                let overlap = wanted.overlap;
                let merge = |live: &[u8]| bundle::merge(live, &authorities, now, overlap);
                let (live, unpublished) = look(&self.client, &self.settings.configurations, merge).await;
                (candidate, live, due, None, failure.or(unpublished))
            }
            Origin::Directory(path, files) => {
                let judged = mounted::judge(&files.borrow(), &self.settings.names, now);
                let (live, failure) = look(&self.client, &self.settings.configurations, |_| None).await;
                match judged {
                    Ok(serving) => {
                        let due = serving.validity.not_after;
                        (Some(Candidate { serving, authorities: Vec::new() }), live, due, None, failure)
                    }
                    Err(flaw) => {
                        let remark = format!("the certificate in {} cannot be used: {flaw}", path.display());
                        (None, live, Timestamp::MAX, Some(remark), failure)
                    }
                }
            }
        };
        let wait = if let Some(candidate) = &candidate {
            self.in_service.offer(candidate, &live, now)
        } else {
            self.in_service.withdraw();
            Duration::MAX
        };
        let (readiness, change) = self.in_service.readiness(&live, &self.settings.configurations, now);
        self.metrics.set(self.in_service.vitals(&live, now));
        let failure = failure.map(|error| chain(&error));
        let due = due.duration_since(now).unsigned_abs();
        Pass {
            readiness: readiness.remarked(remark).remarked(failure.clone()),
            wait: wait.min(change).min(due).min(self.settings.interval),
            failure,
        }
    }
}

/// The caBundles as they are after merging, and the first failure: one that cannot be written must not keep the others
/// from being written.
async fn look(
    client: &Client,
    configurations: &[Configuration],
    merge: impl Fn(&[u8]) -> Option<Vec<u8>>,
) -> (Live, Option<Error>) {
    let (mut live, mut first) = (Live { complete: true, ..Live::default() }, None);
    for configuration in configurations {
        let (found, failure) = bundle::publish(client, configuration, &merge).await;
        live.bundles.extend(found);
        if let Some(Error::ReadConfiguration { .. }) = failure {
            live.complete = false;
            live.hidden |= !failure.as_ref().is_some_and(Error::is_missing_configuration);
        }
        first = first.or(failure);
    }
    (live, first)
}

/// Emits whenever one of the configurations may have changed.
fn watch_configurations(client: &Client, configurations: &[Configuration]) -> SelectAll<BoxStream<'static, ()>> {
    let mut changes = SelectAll::new();
    for configuration in configurations {
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
