//! Keeps a connection to each relay.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use backon::{BackoffBuilder as _, ExponentialBuilder};
use jobset_engine::RelayId;
use jobset_stream::tls::Identity;
use rustls_pki_types::ServerName;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::info;

use super::connection::{ConnectionError, Heard, Peer};
use crate::shell::retry_log::RetryLog;

/// First wait before another connection. Waits double, each has jitter.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// Longest wait without its jitter, which at most doubles it.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

pub(super) struct Dialer {
    identity: watch::Receiver<Arc<Identity>>,
    server: ServerName<'static>,
    events: mpsc::Sender<Heard>,
    connections: Arc<AtomicU64>,
}

impl Dialer {
    pub(super) fn new(
        identity: watch::Receiver<Arc<Identity>>,
        server: ServerName<'static>,
        events: mpsc::Sender<Heard>,
    ) -> Self {
        Self { identity, server, events, connections: Arc::default() }
    }

    /// Connects to these addresses, whichever they are at present. Connections to others end.
    pub(super) async fn run(self, mut addresses: watch::Receiver<BTreeSet<String>>) {
        let mut tasks: HashMap<String, DropGuard> = HashMap::new();
        loop {
            let present = addresses.borrow_and_update().clone();
            tasks.retain(|address, _| present.contains(address));
            for address in present {
                tasks.entry(address).or_insert_with_key(|address| {
                    let stop = CancellationToken::new();
                    tokio::spawn(self.keep(address.clone(), stop.clone()));
                    stop.drop_guard()
                });
            }
            if addresses.changed().await.is_err() {
                // The addresses do not change any more.
                std::future::pending::<()>().await;
            }
        }
    }

    /// Keeps a connection to one address until it is told to stop.
    fn keep(&self, address: String, stop: CancellationToken) -> impl Future<Output = ()> + use<> {
        let peer = Peer { address, server: self.server.clone(), identity: self.identity.clone() };
        let (events, connections) = (self.events.clone(), Arc::clone(&self.connections));
        async move {
            let (mut retry_log, mut waits) = (RetryLog::default(), waits());
            let what = format!("connections to relay {}", peer.address);
            while !stop.is_cancelled() {
                let relay: RelayId = connections.fetch_add(1, Ordering::Relaxed);
                let mut was_connected = false;
                let connected = || {
                    was_connected = true;
                    retry_log.succeeded(&what);
                };
                let served = peer.serve(relay, &events, connected, &stop).await;
                if was_connected {
                    waits = self::waits();
                }
                match served {
                    Err(error @ (ConnectionError::Closed(_) | ConnectionError::AuthoritiesReplaced(_))) => {
                        info!("{error}");
                    }
                    Err(error) => retry_log.failed(&what, &error),
                    Ok(()) => {}
                }
                stop.run_until_cancelled(tokio::time::sleep(waits.next().unwrap_or(LONGEST_WAIT))).await;
            }
        }
    }
}

fn waits() -> impl Iterator<Item = Duration> {
    ExponentialBuilder::new()
        .with_min_delay(FIRST_WAIT)
        .with_max_delay(LONGEST_WAIT)
        .with_jitter()
        .without_max_times()
        .build()
}
