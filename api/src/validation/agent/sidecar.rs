//! The agent as a sidecar: its startup probe is the barrier, and its exit code restarts the Pod.

use k8s_openapi::api::core::v1::Container;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::environment::{Declared, declared};
use crate::agent;
use crate::field::{Errors, Path};
use crate::restart_rules::{ExitCodes, restarts_pod};

const NUMBER: &str = "must be an exit code from 1 to 255";
const LIVENESS: &str = "must not be set: the kubelet would restart the agent alone, and its worker would \
                        still run in the previous epoch. The agent ends by itself after an error";
const BARRIER: &str = "must be set: the workers wait until it succeeds. Ask /barrier-is-lifted on port 8080, with \
                       failureThreshold 2147483647 so that they can wait without limit";

const NAMED: &str = "must be the name of a port of the agent's container";
const HTTPS: &str = "must be HTTP: the agent speaks no TLS to the kubelet";

/// Rejects an agent that does not restart the Pod, restarts alone, or does not delay the workers.
pub(super) fn check(container: &Container, path: &Path<'_>, errors: &mut Errors) {
    exit_code(container, path, errors);
    if container.liveness_probe.is_some() {
        errors.forbidden(&path.child("livenessProbe"), LIVENESS);
    }
    let waits_in_hook = container.lifecycle.as_ref().is_some_and(|lifecycle| lifecycle.post_start.is_some());
    if container.startup_probe.is_none() && !waits_in_hook {
        errors.required(&path.child("startupProbe"), BARRIER);
    }
    barrier(container, path, errors);
}

/// The first rule that matches the agent's exit code must restart the Pod.
fn exit_code(container: &Container, path: &Path<'_>, errors: &mut Errors) {
    let code = match declared(container, &[agent::EXIT_CODE, agent::GO_EXIT_CODE]) {
        Declared::Nowhere => Some(default_exit_code(container)),
        Declared::Elsewhere => None,
        Declared::Here(index, value) => {
            let code = value.parse::<u8>().ok().filter(|code| *code > 0);
            if code.is_none() {
                errors.invalid(&path.child("env").index(index).child("value"), value, NUMBER);
            }
            code
        }
    };
    let Some(code) = code else { return };
    let matches = |codes: Option<ExitCodes>| codes.is_some_and(|codes| codes.contains(i32::from(code)));
    let mut rules = container.restart_policy_rules.iter().flatten();
    if !rules.find(|rule| matches(ExitCodes::of(rule))).is_some_and(restarts_pod) {
        let found = container.restart_policy_rules.iter().flatten().map(|rule| &rule.action).collect::<Vec<_>>();
        let required = format_args!(
            "the first rule that matches exit code {code}, with which the agent asks for it, must be RestartAllContainers \
             or RestartPod: change the rules, or set {} to a code that they match",
            agent::EXIT_CODE
        );
        errors.invalid(&path.child("restartPolicyRules"), found, required);
    }
}

/// The agent of the Go JobSet, recognized by its probe, has another default.
fn default_exit_code(container: &Container) -> u8 {
    let probe = container.startup_probe.as_ref().and_then(|probe| probe.http_get.as_ref());
    match probe.and_then(|probe| probe.path.as_deref()) {
        Some(agent::GO_BARRIER_PATH) => agent::GO_DEFAULT_EXIT_CODE,
        _ => agent::DEFAULT_EXIT_CODE,
    }
}

