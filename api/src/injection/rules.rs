//! The restart rules that a container gets if it has none. Every failure restarts it, except exit codes for which the
//! podFailurePolicy fails the Job.

use std::collections::BTreeSet;

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

/// The decisions of a podFailurePolicy on exit codes, in the order of its rules.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules(Vec<ExitCodeDecision>);

/// Maximum number of rules of a podFailurePolicy in Kubernetes. Further rules are ignored: the API server refuses the
/// Job.
const LIMIT: usize = 20;

impl Rules {
    /// The decisions of this policy. Restart rules must respect them: a container that restarts does not fail its Pod.
    pub(super) fn beside(policy: Option<&PodFailurePolicy>) -> Self {
        let rules = policy.into_iter().flat_map(|policy| &policy.rules).take(LIMIT);
        Self(
            rules
                .filter_map(|it| {
                    let requirement = it.on_exit_codes.as_ref()?;
                    let values: BTreeSet<i32> = requirement.values.iter().copied().collect();
                    let codes = match requirement.operator.as_str() {
                        "In" => ExitCodes::In(values),
                        "NotIn" => ExitCodes::NotIn(values),
                        _ => return None,
                    };
                    let fatal = matches!(it.action.as_str(), "FailJob" | "FailIndex");
                    Some(ExitCodeDecision { container: requirement.container_name.clone(), codes, fatal })
                })
                .collect(),
        )
    }

    /// Sets restart rules with this action on a container, except for these exit codes. A container that has rules, or another restartPolicy than
    /// Never, does not change.
    pub(super) fn give(&self, container: &mut Container, action: &str, except: &[u8]) {
        let has_rules = container.restart_policy_rules.iter().flatten().next().is_some();
        if has_rules || container.restart_policy.as_deref().is_some_and(|policy| policy != "Never") {
            return;
        }
        let except = ExitCodes::In(except.iter().copied().map(i32::from).collect());
        let codes = self.survivable(&container.name).minus(&except);
        if !codes.is_empty() {
            container.restart_policy = Some("Never".to_owned());
            container.restart_policy_rules = Some(vec![rule(action, codes)]);
        }
    }

    /// The failure exit codes that are not fatal. The first matching rule decides on a code.
    fn survivable(&self, container: &str) -> ExitCodes {
        let mut harmless: Vec<&ExitCodes> = Vec::new();
        let mut left = ExitCodes::failures();
        for decision in self.0.iter().filter(|it| it.container.as_deref().is_none_or(|name| name == container)) {
            if decision.fatal {
                let fatal = harmless.iter().fold(decision.codes.clone(), |codes, other| codes.minus(other));
                left = left.minus(&fatal);
            } else {
                harmless.push(&decision.codes);
            }
        }
        left
    }
}
