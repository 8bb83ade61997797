//! Where the relays are.

use std::collections::BTreeSet;

use futures::StreamExt as _;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher::{Config, Event, watcher};
use kube::runtime::{WatchStreamExt as _, reflector};
use kube::{Api, Client};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::args::StreamArgs;
use crate::shell::feed::watch_backoff;
use crate::shell::retry_log::RetryLog;

/// Label of an EndpointSlice that names its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";
/// Name of the relays' port for controllers.
const PORT: &str = "controller";
/// The watch, for the log.
const WHAT: &str = "EndpointSlices";

#[derive(Clone, Debug)]
pub(super) enum Relays {
    At(BTreeSet<String>),
    /// The ready endpoints of this Service.
    Behind {
        service: String,
        namespace: String,
    },
}

impl Relays {
    pub(super) fn of(args: &StreamArgs, namespace: &str) -> Self {
        if args.relay_address.is_empty() {
            Self::Behind { service: args.relay_service.clone(), namespace: namespace.to_owned() }
        } else {
            Self::At(args.relay_address.iter().cloned().collect())
        }
    }

    /// The addresses, until `stop`.
    pub(super) fn follow(&self, client: Client, stop: &CancellationToken) -> watch::Receiver<BTreeSet<String>> {
        match self {
            Self::At(addresses) => watch::channel(addresses.clone()).1,
            Self::Behind { service, namespace } => {
                let (sender, receiver) = watch::channel(BTreeSet::new());
                let config = Config::default().labels(&format!("{SERVICE_NAME}={service}"));
                let watched = watch(Api::namespaced(client, namespace), config, sender);
                tokio::spawn(stop.clone().run_until_cancelled_owned(watched));
                receiver
            }
        }
    }
}

async fn watch(api: Api<EndpointSlice>, config: Config, addresses: watch::Sender<BTreeSet<String>>) {
    let (slices, writer) = reflector::store();
    let mut events = watcher(api, config).backoff(watch_backoff()).reflect(writer).boxed();
    let mut retry_log = RetryLog::default();
    while let Some(event) = events.next().await {
        retry_log.watched(WHAT, &event);
        // What is known stays until the listing is complete.
        if matches!(event, Ok(Event::Apply(_) | Event::Delete(_) | Event::InitDone)) {
            let now = slices.state().iter().flat_map(|slice| ready(slice)).collect();
            addresses.send_if_modified(|present| std::mem::replace(present, now) != *present);
        }
    }
}

fn ready(slice: &EndpointSlice) -> BTreeSet<String> {
    let named = slice.ports.iter().flatten().find(|port| port.name.as_deref() == Some(PORT));
    let Some(port) = named.and_then(|port| port.port) else { return BTreeSet::new() };
    let is_ready = |conditions: &k8s_openapi::api::discovery::v1::EndpointConditions| conditions.ready != Some(false);
    let endpoints =
        slice.endpoints.iter().flatten().filter(|endpoint| endpoint.conditions.as_ref().is_none_or(is_ready));
    let address = |address: &String| {
        if address.contains(':') { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
    };
    // All addresses of an endpoint lead to the same Pod.
    endpoints.filter_map(|endpoint| endpoint.addresses.first()).map(address).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::ready(json!({"addresses": ["10.0.0.1"], "conditions": {"ready": true}}), &["10.0.0.1:9444"])]
    #[case::unknown_is_ready(json!({"addresses": ["10.0.0.1"]}), &["10.0.0.1:9444"])]
    #[case::not_ready(json!({"addresses": ["10.0.0.1"], "conditions": {"ready": false}}), &[])]
    #[case::one_of_several(json!({"addresses": ["10.0.0.1", "10.0.0.2"]}), &["10.0.0.1:9444"])]
    #[case::ipv6(json!({"addresses": ["fd00::1"]}), &["[fd00::1]:9444"])]
    fn endpoint_has_an_address_while_it_is_ready(#[case] endpoint: Value, #[case] expected: &[&str]) {
        let slice = json!({"metadata": {"name": "a"}, "addressType": "IPv4", "endpoints": [endpoint],
            "ports": [{"name": "agents", "port": 9443}, {"name": "controller", "port": 9444}]});
        let slice = serde_json::from_value(slice).unwrap();
        assert_eq!(ready(&slice), expected.iter().map(|it| (*it).to_owned()).collect());
    }
}
