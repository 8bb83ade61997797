//! Notes of one reason become one Event.

use std::collections::HashSet;
use std::fmt::Write as _;

use jobset_api::event;

use crate::types::Note;

/// Most messages that a merged note lists. A JobSet may have thousands of Jobs and Pods.
const LISTED: usize = 10;
/// Longest list, in bytes. An Event has at most 1024.
const LONGEST: usize = 900;

/// The reasons of what each plan says again for as long as it is true. The notes of all other reasons tell of a decision, which
/// the next plan does not repeat.
const HOLD: [&str; 22] = [
    event::AGENT_POLICY_MISSING,
    event::AGENT_RESTARTED_ALONE,
    event::EPOCHS_LOST,
    event::EPOCH_INVALID,
    event::EXCLUSIVE_PLACEMENT_VIOLATION,
    event::FAILED_RESOURCE_PROPAGATION,
    event::HEADLESS_SERVICE_CREATION_FAILED,
    event::INVALID_SPECIFICATION,
    event::IN_PLACE_RESTART_DISABLED,
    event::JOB_CREATION_FAILED,
    event::JOB_MISLABELLED,
    event::LEAVES_CORDONED_NODE,
    event::MESSAGE_PATTERN_INVALID,
    event::NODE_LOST,
    event::NOT_CONTROLLED,
    event::POD_REPLACED,
    event::STAYS_ON_CORDONED_NODE,
    event::PVC_CREATION_FAILED,
    event::REFUSED,
    event::RESIZED,
    event::RESTART_REQUEST_INVALID,
    event::ROLE_BINDING_TAKEN,
];

impl Note {
    /// Whether each plan says it again for as long as it is true.
    pub fn holds(&self) -> bool {
        HOLD.contains(&self.reason)
    }

    /// One note that lists the first few messages, and how many more there are. A note without others stays as it is.
    fn with(self, others: &[String]) -> Self {
        let mut known = HashSet::from([self.message.as_str()]);
        let others: Vec<&String> = others.iter().filter(|other| known.insert(other)).collect();
        if others.is_empty() {
            return self;
        }
        let mut message = self.message[..self.message.floor_char_boundary(LONGEST)].to_owned();
        let mut listed = 0;
        for other in others.iter().take(LISTED - 1) {
            if message.len() + "; ".len() + other.len() > LONGEST {
                break;
            }
            let _ = write!(message, "; {other}");
            listed += 1;
        }
        if others.len() > listed {
            let _ = write!(message, "; and {} more", others.len() - listed);
        }
        Self { message, ..self }
    }
}

/// The notes, those of one reason as one, in the order of the first of each reason. With each, a number comes; of several, the
/// largest stays.
pub fn merge(notes: impl IntoIterator<Item = (Note, u32)>) -> Vec<(Note, u32)> {
    let mut merged: Vec<(Note, u32, Vec<String>)> = Vec::new();
    for (note, number) in notes {
        match merged.iter_mut().find(|(first, ..)| (first.reason, first.warning) == (note.reason, note.warning)) {
            Some((_, largest, others)) => {
                *largest = number.max(*largest);
                others.push(note.message);
            }
            None => merged.push((note, number, Vec::new())),
        }
    }
    merged.into_iter().map(|(first, number, others)| (first.with(&others), number)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn warning(reason: &'static str, message: &str) -> (Note, u32) {
        (Note::warning(reason, message.to_owned()), 1)
    }

    fn messages(notes: Vec<(Note, u32)>) -> Vec<String> {
        merge(notes).into_iter().map(|(note, _)| note.message).collect()
    }

    #[test]
    fn notes_of_one_reason_are_one_in_order_of_reasons() {
        let notes = vec![warning("A", "a"), warning("B", "b"), warning("A", "c"), warning("A", "a")];
        assert_eq!(messages(notes), ["a; c", "b"]);
        let normal = (Note::normal("A", "n".to_owned()), 1);
        assert_eq!(messages(vec![warning("A", "a"), normal]), ["a", "n"], "an Event has one type");
        assert_eq!(merge([warning("A", "a"), (Note::warning("A", "b".to_owned()), 4)])[0].1, 4);
    }

    #[test]
    fn single_note_stays_as_it_is() {
        let long = "x".repeat(5_000);
        let note = Note { failed_at: Some(k8s_openapi::jiff::Timestamp::UNIX_EPOCH), ..warning("A", &long).0 };
        assert_eq!(merge([(note.clone(), 1), (note.clone(), 1)]), [(note, 1)]);
    }

    #[test]
    fn many_notes_list_first_ten_and_count_rest() {
        let pods = |from: usize| (from..5_000).map(|pod| warning("A", &format!("Pod {pod}"))).collect::<Vec<_>>();
        let listed: Vec<String> = (0..10).map(|pod| format!("Pod {pod}")).collect();
        assert_eq!(messages(pods(0)), [format!("{}; and 4990 more", listed.join("; "))]);
        let long = |text: &str| warning("A", &format!("{}{text}", "\u{e9}".repeat(2_000)));
        let [message] = &messages(vec![long("a"), long("b"), long("c")])[..] else { unreachable!("one reason") };
        assert!(message.ends_with("\u{e9}; and 2 more") && message.len() < 1024, "{}", message.len());
    }
}
