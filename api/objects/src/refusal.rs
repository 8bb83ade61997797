//! What the Job controller says of Pods that the API server refuses: it is said in Events of the Job alone.

use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;

/// Reason of the Event.
pub const FAILED_CREATE: &str = "FailedCreate";

pub fn last_observed(event: &Event) -> Option<Timestamp> {
    let series = event.series.as_ref().map(|series| series.last_observed_time.0);
    let old = event.deprecated_last_timestamp.as_ref().map(|time| time.0);
    series.or(old).or(event.event_time.as_ref().map(|time| time.0))
}

/// Why the API server refuses a Pod. The name of the Pod is left out: at each try it is another one.
///
/// `Error creating: pods "train-w-0-0-x7k2m" is forbidden: exceeded quota: q`, also after `(combined from similar events): `.
pub fn why_refused(event: &Event) -> &str {
    let note = event.note.as_deref().unwrap_or_default();
    let message = note.split_once("Error creating: ").map_or(note, |(_, message)| message);
    let names_pod = ["pods \"", "Pod \""].iter().any(|begin| message.starts_with(begin));
    message.split_once("\" is ").filter(|_| names_pod).map_or(message, |(_, why)| why)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::quota(
        "Error creating: pods \"w-0-0-x7k2m\" is forbidden: exceeded quota: q",
        "forbidden: exceeded quota: q"
    )]
    #[case::often("(combined from similar events): Error creating: pods \"w\" is forbidden: no", "forbidden: no")]
    #[case::invalid("Error creating: Pod \"w-0-0-x7k2m\" is invalid: spec: no", "invalid: spec: no")]
    #[case::webhook(
        "Error creating: admission webhook \"a\" denied the request: \"b\" is c",
        "admission webhook \"a\" denied the request: \"b\" is c"
    )]
    #[case::other("no", "no")]
    fn refusal_has_no_name_of_pod(#[case] note: &str, #[case] expected: &str) {
        assert_eq!(why_refused(&Event { note: Some(note.to_owned()), ..Event::default() }), expected);
    }
}
