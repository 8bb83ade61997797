//! The agent stream: agents report over it, and their annotations follow later.

use jobset_api::agent::RELAY_CONFIG_MAP;

use super::{Facts, Finding};
use crate::status::Epochs;

/// How long agents wait at least before they write their annotations.
const LEAST_SECONDS: i64 = 3;
/// Annotations that the agents of one group write in a second while they report over the stream.
const WRITES_PER_SECOND: i64 = 150;

/// How old the epochs of Pods may be, if the agents report over the stream.
pub(super) fn behind(epochs: Epochs, pods: i64) -> Option<String> {
    let seconds = LEAST_SECONDS + (pods / WRITES_PER_SECOND).max(1);
    epochs
        .by_stream
        .then(|| format!("agents report over the stream, and the epochs shown here are up to {seconds} s old"))
}

/// A remark: the agents cannot use the stream.
pub(super) fn unavailable(facts: &Facts) -> Vec<Finding> {
    if facts.relay_ca != Some(false) {
        return Vec::new();
    }
    let what = format!(
        "Its agents were injected with the agent stream and cannot use it: the namespace has no ConfigMap {RELAY_CONFIG_MAP}. \
         They report through the API server instead."
    );
    let advice = "The controller creates the ConfigMap if its feature gate AgentStream is on (value stream.enabled of the chart). \
                  If it is, see its logs: `kubectl logs -A -l app.kubernetes.io/name=jobset-controller`.";
    vec![Finding::new("StreamUnavailable", what, advice)]
}
