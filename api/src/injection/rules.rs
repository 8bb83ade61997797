//! The restart rules that a container gets where it has none: every exit but 0 restarts, and but the codes for which the
//! Job is to fail.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::Container;

use crate::PodFailurePolicy;
use crate::restart_rules::{ExitCodes, rule};

/// What a rule of a podFailurePolicy says of exit codes.
#[derive(Clone, Debug)]
struct Decision {
    /// Container that it is about; all if none.
    container: Option<String>,
    codes: ExitCodes,
    /// Whether it fails the Job or the index.
    fatal: bool,
}

/// The exit codes that a Job's podFailurePolicy decides on, in the order of its rules.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules(Vec<Decision>);

/// Most rules of a podFailurePolicy in Kubernetes. It refuses more; nothing is reckoned for them.
const LIMIT: usize = 20;

impl Rules {
    /// Rules that leave this policy its say: a container that is restarted never fails its Pod.
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
                    Some(Decision { container: requirement.container_name.clone(), codes, fatal })
                })
                .collect(),
        )
    }

    /// Lets a container of a Pod that never restarts be restarted by this action. One that has rules keeps them; so does
    /// one that has another policy.
    pub(super) fn give(&self, container: &mut Container, action: &str) {
        let has_rules = container.restart_policy_rules.iter().flatten().next().is_some();
        if has_rules || container.restart_policy.as_deref().is_some_and(|policy| policy != "Never") {
            return;
        }
        let codes = self.survivable(&container.name);
        if !codes.is_empty() {
            container.restart_policy = Some("Never".to_owned());
            container.restart_policy_rules = Some(vec![rule(action, codes)]);
        }
    }

    /// The exit codes that are failures and not fatal. The first rule that matches a code decides on it.
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
