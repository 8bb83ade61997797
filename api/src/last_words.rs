//! What is left of a container that has failed: its termination message. The restart or the deletion of its Pod erases its log.

use k8s_openapi::api::core::v1::Container;

use crate::agent::FALLBACK_TO_LOGS;

/// Lets the kubelet keep the end of the log of a container that fails without a termination message, unless the user has said
/// which message it leaves.
pub fn keep(container: &mut Container) {
    if container.termination_message_path.is_none() {
        container.termination_message_policy.get_or_insert_with(|| FALLBACK_TO_LOGS.to_owned());
    }
}

/// Whether the agent has logged this line, in the course of things. The log of a container has those of the worker and of its supervisor.
pub fn is_of_agent(line: &str) -> bool {
    line.contains(" INFO jobset_agent::")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::nothing(json!({}), Some(FALLBACK_TO_LOGS))]
    #[case::chosen(json!({ "terminationMessagePolicy": "File" }), Some("File"))]
    #[case::written_elsewhere(json!({ "terminationMessagePath": "/tmp/words" }), None)]
    fn last_words_are_kept_unless_user_decides(#[case] mut fields: Value, #[case] expected: Option<&str>) {
        fields["name"] = json!("main");
        let mut container: Container = serde_json::from_value(fields).unwrap();
        keep(&mut container);
        assert_eq!(container.termination_message_policy.as_deref(), expected);
    }
}
