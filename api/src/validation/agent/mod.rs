//! The agent in the Pods of a JobSet with restartStrategy InPlaceRestart: the Pod must have only one, and it must be
//! configured correctly. [`super::in_place`] rejects a Pod without an agent.

mod environment;
mod progress;
mod sidecar;
mod supervisor;

use super::subject::Subject;
use crate::RestartStrategy;
use crate::agent::Agent;
use crate::field::{Errors, Path};

const ONE: &str = "must contain one agent alone: each would write the epoch of the same Pod";

/// Rejects agents that would block their Pod, or restart it when they should not.
pub(super) fn check(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    if subject.spec.restart_strategy() != RestartStrategy::InPlaceRestart {
        return;
    }
    subject.for_each_pod(spec, |pod, path| {
        let agents = Agent::all_of(pod);
        match agents[..] {
            [] => {}
            [Agent::Sidecar(index, container)] => {
                let path = path.child("initContainers");
                sidecar::check(container, &path.index(index), errors);
                progress::check(container, &path.index(index), false, errors);
            }
            [Agent::Supervisor(index, container)] => {
                supervisor::check(pod, path, errors);
                let path = path.child("containers");
                supervisor::check_container(container, &path.index(index), errors);
                progress::check(container, &path.index(index), true, errors);
            }
            [first, ..] => {
                let field = if matches!(first, Agent::Sidecar(..)) { "initContainers" } else { "containers" };
                let names: Vec<_> = agents.iter().map(|agent| &agent.container().name).collect();
                errors.invalid(&path.child(field), names, ONE);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::testing::{admission_errors, assert_one, in_place};

    const POD: &str = "/spec/replicatedJobs/1/template/spec/template/spec";

    #[test]
    fn pod_with_two_agents_is_rejected() {
        let object = in_place(&[]);
        let agent = object.pointer(&format!("{POD}/initContainers/0")).unwrap();
        let mut other = agent.clone();
        other["name"] = json!("other");
        let errors = admission_errors(&in_place(&[(&format!("{POD}/initContainers"), json!([agent, other]))]));
        assert_one(
            &errors,
            r#"template.spec.initContainers: Invalid value: ["agent","other"]: must contain one agent"#,
        );
    }
}
