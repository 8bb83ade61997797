//! Requests that are not made again with every pass: the API server refused them for good, or what they would create is
//! there, and somebody else's. The rest of the JobSet goes on without them. Pure: the clock is an argument.

use std::collections::HashMap;
use std::mem::{Discriminant, discriminant};
use std::time::{Duration, Instant};

use crate::plan::{Action, Note};
use crate::store::Key;

/// Wait after the first refusal; it doubles with each further one.
const FIRST: Duration = Duration::from_secs(1);
/// Longest wait.
const LONGEST: Duration = Duration::from_mins(1);

/// Names one request of a JobSet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Request {
    kind: Discriminant<Action>,
    name: String,
}

impl Request {
    /// The request that an action is.
    pub(super) fn of(action: &Action) -> Self {
        let name = match action {
            Action::CreateJob(job) | Action::ResumeJob { desired: job, .. } => job.metadata.name.as_deref(),
            Action::DeleteJob { name, .. }
            | Action::SuspendJob { name, .. }
            | Action::ResizeJob { name, .. }
            | Action::DeletePod { name, .. } => Some(name.as_str()),
            Action::CreateService(service) => service.metadata.name.as_deref(),
            Action::CreateClaim(claim) => claim.metadata.name.as_deref(),
            Action::DeleteJobSet | Action::DisableInPlaceRestart => None,
        };
        Self { kind: discriminant(action), name: name.unwrap_or_default().to_owned() }
    }
}

#[derive(Debug)]
struct Entry {
    until: Instant,
    refusals: u32,
    /// What the user was told, which holds until the request is made again.
    note: Option<Note>,
}

#[derive(Debug, Default)]
struct OfJobSet {
    generation: Option<i64>,
    entries: HashMap<Request, Entry>,
}

/// The postponed requests of all JobSets.
#[derive(Debug, Default)]
pub(super) struct Postponed(HashMap<Key, OfJobSet>);

impl Postponed {
    /// Takes the requests out that are not due yet; when the first of them is. An edited JobSet has none: the edit may be
    /// what mends them.
    pub(super) fn withhold(
        &mut self,
        key: &Key,
        generation: Option<i64>,
        actions: &mut Vec<Action>,
        now: Instant,
    ) -> Option<Instant> {
        let of_jobset = self.0.get_mut(key)?;
        if of_jobset.generation != generation {
            self.0.remove(key);
            return None;
        }
        // What is not planned any more needs no memory.
        let planned: std::collections::HashSet<Request> = actions.iter().map(Request::of).collect();
        of_jobset.entries.retain(|request, _| planned.contains(request));
        let entries = &of_jobset.entries;
        actions.retain(|action| entries.get(&Request::of(action)).is_none_or(|entry| entry.until <= now));
        let next = entries.values().map(|entry| entry.until).filter(|until| now < *until).min();
        if entries.is_empty() {
            self.0.remove(key);
        }
        next
    }

    /// The request was refused; when it is due again.
    pub(super) fn refused(
        &mut self,
        key: &Key,
        generation: Option<i64>,
        request: Request,
        note: Option<Note>,
        now: Instant,
    ) -> Instant {
        let of_jobset = self.0.entry(key.clone()).or_default();
        of_jobset.generation = generation;
        let refusals = of_jobset.entries.get(&request).map_or(0, |entry| entry.refusals);
        let until = now + FIRST.saturating_mul(1 << refusals.min(20)).min(LONGEST);
        of_jobset.entries.insert(request, Entry { until, refusals: refusals + 1, note });
        until
    }

    /// What it would create is somebody else's, which is as good as long as it is there; when to look again.
    pub(super) fn provided(&mut self, key: &Key, generation: Option<i64>, request: Request, now: Instant) -> Instant {
        let of_jobset = self.0.entry(key.clone()).or_default();
        of_jobset.generation = generation;
        let until = now + LONGEST;
        of_jobset.entries.insert(request, Entry { until, refusals: 0, note: None });
        until
    }

    /// What still holds of what the user was told.
    pub(super) fn notes(&self, key: &Key) -> impl Iterator<Item = Note> {
        self.0.get(key).into_iter().flat_map(|of_jobset| of_jobset.entries.values()).filter_map(|e| e.note.clone())
    }

    /// The JobSet is gone.
    pub(super) fn forget(&mut self, key: &Key) {
        self.0.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key { namespace: "default".to_owned(), name: "train".to_owned() }
    }

    fn delete(name: &str) -> Action {
        Action::DeleteJob { name: name.to_owned(), uid: String::new() }
    }

    fn note() -> Note {
        Note { warning: true, reason: "Refused", message: String::new() }
    }

    /// What is left of a plan of two requests, and when the withheld ones are due, in seconds.
    fn left(postponed: &mut Postponed, generation: i64, start: Instant, second: u64) -> (usize, Option<u64>) {
        let mut actions = vec![delete("a"), delete("b")];
        let now = start + Duration::from_secs(second);
        let due = postponed.withhold(&key(), Some(generation), &mut actions, now);
        (actions.len(), due.map(|due| due.duration_since(start).as_secs()))
    }

    #[test]
    fn a_refused_request_waits_ever_longer_while_others_are_made() {
        let (mut postponed, now) = (Postponed::default(), Instant::now());
        assert_eq!(left(&mut postponed, 1, now, 0), (2, None));
        postponed.refused(&key(), Some(1), Request::of(&delete("a")), Some(note()), now);
        assert_eq!(left(&mut postponed, 1, now, 0), (1, Some(1)));
        assert_eq!(postponed.notes(&key()).collect::<Vec<_>>(), [note()]);
        assert_eq!(left(&mut postponed, 1, now, 1), (2, None));
        let later = now + Duration::from_secs(1);
        postponed.refused(&key(), Some(1), Request::of(&delete("a")), Some(note()), later);
        assert_eq!(left(&mut postponed, 1, now, 1), (1, Some(3)));
        for _ in 0..40 {
            postponed.refused(&key(), Some(1), Request::of(&delete("a")), None, now);
        }
        assert_eq!(left(&mut postponed, 1, now, 0), (1, Some(60)));
    }

    #[test]
    fn an_edited_jobset_is_tried_at_once() {
        let (mut postponed, now) = (Postponed::default(), Instant::now());
        postponed.refused(&key(), Some(1), Request::of(&delete("a")), None, now);
        assert_eq!(left(&mut postponed, 2, now, 0), (2, None));
    }

    #[test]
    fn what_somebody_else_provides_is_looked_for_once_a_minute() {
        let (mut postponed, now) = (Postponed::default(), Instant::now());
        postponed.provided(&key(), Some(1), Request::of(&delete("b")), now);
        assert_eq!(left(&mut postponed, 1, now, 59), (1, Some(60)));
        assert_eq!(left(&mut postponed, 1, now, 60), (2, None));
    }

    #[test]
    fn what_is_not_planned_any_more_begins_anew() {
        let (mut postponed, now) = (Postponed::default(), Instant::now());
        postponed.refused(&key(), Some(1), Request::of(&delete("a")), None, now);
        postponed.withhold(&key(), Some(1), &mut vec![delete("b")], now);
        assert_eq!(left(&mut postponed, 1, now, 0), (2, None));
        assert!(postponed.0.is_empty());
    }
}
