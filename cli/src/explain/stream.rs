//! The agent stream: agents report over it, and their annotations follow later.

use jobset_api::agent::RELAY_CONFIG_MAP;

use super::{Facts, Finding};
use crate::status::Epochs;

/// How old the epochs of Pods may be, if their template has the stream. Whether a relay serves them is known in its log alone.
pub(super) fn behind(epochs: Epochs) -> Option<String> {
    let seconds = epochs.lag?.as_secs();
    Some(format!(
        "agents report over the stream if a relay serves them: the epochs shown here may be {seconds} s old, and older while \
         restarts follow each other"
    ))
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
