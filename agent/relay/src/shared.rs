//! What all connections share.

use std::sync::{Mutex, MutexGuard};

use jobset_program::lock;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::auth::authenticator::Authenticator;
use crate::hellos::Hellos;
use crate::hub::Hub;
use crate::metrics::Metrics;

pub(crate) struct Shared {
    hub: Mutex<Hub>,
    hellos: Mutex<Hellos>,
    pub(crate) authenticator: Authenticator,
    pub(crate) metrics: Metrics,
    /// The relay shuts down.
    pub(crate) stop: CancellationToken,
}

impl Shared {
    pub(crate) fn new(hub: Hub, authenticator: Authenticator, metrics: Metrics, stop: CancellationToken) -> Self {
        Self { hub: Mutex::new(hub), hellos: Mutex::default(), authenticator, metrics, stop }
    }

    /// Whether the Pod with this UID may say hello now.
    pub(crate) fn permits_hello(&self, pod_uid: &str) -> bool {
        lock(&self.hellos).permit(pod_uid, Instant::now())
    }

    /// The hub, for a moment: nobody waits while holding it.
    pub(crate) fn hub(&self) -> HubGuard<'_> {
        HubGuard { hub: lock(&self.hub), metrics: &self.metrics }
    }
}

/// The hub. The gauges follow it.
pub(crate) struct HubGuard<'a> {
    hub: MutexGuard<'a, Hub>,
    metrics: &'a Metrics,
}

impl std::ops::Deref for HubGuard<'_> {
    type Target = Hub;

    fn deref(&self) -> &Hub {
        &self.hub
    }
}

impl std::ops::DerefMut for HubGuard<'_> {
    fn deref_mut(&mut self) -> &mut Hub {
        &mut self.hub
    }
}

impl Drop for HubGuard<'_> {
    fn drop(&mut self) {
        let set = |gauge: &prometheus::IntGauge, number| gauge.set(i64::try_from(number).unwrap_or(i64::MAX));
        set(&self.metrics.agents, self.hub.agents());
        set(&self.metrics.controllers, self.hub.controllers());
    }
}
