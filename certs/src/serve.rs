//! Keeps a usable certificate in service, for as long as a server runs: one that [`crate::issuer`] hands out in a Secret, or
//! one that others mount as a directory.

use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::SelectAll;
use jiff::Timestamp;
use kube::Client;
use rustls_pki_types::CertificateDer;
use tokio::sync::watch;
use tracing::info;

use crate::bundle::{self, Configuration, LiveBundle};
use crate::handover::{self, InService, Live};
use crate::material::Serving;
use crate::metrics::Metrics;
use crate::source;
use crate::watches::{self, Rounds};
use crate::{Error, Names, Readiness, Resolver};

/// Where the certificate comes from.
#[derive(Clone, Debug)]
pub enum Source {
    /// A Secret. Who fills it sees to it that API servers trust the certificate before.
    Secret { namespace: String, name: String },
    /// A directory with `tls.crt`, `tls.key` and perhaps `ca.crt`, in PEM, that others fill, as well as the caBundles.
    Directory {
        path: PathBuf,
        /// Webhook configurations whose caBundles have to verify the certificate.
        configurations: Vec<Configuration>,
        /// How long API servers get to see a changed caBundle.
        settle: Duration,
    },
}

/// Supplies the resolver with certificates of these names, says when API servers can call the server, and measures that.
/// Looks at least every `interval`. Never returns; drop the future to stop.
pub async fn serve(
    client: Client,
    source: Source,
    names: Names,
    interval: Duration,
    resolver: Arc<Resolver>,
    readiness: watch::Sender<Readiness>,
    metrics: Metrics,
) -> Infallible {
    let mut changes = SelectAll::new();
    let (files, origin, configurations, settle) = match source {
        Source::Secret { namespace, name } => {
            let (sender, files) = watch::channel(Err("it has not been read yet".to_owned()));
            changes.push(source::watch(client.clone(), &namespace, name.clone(), sender).boxed());
            (files, format!("Secret {namespace}/{name}"), Vec::new(), Duration::ZERO)
        }
        Source::Directory { path, configurations, settle } => {
            let (sender, files) = watch::channel(source::read(path.clone()).await);
            changes = watches::configurations(&client, &configurations);
            changes.push(source::poll(path.clone(), sender).boxed());
            (files, path.display().to_string(), configurations, settle)
        }
    };
    let mut rounds = Rounds::new(interval);
    let mut server = Server {
        resolver,
        names,
        settle,
        configurations,
        waiting: None,
        current: None,
        reloads: 0,
        was_trusted: false,
        metrics,
    };
    loop {
        let now = Timestamp::now();
        let found = source::judge(&files.borrow().clone(), &server.names, now);
        let flaw = found.as_ref().err().map(|flaw| format!("the certificate in {origin} cannot be used: {flaw}"));
        let (live, failure) = server.look(&client).await;
        let wait = server.offer(found.ok(), live.as_ref(), now);
        let reason = server.reason(live.as_ref(), now);
        let state = Readiness::of(reason, flaw.into_iter().chain(failure.as_ref().map(watches::chain)));
        let wait = rounds.after(&readiness, state, wait, failure.as_ref());
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            Some(()) = changes.next() => {}
        }
    }
}

struct Server {
    resolver: Arc<Resolver>,
    names: Names,
    /// How long API servers get to see a changed caBundle.
    settle: Duration,
    /// Empty where somebody else sees to it that API servers trust the certificate.
    configurations: Vec<Configuration>,
    /// The certificate that waits, and since when all live bundles have been seen to trust it.
    waiting: Option<(CertificateDer<'static>, Timestamp)>,
    current: Option<Serving>,
    /// How often another certificate took the place of the one in service.
    reloads: u64,
    /// Whether all caBundles verified the certificate when they could last be read.
    was_trusted: bool,
    metrics: Metrics,
}

impl Server {
    /// The caBundles, where they are looked at, and the first that could not be read.
    async fn look(&self, client: &Client) -> (Option<Live>, Option<Error>) {
        let (mut live, mut failure) = (Live::default(), None);
        for configuration in &self.configurations {
            match bundle::read(client, configuration).await {
                Ok(found) => live.bundles.extend(found.bundles),
                Err(error) => {
                    live.lacks(&error);
                    failure.get_or_insert(error);
                }
            }
        }
        ((!self.configurations.is_empty()).then_some(live), failure)
    }

    /// Puts the certificate into service when it is time. Returns when to look again.
    fn offer(&mut self, found: Option<Serving>, live: Option<&Live>, now: Timestamp) -> Duration {
        let waiting = self.waiting.take();
        let Some(found) = found else { return Duration::MAX };
        let expires = found.validity.not_after.duration_since(now).unsigned_abs();
        let current = self.current.as_ref();
        if current.is_some_and(|it| it.certificate() == found.certificate()) {
            return expires;
        }
        // Where there is none yet, there is nothing to lose.
        if let (Some(live), Some(_), Some(certificate)) = (live, current, found.certificate()) {
            let before = waiting.filter(|(it, _)| it == certificate).map(|(_, since)| since);
            let since = handover::since(before, Some(live.trusts(&found, &self.names, now)), now);
            let wait = InService::of(current, &found, live, &self.names, now).wait(since, self.settle, now);
            if !wait.is_zero() {
                self.waiting = since.map(|since| (certificate.clone(), since));
                return wait;
            }
        }
        self.resolver.serve(Arc::clone(&found.certified));
        self.reloads += u64::from(current.is_some());
        info!(not_after = %found.validity.not_after, names = %found.names, "put a certificate into service");
        self.current = Some(found);
        expires
    }

    /// Why API servers cannot call the server, if they cannot. What could not be read says nothing: a server that could be
    /// called before goes on, and else it waits.
    fn reason(&mut self, live: Option<&Live>, now: Timestamp) -> Option<String> {
        let distrusting =
            live.zip(self.current.as_ref()).and_then(|(it, current)| it.distrusting(current, &self.names, now));
        let mismatch = live.and_then(|it| (distrusting.is_some() || !it.incomplete).then_some(distrusting.is_some()));
        self.metrics.set(self.current.as_ref().map(|it| it.validity), self.reloads, mismatch);
        let Some(current) = &self.current else { return Some("no certificate is in service".to_owned()) };
        let not_after = current.validity.not_after;
        if now > not_after {
            return Some(format!("the certificate in service expired at {not_after}"));
        }
        let live = live?;
        let was_trusted = std::mem::replace(&mut self.was_trusted, false);
        let unread = || (live.incomplete && !was_trusted).then(|| "not all configurations can be read".to_owned());
        let reason = live.without_webhooks(&self.configurations).or_else(|| distrusting.map(LiveBundle::distrust));
        let reason = reason.or_else(unread);
        self.was_trusted = reason.is_none();
        reason
    }
}
