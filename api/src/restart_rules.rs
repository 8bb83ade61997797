//! Container restart rules: translates the names of KEP-467 into those of Kubernetes 1.36.
//!
//! KEP-467 was written before the kubelet's feature (KEP-5532) was final:
//!
//! | KEP-467 | Kubernetes |
//! |---|---|
//! | `RestartPod` | `RestartAllContainers` |
//! | `NoIn` | `NotIn` |
//! | `Terminate` | does not exist. Its codes are removed from every later rule, because the first matching rule decides |
//!
//! `Terminate` means "restart nothing". A container with policy `Never` does that when no rule matches. A sidecar has
//! the policy `Always`: an exit that no rule matches restarts the sidecar alone. If the agent restarts alone, it
//! reports a new epoch while its worker still runs in the old one. Therefore the last rule of the agent restarts the
//! whole Pod on every failure.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, ContainerRestartRule, ContainerRestartRuleOnExitCodes, PodSpec};

/// Policy of a container that restarts only if a rule says so.
pub const NEVER: &str = "Never";
/// Policy of a container that restarts after every exit.
pub const ALWAYS: &str = "Always";
/// Action that restarts the container alone.
pub const RESTART: &str = "Restart";
/// Action of Kubernetes 1.36 that restarts all containers of the Pod.
pub const RESTART_ALL_CONTAINERS: &str = "RestartAllContainers";
/// KEP-467's name of [`RESTART_ALL_CONTAINERS`].
pub const RESTART_POD: &str = "RestartPod";
/// KEP-467's action that restarts nothing.
pub const TERMINATE: &str = "Terminate";
/// Maximum number of rules of a container in Kubernetes 1.36.
pub(crate) const MAX_RULES: usize = 20;

/// A set of exit codes, given by an operator and values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExitCodes {
    In(BTreeSet<i32>),
    NotIn(BTreeSet<i32>),
}

impl ExitCodes {
    /// The codes that a rule matches. A rule without a requirement matches every code. `None` if the operator is
    /// unknown.
    pub fn of(rule: &ContainerRestartRule) -> Option<Self> {
        let Some(requirement) = &rule.exit_codes else { return Some(Self::NotIn(BTreeSet::new())) };
        let values = requirement.values.iter().flatten().copied().collect();
        match requirement.operator.as_str() {
            "In" => Some(Self::In(values)),
            "NotIn" | "NoIn" => Some(Self::NotIn(values)),
            _ => None,
        }
    }

    /// Every code except 0.
    pub fn failures() -> Self {
        Self::NotIn(BTreeSet::from([0]))
    }

    pub fn contains(&self, code: i32) -> bool {
        match self {
            Self::In(codes) => codes.contains(&code),
            Self::NotIn(codes) => !codes.contains(&code),
        }
    }

    #[must_use]
    pub fn minus(&self, other: &Self) -> Self {
        match (self, other) {
            (Self::In(a), Self::In(b)) => Self::In(a - b),
            (Self::In(a), Self::NotIn(b)) => Self::In(a & b),
            (Self::NotIn(a), Self::In(b)) => Self::NotIn(a | b),
            (Self::NotIn(a), Self::NotIn(b)) => Self::In(b - a),
        }
    }

    /// The same set without values that are no exit code, 0 to 255: a list of values can be long.
    #[must_use]
    pub fn possible(self) -> Self {
        let possible = |codes: BTreeSet<i32>| codes.into_iter().filter(|code| (0..=255).contains(code)).collect();
        match self {
            Self::In(codes) => Self::In(possible(codes)),
            Self::NotIn(codes) => Self::NotIn(possible(codes)),
        }
    }

    pub fn is_empty(&self) -> bool {
        matches!(self, Self::In(codes) if codes.is_empty())
    }

    fn requirement(self) -> ContainerRestartRuleOnExitCodes {
        let (operator, values) = match self {
            Self::In(values) => ("In", values),
            Self::NotIn(values) => ("NotIn", values),
        };
        ContainerRestartRuleOnExitCodes { operator: operator.to_owned(), values: Some(values.into_iter().collect()) }
    }
}

pub fn rule(action: &str, codes: ExitCodes) -> ContainerRestartRule {
    ContainerRestartRule { action: action.to_owned(), exit_codes: Some(codes.requirement()) }
}

/// Whether the rule restarts the whole Pod: `RestartAllContainers` or `RestartPod` of KEP-467.
pub fn restarts_pod(rule: &ContainerRestartRule) -> bool {
    rule.action == RESTART_ALL_CONTAINERS || rule.action == RESTART_POD
}

/// Whether an init container is a sidecar: it has restartPolicy Always.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some(ALWAYS)
}

/// Whether an init container is an agent sidecar: it has restartPolicy Always and a rule that restarts the whole Pod
/// (KEP-467, "Implementation - Webhook validation").
pub fn is_agent_sidecar(container: &Container) -> bool {
    is_sidecar(container) && container.restart_policy_rules.iter().flatten().any(restarts_pod)
}

