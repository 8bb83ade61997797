//! Names clusters that cannot restart Pods in place: without that, Pods would silently wait, or restart one by one.

use jobset_api::conditions;
use jobset_api::in_place::NEEDS;
use jobset_api::restart_rules::is_agent_sidecar;

use super::pass::Pass;

pub(super) fn name_what_cannot_restart_in_place(pass: &mut Pass<'_>) {
    if !pass.in_place() {
        return;
    }
    let Some(what) = missing(pass) else {
        let message = "the API server and the nodes of the Pods can restart them in place";
        pass.clear_condition(conditions::IN_PLACE_UNSUPPORTED, "Supported", message);
        return;
    };
    let message = format!("{what}; {NEEDS}");
    if pass.set_condition(conditions::IN_PLACE_UNSUPPORTED, true, "InPlaceUnsupported", &message) {
        pass.warn("InPlaceUnsupported", message);
    }
}

fn missing(pass: &Pass<'_>) -> Option<String> {
    let groups = pass.groups();
    let has_agent = |group: usize| {
        let pod = groups[group].template.spec.template.spec.as_ref();
        pod.is_some_and(|pod| pod.init_containers.iter().flatten().any(is_agent_sidecar))
    };
    let dropped = pass.current.iter().find(|current| !current.job.restarts_in_place && has_agent(current.group));
    if let Some(current) = dropped {
        return Some(format!("the API server dropped the restart rules of Job {}", current.name));
    }
    if pass.seen.all_nodes_outdated() {
        return Some("no node can restart Pods in place".to_owned());
    }
    let node = pass.seen.outdated_node()?;
    Some(format!("node {node} cannot restart Pods in place"))
}
