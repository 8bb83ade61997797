//! Keeps the CA of the relays in the namespaces of JobSets whose Pods mount it.
//!
//! The ConfigMap is read by its name. The controller may neither list nor watch ConfigMaps, and deletes none.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt as _, stream};
use jobset_api::agent::{RELAY_CA, RELAY_CONFIG_MAP};
use jobset_stream::tls::Identity;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::{Api, Client};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::shell::retry_log::RetryLog;

/// Time after which a ConfigMap is read again.
const PERIOD: Duration = Duration::from_mins(10);
/// First and longest wait after a request that failed.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_mins(1);
const AT_ONCE: usize = 4;
/// The requests, for the log.
const WHAT: &str = "writes of the ConfigMap jobset-relay-ca";

/// Keeps the ConfigMaps.
pub(super) struct Keeper {
    client: Client,
    identity: watch::Receiver<Arc<Identity>>,
    /// When the ConfigMap of each namespace is looked at next, and how often that has failed.
    due: HashMap<String, (Instant, u32)>,
    retry_log: RetryLog,
}

impl Keeper {
    pub(super) fn new(client: Client, identity: watch::Receiver<Arc<Identity>>) -> Self {
        Self { client, identity, due: HashMap::new(), retry_log: RetryLog::default() }
    }

    /// Keeps the CA in these namespaces, whichever they are at present.
    pub(super) async fn run(mut self, mut namespaces: watch::Receiver<BTreeSet<String>>) {
        loop {
            let present = namespaces.borrow_and_update().clone();
            self.write_due(&present).await;
            let next = self.due.values().map(|(due, _)| *due).min().unwrap_or_else(|| Instant::now() + PERIOD);
            tokio::select! {
                changed = namespaces.changed() => if changed.is_err() { return },
                Ok(()) = self.identity.changed() => self.due.clear(),
                () = tokio::time::sleep_until(next) => {}
            }
        }
    }

    async fn write_due(&mut self, namespaces: &BTreeSet<String>) {
        let now = Instant::now();
        self.due.retain(|namespace, _| namespaces.contains(namespace));
        let is_due = |namespace: &&String| self.due.get(*namespace).is_none_or(|(due, _)| *due <= now);
        let due: Vec<String> = namespaces.iter().filter(is_due).cloned().collect();
        let authorities = String::from_utf8_lossy(&self.identity.borrow_and_update().authorities_pem).into_owned();
        let (client, authorities) = (self.client.clone(), &authorities);
        let mut written = stream::iter(due.into_iter().map(|namespace| {
            let api = Api::namespaced(client.clone(), &namespace);
            async move { (namespace, write(&api, authorities).await) }
        }))
        .buffer_unordered(AT_ONCE);
        while let Some((namespace, answer)) = written.next().await {
            let entry = self.due.entry(namespace).or_insert((now, 0));
            match answer {
                Ok(()) => {
                    self.retry_log.succeeded(WHAT);
                    *entry = (Instant::now() + PERIOD, 0);
                }
                Err(error) => {
                    self.retry_log.failed(WHAT, &error);
                    let wait = FIRST_WAIT.saturating_mul(1 << entry.1.min(16)).min(LONGEST_WAIT);
                    *entry = (Instant::now() + wait.mul_f64(0.5 + fastrand::f64() / 2.0), entry.1.saturating_add(1));
                }
            }
        }
    }
}

/// Creates the ConfigMap, or corrects it.
async fn write(api: &Api<ConfigMap>, authorities: &str) -> kube::Result<()> {
    let data = BTreeMap::from([(RELAY_CA.to_owned(), authorities.to_owned())]);
    let Some(mut stored) = api.get_opt(RELAY_CONFIG_MAP).await? else {
        let mut created = ConfigMap { data: Some(data), ..ConfigMap::default() };
        created.metadata.name = Some(RELAY_CONFIG_MAP.to_owned());
        return api.create(&PostParams::default(), &created).await.map(|_| ());
    };
    if stored.data.as_ref() == Some(&data) {
        return Ok(());
    }
    stored.data = Some(data);
    // With the resourceVersion that was read.
    api.replace(RELAY_CONFIG_MAP, &PostParams::default(), &stored).await.map(|_| ())
}
