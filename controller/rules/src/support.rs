//! Sets the condition InPlaceUnsupported if the cluster cannot restart Pods in place. Without the condition, Pods would
//! silently wait, or restart one by one.

use jobset_api::in_place::NEEDS;
use jobset_api::restart_rules::is_agent_sidecar;
use jobset_api::{ReplicatedJob, conditions, event};
use jobset_store::JobView;

use crate::reconciliation::Reconciliation;

pub(super) fn set_condition(reconciliation: &mut Reconciliation<'_>) {
    let Some(what) = missing(reconciliation) else {
        let message = "the API server and the nodes of the Pods can restart them in place";
        reconciliation.clear_condition(conditions::IN_PLACE_UNSUPPORTED, "Supported", message);
        return;
    };
    let message = format!("{what}; {NEEDS}");
    if reconciliation.set_condition(conditions::IN_PLACE_UNSUPPORTED, event::IN_PLACE_UNSUPPORTED, &message) {
        reconciliation.warn(event::IN_PLACE_UNSUPPORTED, message);
    }
}

fn missing(reconciliation: &Reconciliation<'_>) -> Option<String> {
    // A supervisor restarts its worker within its container, whatever the kubelet can.
    let groups = reconciliation.groups();
    let have_sidecars: Vec<bool> = groups.iter().map(has_sidecar).collect();
    if !have_sidecars.contains(&true) {
        return None;
    }
    let mut jobs = reconciliation.current.iter();
    let dropped = jobs.find(|current| !current.job.restarts_in_place && have_sidecars[current.group]);
    if let Some(current) = dropped {
        return Some(format!("the API server dropped the restart rules of Job {}", current.name));
    }
    if reconciliation.observed.cluster.nodes.all_outdated() {
        return Some("no node can restart Pods in place".to_owned());
    }
    let has_sidecar = |job: &JobView| reconciliation.group_of(job).is_some_and(|group| have_sidecars[group]);
    let node = reconciliation.observed.outdated_node(has_sidecar)?;
    Some(format!("node {node} cannot restart Pods in place"))
}

fn has_sidecar(group: &ReplicatedJob) -> bool {
    let pod = group.template.spec.template.spec.as_ref();
    pod.is_some_and(|pod| pod.init_containers.iter().flatten().any(is_agent_sidecar))
}
