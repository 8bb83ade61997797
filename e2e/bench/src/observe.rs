//! What the benchmarks observe: watches that go on after errors, and waits that say what they wait for.

use std::fmt::{Debug, Display};
use std::pin::pin;
use std::time::Duration;

use anyhow::{Context, Result};
use futures::StreamExt as _;
use jobset_harness::progress::progress;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::time::{Instant, interval_at, timeout};
use tokio_util::task::AbortOnDropHandle;

/// How often a wait prints the state.
const PERIOD: Duration = Duration::from_secs(5);

/// Watches objects until the handle is dropped. After an error all of them are listed again.
pub(crate) fn follow<K>(
    api: Api<K>,
    config: watcher::Config,
    mut note: impl FnMut(Event<K>) + Send + 'static,
) -> AbortOnDropHandle<()>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    AbortOnDropHandle::new(tokio::spawn(async move {
        let mut events = pin!(watcher(api, config).default_backoff());
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => note(event),
                Err(error) => tracing::warn!(%error, "a watch of the benchmark broke"),
            }
        }
    }))
}

/// Waits until `result` gives a value for the state, and prints the state now and then. At the limit the error has
/// `what` and the state.
pub(crate) async fn reached<S: Display, R>(
    state: &watch::Sender<S>,
    limit: Duration,
    what: &str,
    result: impl Fn(&S) -> Option<R>,
) -> Result<R> {
    let mut changes = state.subscribe();
    let mut period = interval_at(Instant::now() + PERIOD, PERIOD);
    let reached = async {
        loop {
            let result = result(&changes.borrow_and_update());
            if let Some(result) = result {
                return result;
            }
            tokio::select! {
                // The sender outlives this wait.
                _ = changes.changed() => {}
                _ = period.tick() => progress(&state.borrow().to_string()),
            }
        }
    };
    let waited = timeout(limit, reached).await;
    waited.ok().with_context(|| format!("{what} within {:.0} s: {}", limit.as_secs_f64(), &*state.borrow()))
}
