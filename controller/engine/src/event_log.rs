//! Which Events follow from the notes of a plan.
//!
//! What holds from plan to plan is one Event, also while the numbers in it change. A decision is an Event of its own each time:
//! each restart. A request that the API server refuses again is counted in the series of its Event, as the Go JobSet does, each
//! time that the count has doubled.
//!
//! A JobSet has a budget of Events, as objects have in client-go's spam filter, where it is 25 and one more each 5 minutes. Here
//! it is larger, because each restart of a group is worth three Events.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use jobset_api::JobSet;
use jobset_rules::{Note, merge_notes};

use crate::work::{EventWrite, Stored};

/// Writes of Events that a JobSet may cause at once: those of a hundred restarts.
const BURST: u32 = 300;
/// Time in which it may cause one more.
const REFILL: Duration = Duration::from_secs(10);

/// The notes of the last reconciliation, and what is left of the budget.
#[derive(Debug, Default)]
pub(super) struct EventLog {
    logged: HashMap<NoteKey, LoggedEvent>,
    budget: Budget,
}

/// Two notes with the same key, of one plan and the next, are one Event.
#[derive(Debug, PartialEq, Eq, Hash)]
struct NoteKey {
    reason: &'static str,
    text: String,
}

#[derive(Debug)]
struct LoggedEvent {
    /// `None` if the budget was spent.
    name: Option<String>,
    times: u32,
}

impl EventLog {
    /// The Events for the notes that the reconciliation before did not have. `refused` are the requests that the API server
    /// refuses at present, each with how often it has refused them.
    pub(super) fn report(
        &mut self,
        jobset: &JobSet,
        stored: Stored,
        notes: Vec<Note>,
        refused: Vec<(Note, u32)>,
        now: Instant,
    ) -> Vec<EventWrite> {
        let mut before = std::mem::take(&mut self.logged);
        let mut writes = Vec::new();
        for (note, times) in notes.into_iter().map(|note| (note, 1)).chain(merge_notes(refused)) {
            let key = NoteKey::of(&note);
            if self.logged.contains_key(&key) {
                continue;
            }
            let name = match before.remove(&key) {
                Some(LoggedEvent { name: Some(name), times: told }) => {
                    // What is refused for days costs a few writes, not one a minute.
                    if told < times && times.is_power_of_two() && self.budget.take(now) {
                        writes.push(EventWrite::Repeat { name: name.clone(), times });
                    }
                    Some(name)
                }
                _ if self.budget.take(now) => {
                    let name = event_name(jobset, stored, &note);
                    writes.push(EventWrite::Create { name: name.clone(), note, stored });
                    Some(name)
                }
                None => {
                    writes.push(EventWrite::Drop { note });
                    None
                }
                // It becomes an Event if it is still true when the budget has one again.
                Some(_) => None,
            };
            self.logged.insert(key, LoggedEvent { name, times });
        }
        writes
    }
}

impl NoteKey {
    fn of(note: &Note) -> Self {
        let text =
            if note.holds() { note.message.replace(|c: char| c.is_ascii_digit(), "") } else { note.message.clone() };
        Self { reason: note.reason, text }
    }
}

/// A token bucket.
#[derive(Debug, Default)]
struct Budget {
    full_at: Option<Instant>,
}

impl Budget {
    /// Takes one write, if one is left.
    fn take(&mut self, now: Instant) -> bool {
        let full_at = self.full_at.map_or(now, |full_at| full_at.max(now)) + REFILL;
        let is_left = full_at <= now + REFILL * BURST;
        if is_left {
            self.full_at = Some(full_at);
        }
        is_left
    }
}

