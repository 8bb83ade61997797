use jobset_api::labels;
use rstest::rstest;
use serde_json::json;

use super::*;

#[rstest]
#[case::nothing("", "")]
#[case::lines("step 7\nloss is NaN\n", "step 7 | loss is NaN")]
#[case::blank_lines("a\r\n\n \nb", "a | b")]
#[case::supervisor_logs_too(
    "2026-11-28T00:46:29Z  INFO jobset_agent::run: barrier lifted epoch=1\nloss is NaN",
    "loss is NaN"
)]
#[case::control_characters("a\u{1b}[31mred\u{7}", "a [31mred")]
fn last_words_are_one_line(#[case] text: &str, #[case] expected: &str) {
    assert_eq!(last_words(text), expected);
}

#[test]
fn last_words_of_long_text_are_its_end() {
    let words = last_words(&format!("{}the end", "\u{fc}".repeat(4096)));
    assert!(words.len() <= LONGEST_MESSAGE && words.ends_with("\u{fc}the end"), "{words}");
}

#[rstest]
#[case::short("abc", 3, "abc")]
#[case::long("abcdefghijklmnop", 11, "abc ... nop")]
#[case::between_bytes_of_a_character("\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}\u{fc}", 11, "\u{fc} ... \u{fc}")]
#[case::no_place("abcdefghijklmnop", 2, " ... ")]
fn shorten_keeps_begin_and_end(#[case] text: &str, #[case] longest: usize, #[case] expected: &str) {
    assert_eq!(shorten(text, longest), expected);
}

#[test]
fn reported_exit_of_a_signal_names_it() {
    let text = r#"{"epoch":2,"code":137,"signal":9,"message":"a\nb"}"#;
    let ReportedExit { epoch, exit } = ReportedExit::parse(text).unwrap();
    assert_eq!((epoch, exit.code, exit.reason.as_str(), exit.message.as_str()), (2, 137, "signal 9", "a | b"));
}

/// A supervised Pod whose agent has reported a worker that got SIGKILL at second 20, and whose container has ended.
fn out_of_memory(code: i32, started: &str, reason: Option<&str>) -> PartialPod {
    let exit = json!({"epoch": 1, "code": 137, "signal": 9, "reason": reason.unwrap_or_default(), "finishedAt": "2026-01-01T00:00:20.500000Z"});
    serde_json::from_value(json!({
        "metadata": {"name": "p", "annotations": {(labels::WORKER_EXIT): exit.to_string()}},
        "spec": {"containers": [{"name": "w", "restartPolicyRules": [
            {"action": "Restart", "exitCodes": {"operator": "NotIn", "values": [0]}}]}]},
        "status": {"containerStatuses": [{"name": "w", "state": {"terminated": {
            "exitCode": code, "reason": "OOMKilled", "startedAt": started, "finishedAt": "2026-01-01T00:00:50Z"}}}]},
    }))
    .unwrap()
}

const BEFORE: &str = "2026-01-01T00:00:00Z";
const AFTER: &str = "2026-01-01T00:00:30Z";

#[rstest]
#[case::container_of_that_life(42, BEFORE, None, "OOMKilled")]
#[case::container_of_a_later_life(42, AFTER, None, "signal 9")]
#[case::agent_says_so(42, AFTER, Some("OOMKilled"), "OOMKilled")]
fn reported_kill_is_out_of_memory_if_container_says_so(
    #[case] code: i32,
    #[case] started: &str,
    #[case] reason: Option<&str>,
    #[case] expected: &str,
) {
    assert_eq!(ReportedExit::of(&out_of_memory(code, started, reason)).unwrap().exit.reason, expected);
}

#[rstest]
#[case::worker_was_killed_before(42, BEFORE, "Error")]
#[case::worker_was_killed_in_another_life(42, AFTER, "OOMKilled")]
#[case::supervisor_was_killed(137, BEFORE, "OOMKilled")]
fn exit_code_inherits_no_reason_of_an_earlier_worker(#[case] code: i32, #[case] started: &str, #[case] expected: &str) {
    let exit = PodFailure::of(&out_of_memory(code, started, None)).exit.unwrap();
    assert_eq!((exit.code, exit.reason.as_str()), (code, expected));
}
