//! The text of a report: the annotation `jobset.sigs.k8s.io/progress`.

use jobset_protocol::labels::PROGRESS_BYTES;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::ProgressFacts;
use crate::evidence::Evidence;
use crate::termination_log::end_of;

/// Longest text of a report, in bytes, as the stream carries it: in a JSON string. A message has room for it beside the longest text
/// about the end of a worker, in relays of the release before as well.
pub const LONGEST_REPORT: usize = PROGRESS_BYTES;

#[derive(Clone, Debug, PartialEq)]
pub struct StallReport {
    pub since: Timestamp,
    pub evidence: Evidence,
}

/// The text of a report about the worker of this epoch, written at this time. What is too long is left out: the output of the user's
/// command first, then the last processes.
pub fn text(facts: &ProgressFacts, epoch: i32, stall: Option<&StallReport>, at: Timestamp) -> String {
    let mut report = Map::new();
    report.insert("epoch".to_owned(), epoch.into());
    report.insert("at".to_owned(), format!("{at:.6}").into());
    let numbers = [("step", facts.step), ("checkpoint", facts.checkpoint)];
    for (name, number) in numbers {
        report.extend(number.map(|number| (name.to_owned(), number.into())));
    }
    if !facts.pause.is_zero() {
        let seconds = u32::try_from(facts.pause.as_millis().div_ceil(1000)).unwrap_or(u32::MAX);
        report.insert("pauseSeconds".to_owned(), seconds.into());
    }
    let Some(stall) = stall else { return Value::Object(report).to_string() };
    let mut processes = stall.evidence.processes.clone();
    loop {
        report.insert("stall".to_owned(), stall_value(facts, stall, &processes, ""));
        let length = streamed_bytes(&Value::Object(report.clone()).to_string());
        if length <= LONGEST_REPORT || processes.pop().is_none() {
            let left = LONGEST_REPORT.saturating_sub(length + streamed_bytes(r#","output":"""#));
            let output = end_of(&stall.evidence.output, left, twice_escaped_bytes);
            report.insert("stall".to_owned(), stall_value(facts, stall, &processes, output));
            return Value::Object(report).to_string();
        }
    }
}

fn stall_value(facts: &ProgressFacts, stall: &StallReport, processes: &[Value], output: &str) -> Value {
    let mut value = json!({"since": format!("{:.6}", stall.since), "evidence": {}});
    for (name, text) in [("phase", &facts.phase), ("in", &facts.within)] {
        if let Some(text) = text {
            value[name] = text.as_str().into();
        }
    }
    if !processes.is_empty() {
        value["evidence"]["processes"] = processes.into();
    }
    if !output.is_empty() {
        value["evidence"]["output"] = output.into();
    }
    value
}

/// Bytes of a text in JSON as the stream carries it: its quotes and backslashes are escaped once more.
fn streamed_bytes(json: &str) -> usize {
    json.len() + json.bytes().filter(|byte| matches!(byte, b'"' | b'\\')).count()
}

/// Bytes of a character in a JSON string that is within another one.
fn twice_escaped_bytes(character: char) -> usize {
    match character {
        '"' | '\\' => 4,
        '\n' | '\t' | '\r' | '\u{8}' | '\u{c}' => 3,
        character if character.is_ascii_control() => 7,
        character => character.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use jobset_api::ProgressReport;
    use jobset_stream::AGENT_FRAME;
    use jobset_stream::message::{FromAgent, Nonce, Report};
    use jobset_stream::tls::provider;

    use super::*;
    use crate::evidence::process_value;
    use crate::worker_exit::{ProcessEnd, WorkerExit};

    fn facts() -> ProgressFacts {
        ProgressFacts {
            epoch: Some(3),
            step: Some(1200),
            checkpoint: Some(1000),
            phase: Some("checkpoint".to_owned()),
            within: Some("all_reduce".to_owned()),
            pause: Duration::from_mins(10),
        }
    }

    fn at() -> Timestamp {
        "2026-01-01T00:00:20.5Z".parse().unwrap()
    }

    fn stall(processes: usize, output: &str) -> StallReport {
        let process = process_value(7, "python3", "T", "do_signal_stop", "202", 10, 5000);
        let evidence = Evidence { processes: vec![process; processes], output: output.to_owned() };
        StallReport { since: "2026-01-01T00:00:00.5Z".parse().unwrap(), evidence }
    }

    #[test]
    fn text_is_that_of_the_protocol() {
        let golden = include_str!("../../../api/cases/progress.json");
        let text = text(&facts(), 3, Some(&stall(1, "")), at());
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), serde_json::from_str::<Value>(golden).unwrap());
        assert_eq!(ProgressReport::parse(&text), ProgressReport::parse(golden.trim()));
    }

    #[test]
    fn text_without_facts_names_the_epoch() {
        let written = r#""at":"2026-01-01T00:00:20.500000Z""#;
        assert_eq!(text(&ProgressFacts::default(), 3, None, at()), format!(r#"{{{written},"epoch":3}}"#));
        let part = ProgressFacts { pause: Duration::from_millis(1500), ..ProgressFacts::default() };
        assert_eq!(text(&part, 3, None, at()), format!(r#"{{{written},"epoch":3,"pauseSeconds":2}}"#));
    }

    /// A relay of the release before ends the connection of an agent whose message is longer.
    #[test]
    fn longest_hello_fits_into_a_frame() {
        for character in ["\"", "\\", "\n", "\u{7}"] {
            let end = ProcessEnd { code: 137, signal: Some(9), out_of_memory: true, at: at() };
            // The output of a worker has no control characters left.
            let lines = character.replace('\u{7}', "x").repeat(10_000);
            let report = Report {
                epoch: i32::MAX,
                exit: Some(WorkerExit::new(i32::MAX, end, &lines).annotation.value().to_owned()),
                started: Some("2026-01-01T00:00:00.200000Z".to_owned()),
                progress: Some(text(&facts(), i32::MAX, Some(&stall(16, &character.repeat(10_000))), at())),
            };
            let nonce = Nonce::random(provider().secure_random).unwrap();
            let (token, jobset) = ("x".repeat(2048), "x".repeat(253));
            let hello = FromAgent::Hello { token, jobset, nonce, report: Some(report), fell_back: false };
            let length = serde_json::to_vec(&hello).unwrap().len();
            assert!(length <= AGENT_FRAME, "{character:?}: {length}");
        }
    }

    #[test]
    fn text_of_hostile_evidence_is_bounded() {
        for character in ["\"", "\\", "\n", "x", "\u{7}", "\u{fc}", "\u{1f600}"] {
            for processes in [0, 1, 16, 100] {
                let text = text(&facts(), 3, Some(&stall(processes, &character.repeat(10_000))), at());
                let length = streamed_bytes(&text);
                assert!((3900..=LONGEST_REPORT).contains(&length), "{character:?} {processes}: {length}");
                assert_eq!(length, serde_json::to_string(&text).unwrap().len() - 2, "quotes around it");
                assert!(ProgressReport::parse(&text).is_some());
            }
        }
    }
}