/// The rules in the names of Kubernetes, without `Terminate`.
///
/// A rule with an unknown operator is copied unchanged, so that the API server rejects it by name. For the same reason, nothing
/// is changed if there are more rules than Kubernetes allows: each could leave out the codes of all others.
pub fn compile(rules: &[ContainerRestartRule]) -> Vec<ContainerRestartRule> {
    if rules.len() > MAX_RULES {
        return rules.to_vec();
    }
    let mut terminated: Vec<ExitCodes> = Vec::new();
    let mut compiled = Vec::with_capacity(rules.len());
    for rule in rules {
        let Some(codes) = ExitCodes::of(rule) else {
            compiled.push(rule.clone());
            continue;
        };
        if rule.action == TERMINATE {
            terminated.push(codes.possible());
            continue;
        }
        let codes = terminated.iter().fold(codes, |codes, terminated| codes.minus(terminated));
        if !codes.is_empty() {
            let action = if restarts_pod(rule) { RESTART_ALL_CONTAINERS } else { &rule.action };
            compiled.push(self::rule(action, codes));
        }
    }
    compiled
}

/// The exit codes, 1 to 255, after which the kubelet does not restart a container with policy `Never` and these rules.
pub fn final_codes(rules: &[ContainerRestartRule]) -> Vec<u8> {
    let compiled: Vec<_> = compile(rules).iter().filter_map(ExitCodes::of).collect();
    (1..=u8::MAX).filter(|code| !compiled.iter().any(|codes| codes.contains(i32::from(*code)))).collect()
}

/// As [`compile`], for an agent sidecar. The last rule restarts the whole Pod on every failure.
pub fn compile_agent(rules: &[ContainerRestartRule]) -> Vec<ContainerRestartRule> {
    let every_failure = rule(RESTART_ALL_CONTAINERS, ExitCodes::failures());
    let mut compiled = compile(rules);
    if !compiled.contains(&every_failure) {
        compiled.push(every_failure);
    }
    compiled
}

/// Compiles the rules of every container of a Pod.
pub fn compile_pod(pod: &mut PodSpec) {
    for container in pod.init_containers.iter_mut().flatten() {
        let compile = if is_agent_sidecar(container) { compile_agent } else { compile };
        compile_container(container, compile);
    }
    pod.containers.iter_mut().for_each(|container| compile_container(container, compile));
}

fn compile_container(container: &mut Container, compile: fn(&[ContainerRestartRule]) -> Vec<ContainerRestartRule>) {
    if let Some(rules) = &mut container.restart_policy_rules {
        *rules = compile(rules);
        if rules.is_empty() {
            container.restart_policy_rules = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(action: &str, operator: &str, values: &[i32]) -> ContainerRestartRule {
        ContainerRestartRule {
            action: action.to_owned(),
            exit_codes: Some(ContainerRestartRuleOnExitCodes {
                operator: operator.to_owned(),
                values: Some(values.to_vec()),
            }),
        }
    }

    /// The action on an exit code: that of the first rule that matches.
    fn decide(rules: &[ContainerRestartRule], code: i32) -> Option<&str> {
        rules.iter().find(|rule| ExitCodes::of(rule).unwrap().contains(code)).map(|rule| rule.action.as_str())
    }

    #[test]
    fn compile_seed_worker_rules_restarts_except_zero_and_terminated_codes() {
        let rules = [rule("Terminate", "In", &[2, 3]), rule("RestartPod", "NotIn", &[0, 2, 3])];
        assert_eq!(compile(&rules), [rule("RestartAllContainers", "NotIn", &[0, 2, 3])]);
    }

    #[test]
    fn compile_terminate_before_wider_rule_removes_its_codes() {
        let rules = [rule("Terminate", "In", &[2]), rule("RestartPod", "NotIn", &[0])];
        assert_eq!(compile(&rules), [rule("RestartAllContainers", "NotIn", &[0, 2])]);
    }

    #[test]
    fn compile_rule_without_codes_left_is_dropped() {
        let rules = [rule("Terminate", "NoIn", &[81]), rule("RestartPod", "In", &[7])];
        assert_eq!(compile(&rules), []);
    }

    #[test]
    fn compile_of_any_rules_decides_as_rules_given() {
        let operators = ["In", "NotIn", "NoIn"];
        let sets: [&[i32]; 4] = [&[0], &[1, 2], &[2, 3], &[0, 1, 2, 3]];
        let actions = ["Terminate", "RestartPod", "Restart"];
        let mut all = Vec::new();
        for action in actions {
            for operator in operators {
                all.extend(sets.iter().map(|set| rule(action, operator, set)));
            }
        }
        for first in &all {
            for second in &all {
                for third in &all {
                    let rules = [first.clone(), second.clone(), third.clone()];
                    let compiled = compile(&rules);
                    for code in 0..=4 {
                        let wanted = match decide(&rules, code) {
                            Some("Terminate") => None,
                            Some("RestartPod") => Some("RestartAllContainers"),
                            other => other,
                        };
                        assert_eq!(decide(&compiled, code), wanted, "code {code} of {rules:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn compile_pod_agent_restarts_pod_on_every_failure() {
        let agent = Container {
            restart_policy: Some("Always".to_owned()),
            restart_policy_rules: Some(vec![rule("RestartPod", "In", &[81]), rule("Terminate", "NoIn", &[81])]),
            ..Container::default()
        };
        let mut pod = PodSpec { init_containers: Some(vec![agent]), ..PodSpec::default() };
        compile_pod(&mut pod);
        let once = pod.clone();
        compile_pod(&mut pod);
        assert_eq!(once, pod, "compiling twice changes nothing");
        assert_eq!(
            pod.init_containers.unwrap()[0].restart_policy_rules.as_deref().unwrap(),
            [rule("RestartAllContainers", "In", &[81]), rule("RestartAllContainers", "NotIn", &[0])]
        );
    }
}