/// The name of the Event: the same for the same note on the same state of the same JobSet, so that no restart of the
/// controller and no lost answer makes two of it.
fn event_name(jobset: &JobSet, stored: Stored, note: &Note) -> String {
    let mut hasher = DefaultHasher::new();
    (jobset.metadata.uid.as_deref(), stored, note.reason, &note.message).hash(&mut hasher);
    format!("{}.{:016x}", jobset.metadata.name.as_deref().unwrap_or_default(), hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reason that holds, and one of a decision.
    const HOLDS: &str = jobset_api::event::EPOCH_INVALID;
    const DECIDES: &str = jobset_api::event::RESTARTING;

    /// The Events of a reconciliation with these notes and refusals: texts of new ones, counts of repeated ones, and those that
    /// are dropped in brackets.
    fn events_at(
        log: &mut EventLog,
        now: Instant,
        notes: &[(&'static str, &str)],
        refused: &[(&str, u32)],
    ) -> Vec<String> {
        let note = |(reason, text): &(&'static str, &str)| Note::warning(reason, (*text).to_owned());
        let refused = refused.iter().map(|(text, times)| (note(&("Refused", text)), *times)).collect();
        let notes = notes.iter().map(note).collect();
        let writes = log.report(&JobSet::default(), Stored::default(), notes, refused, now);
        let text = |write| match write {
            EventWrite::Create { note, .. } => note.message,
            EventWrite::Repeat { times, .. } => times.to_string(),
            EventWrite::Drop { note } => format!("({})", note.message),
        };
        writes.into_iter().map(text).collect()
    }

    fn events(log: &mut EventLog, notes: &[(&'static str, &str)], refused: &[(&str, u32)]) -> Vec<String> {
        events_at(log, Instant::now(), notes, refused)
    }

    #[test]
    fn note_that_holds_is_one_event_until_it_ceases() {
        let mut log = EventLog::default();
        assert_eq!(events(&mut log, &[(HOLDS, "a"), (HOLDS, "a")], &[]), ["a"]);
        assert_eq!(events(&mut log, &[(HOLDS, "a"), (HOLDS, "b")], &[]), ["b"]);
        assert_eq!(events(&mut log, &[(HOLDS, "b")], &[]), [""; 0]);
        assert_eq!(events(&mut log, &[(HOLDS, "a")], &[]), ["a"]);
    }

    #[test]
    fn note_that_holds_is_one_event_while_its_number_changes() {
        let mut log = EventLog::default();
        assert_eq!(events(&mut log, &[(HOLDS, "Pod w-0-1; and 4990 more")], &[]), ["Pod w-0-1; and 4990 more"]);
        for more in (0..4_990).rev() {
            assert_eq!(events(&mut log, &[(HOLDS, &format!("Pod w-7-1; and {more} more"))], &[]), [""; 0]);
        }
    }

    #[test]
    fn each_decision_of_one_reason_is_an_event() {
        let mut log = EventLog::default();
        for attempt in 1..=100 {
            let message = format!("recreating all Jobs, attempt {attempt}");
            assert_eq!(events(&mut log, &[(DECIDES, &message)], &[]), [message.as_str()]);
        }
    }

    #[test]
    fn refusal_is_counted_each_time_that_it_has_doubled() {
        let mut log = EventLog::default();
        let counts: Vec<_> = (1..=8).flat_map(|times| events(&mut log, &[], &[("quota", times)])).collect();
        assert_eq!(counts, ["quota", "2", "4", "8"]);
    }

    #[test]
    fn refusals_of_one_reason_are_one_event() {
        let mut log = EventLog::default();
        assert_eq!(events(&mut log, &[], &[("Job a-0", 1), ("Job a-1", 2)]), ["Job a-0; Job a-1"]);
        assert_eq!(events(&mut log, &[], &[("Job a-0", 3), ("Job a-1", 4)]), ["4"]);
    }

    #[test]
    fn jobset_has_burst_of_hundred_events_then_refill() {
        let (mut log, now) = (EventLog::default(), Instant::now());
        let mut sent = |now: Instant, from: u32, number: u32| {
            let texts = (from..from + number).map(|it| format!("restart {it}"));
            texts.filter(|text| events_at(&mut log, now, &[(DECIDES, text)], &[])[0] == *text).count()
        };
        assert_eq!(sent(now, 0, 5_000), BURST as usize);
        assert_eq!(sent(now + REFILL * 7, 5_000, 100), 7);
        assert_eq!(sent(now + Duration::from_hours(24), 9_000, 5_000), BURST as usize);
    }

    #[test]
    fn note_beyond_budget_is_dropped_once_and_sent_later() {
        let (mut log, now) = (EventLog::default(), Instant::now());
        for restart in 0..BURST {
            events_at(&mut log, now, &[(DECIDES, &restart.to_string())], &[]);
        }
        assert_eq!(events_at(&mut log, now, &[(HOLDS, "invalid")], &[]), ["(invalid)"]);
        assert_eq!(events_at(&mut log, now, &[(HOLDS, "invalid")], &[]), [""; 0]);
        assert_eq!(events_at(&mut log, now + REFILL, &[(HOLDS, "invalid")], &[]), ["invalid"]);
        assert_eq!(events_at(&mut log, now + REFILL, &[(HOLDS, "invalid")], &[]), [""; 0]);
    }

    #[test]
    fn event_names_differ_by_jobset_numbers_and_note() {
        let jobset = |uid: &str| {
            let mut jobset = JobSet::default();
            jobset.metadata.uid = Some(uid.to_owned());
            jobset
        };
        let (one, note) = (Stored::default(), |text: &str| Note::warning("Restarting", text.to_owned()));
        let name = event_name(&jobset("a"), one, &note("x"));
        assert_eq!(name, event_name(&jobset("a"), one, &note("x")));
        let others = [
            event_name(&jobset("b"), one, &note("x")),
            event_name(&jobset("a"), Stored { epoch: 2, ..one }, &note("x")),
            event_name(&jobset("a"), one, &note("y")),
        ];
        assert!(!others.contains(&name), "{name} {others:?}");
    }
}