/// The probe must have the port and the path of the agent: those of its variables, or the defaults. The defaults are
/// unknown for a container without the variables that every agent has.
fn barrier(container: &Container, path: &Path<'_>, errors: &mut Errors) {
    let Some(get) = container.startup_probe.as_ref().and_then(|probe| probe.http_get.as_ref()) else { return };
    let path = path.child("startupProbe.httpGet");
    let of_go = get.path.as_deref() == Some(agent::GO_BARRIER_PATH);
    let wanted = |names: &[&str], default: &str| match declared(container, names) {
        Declared::Here(_, value) => Some(value.to_owned()),
        Declared::Nowhere if agent::is_told(container) => Some(default.to_owned()),
        _ => None,
    };
    let default = if of_go { agent::GO_DEFAULT_BARRIER_PORT } else { agent::DEFAULT_BARRIER_PORT };
    let port = match &get.port {
        IntOrString::Int(number) => Some(*number),
        IntOrString::String(name) => {
            let named = container.ports.iter().flatten().find(|port| port.name.as_ref() == Some(name));
            if named.is_none() {
                errors.not_found(&path.child("port"), name, NAMED);
            }
            named.map(|port| port.container_port)
        }
    };
    if let (Some(port), Some(wanted)) =
        (port, wanted(&[agent::BARRIER_PORT, agent::GO_BARRIER_PORT], &default.to_string()))
        && wanted.parse() != Ok(port)
    {
        errors.invalid(&path.child("port"), port, answers(&wanted, agent::BARRIER_PORT));
    }
    let asked = get.path.as_deref().unwrap_or("/");
    let default = if of_go { agent::GO_BARRIER_PATH } else { agent::DEFAULT_BARRIER_PATH };
    if let Some(wanted) = wanted(&[agent::BARRIER_PATH, agent::GO_BARRIER_PATH_VARIABLE], default)
        && wanted != asked
    {
        errors.invalid(&path.child("path"), asked, answers(&wanted, agent::BARRIER_PATH));
    }
    if get.scheme.as_deref() == Some("HTTPS") {
        errors.invalid(&path.child("scheme"), "HTTPS", HTTPS);
    }
}

fn answers(wanted: &str, variable: &str) -> String {
    format!(
        "must be {wanted}, where the agent answers, or else its variable {variable} must say so: the workers would wait \
         forever, or not at all"
    )
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use crate::validation::testing::{admission_errors, assert_one, in_place};

    const AGENT: &str = "/spec/replicatedJobs/1/template/spec/template/spec/initContainers/0";
    const PATH: &str = "spec.replicatedJobs[1].template.spec.template.spec.initContainers[0].";

    fn probe(port: i32, path: &str, scheme: &str) -> (&'static str, Value) {
        let get = json!({ "port": port, "path": path, "scheme": scheme });
        ("startupProbe", json!({ "httpGet": get, "failureThreshold": i32::MAX }))
    }

    fn env(variables: &[(&str, &str)]) -> (&'static str, Value) {
        ("env", variables.iter().map(|(name, value)| json!({ "name": name, "value": value })).collect())
    }

    #[rstest]
    #[case::last_variable_counts(
        &[env(&[("RESTART_POD_IN_PLACE_EXIT_CODE", "81"), ("RESTART_POD_IN_PLACE_EXIT_CODE", "7")])],
        "matches exit code 7, with"
    )]
    #[case::always_healthy(
        &[env(&[("JOBSET_NAME", "train")]), probe(8080, "/healthz", "HTTP")],
        r#"path: Invalid value: "/healthz": must be /barrier-is-lifted"#
    )]
    #[case::go_agent_at_our_port(
        &[
            env(&[("JOBSET_NAME", "train")]),
            probe(8080, "/barrier-is-down", "HTTP"),
            ("restartPolicyRules", json!([{ "action": "RestartPod", "exitCodes": { "operator": "In", "values": [1] } }])),
        ],
        "port: Invalid value: 8080: must be 8081"
    )]
    #[case::tls(
        &[probe(8080, "/barrier-is-lifted", "HTTPS")],
        r#"startupProbe.httpGet.scheme: Invalid value: "HTTPS": must be HTTP"#
    )]
    fn sidecar_that_does_not_restart_pod_is_rejected(#[case] changes: &[(&str, Value)], #[case] expected: &str) {
        let mut object = in_place(&[]);
        for (field, value) in changes {
            object.pointer_mut(AGENT).unwrap()[field] = value.clone();
        }
        let errors = admission_errors(&object);
        assert_one(&errors, expected);
        assert!(errors[0].starts_with(PATH), "{errors:?}");
    }
}
