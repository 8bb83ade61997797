//! The restart rules that a container gets if it has none. Every failure restarts it, except exit codes for which the
//! podFailurePolicy fails the Job.

use std::collections::{BTreeSet, HashMap};

use k8s_openapi::api::core::v1::Container;

use crate::PodFailurePolicy;
use crate::restart_rules::{ExitCodes, rule};

/// The decision of one rule of a podFailurePolicy on exit codes.
#[derive(Clone, Debug)]
struct ExitCodeDecision {
    /// Name of the container. `None` means all containers.
    container: Option<String>,
    codes: ExitCodes,
    /// Whether the rule fails the Job or the index.
    fatal: bool,
}

/// The failure exit codes that are not fatal, by a podFailurePolicy.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    /// For the containers that the policy names.
    named: HashMap<String, ExitCodes>,
    others: ExitCodes,
}

/// Maximum number of rules of a podFailurePolicy in Kubernetes. Further rules are ignored: the API server refuses the
/// Job.
const LIMIT: usize = 20;

impl Rules {
    /// What this policy leaves. Restart rules must respect it: a container that restarts does not fail its Pod.
    pub(super) fn beside(policy: Option<&PodFailurePolicy>) -> Self {
        let rules = policy.into_iter().flat_map(|policy| &policy.rules).take(LIMIT);
        let decisions = rules.filter_map(|it| {
            let requirement = it.on_exit_codes.as_ref()?;
            let values: BTreeSet<i32> = requirement.values.iter().copied().collect();
            let codes = match requirement.operator.as_str() {
                "In" => ExitCodes::In(values),
                "NotIn" => ExitCodes::NotIn(values),
                _ => return None,
            };
            let fatal = matches!(it.action.as_str(), "FailJob" | "FailIndex");
            // Each container gets a rule with these codes.
            Some(ExitCodeDecision { container: requirement.container_name.clone(), codes: codes.possible(), fatal })
        });
        let decisions: Vec<_> = decisions.collect();
        let containers = decisions.iter().filter_map(|decision| decision.container.clone());
        let named = containers.map(|name| (name.clone(), survivable(&decisions, Some(&name)))).collect();
        Self { named, others: survivable(&decisions, None) }
    }

    /// Sets restart rules with this action on a container, except for these exit codes. A container that has rules, or another restartPolicy than
    /// Never, does not change.
    pub(super) fn give(&self, container: &mut Container, action: &str, except: &[u8]) {
        let has_rules = container.restart_policy_rules.iter().flatten().next().is_some();
        if has_rules || container.restart_policy.as_deref().is_some_and(|policy| policy != "Never") {
            return;
        }
        let except = ExitCodes::In(except.iter().copied().map(i32::from).collect());
        let codes = self.named.get(&container.name).unwrap_or(&self.others).minus(&except);
        if !codes.is_empty() {
            container.restart_policy = Some("Never".to_owned());
            container.restart_policy_rules = Some(vec![rule(action, codes)]);
        }
    }
}

/// The failure exit codes that are not fatal in the container of this name, or in one that no decision names. The first
/// matching rule decides on a code.
fn survivable(decisions: &[ExitCodeDecision], container: Option<&str>) -> ExitCodes {
    let mut harmless: Vec<&ExitCodes> = Vec::new();
    let mut left = ExitCodes::failures();
    for decision in decisions.iter().filter(|it| it.container.is_none() || it.container.as_deref() == container) {
        if decision.fatal {
            let fatal = harmless.iter().fold(decision.codes.clone(), |codes, other| codes.minus(other));
            left = left.minus(&fatal);
        } else {
            harmless.push(&decision.codes);
        }
    }
    left
}
