//! What both loops of this crate have in common: watches that only wake them, and how often they look.

use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};
use futures::Stream;
use futures::stream::{BoxStream, SelectAll, StreamExt as _};
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, watch_object};
use kube::{Api, Client};
use tokio::sync::watch;
use tracing::{debug, info, warn};

use crate::Readiness;
use crate::bundle::Configuration;

/// First delay after a failure; it doubles up to the interval.
const FIRST_BACKOFF: Duration = Duration::from_millis(500);

/// Emits whenever one of the configurations may have changed.
pub(crate) fn configurations(client: &Client, configurations: &[Configuration]) -> SelectAll<BoxStream<'static, ()>> {
    let watched = |it: &Configuration| signal(watch_object(it.api(client.clone()), it.name()));
    configurations.iter().map(watched).collect()
}

/// Emits whenever the Secret may have changed.
pub(crate) fn secret(client: &Client, namespace: &str, name: &str) -> BoxStream<'static, ()> {
    signal(watch_object(Api::<Secret>::namespaced(client.clone(), namespace), name))
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

/// How often to look, and what to tell about it.
pub(crate) struct Rounds {
    interval: Duration,
    builder: ExponentialBuilder,
    delays: ExponentialBackoff,
}

impl Rounds {
    /// A look at least every `interval`.
    pub(crate) fn new(interval: Duration) -> Self {
        let builder =
            ExponentialBuilder::new().with_min_delay(FIRST_BACKOFF).with_max_delay(interval).without_max_times();
        Self { interval, builder, delays: builder.build() }
    }

    /// Logs a failure, tells the readiness where it differs, and returns how long to wait: at most `wait`, and less after a
    /// failure.
    pub(crate) fn after(
        &mut self,
        readiness: &watch::Sender<Readiness>,
        state: Readiness,
        wait: Duration,
        failure: Option<&crate::Error>,
    ) -> Duration {
        let mut wait = wait.min(self.interval);
        if let Some(error) = failure {
            warn!(error = chain(error), "cannot maintain the certificates, will try again");
            // Jitter, so that programs which failed together do not try again together.
            let delay = self.delays.next().unwrap_or(self.interval);
            wait = wait.min(delay.mul_f64(0.5 + fastrand::f64()));
        } else {
            self.delays = self.builder.build();
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
        wait
    }
}

/// An error with its causes, in one line.
pub(crate) fn chain(error: &impl std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
