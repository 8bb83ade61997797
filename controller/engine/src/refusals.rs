//! Requests of a JobSet that are not sent with every reconciliation: the API server refused them, or another owner provides what
//! they would create. The rest of the JobSet goes on without them.

mod hangs;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::mem::{Discriminant, discriminant};
use std::time::{Duration, Instant};

use jobset_rules::{Action, Note};

/// Wait after the first refusal; it doubles with each further one.
const FIRST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_mins(1);

/// Names one request of a JobSet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Request {
    /// One action, by its kind and what it is on.
    One(Discriminant<Action>, String),
    /// The creation of all Jobs of this replicatedJob. They have one template, and whatever is wrong with it is wrong
    /// with each of them: a thousand Jobs are not refused one by one.
    Jobs(String),
    /// The release of all failed Pods: a right that is missing is missing for each of them.
    Releases,
}

impl Request {
    pub fn of(action: &Action) -> Self {
        let name: &str = match action {
            Action::CreateJob(job) | Action::ResumeJob { desired: job, .. } => &job.name,
            Action::DeleteJob { name, .. }
            | Action::EndJob { name, .. }
            | Action::SuspendJob { name, .. }
            | Action::ResizeJob { name, .. }
            | Action::DeletePod { name, .. }
            | Action::ReleasePod { name, .. }
            | Action::CreateService { name }
            | Action::CreateClaim { name, .. }
            | Action::CreateRoleBinding { name, .. }
            | Action::FindRefusal { job: name, .. } => name,
            // One question at a time, whichever Pod it is about.
            Action::FindWarning { .. }
            | Action::DeleteJobSet
            | Action::DisableInPlaceRestart(_)
            | Action::AnnotateRestartBudget(_) => "",
        };
        Self::One(discriminant(action), name.to_owned())
    }

    /// The name of what the request is on; that of the replicatedJob if it is the creation of its Jobs.
    pub fn name(&self) -> &str {
        match self {
            Self::One(_, name) | Self::Jobs(name) => name,
            Self::Releases => "",
        }
    }

    pub fn shared(action: &Action) -> Option<Self> {
        match action {
            Action::CreateJob(job) => Some(Self::Jobs(job.replicated_job.clone())),
            Action::ReleasePod { .. } => Some(Self::Releases),
            _ => None,
        }
    }

    pub(super) fn is_kind_of(&self, action: &Action) -> bool {
        matches!(self, Self::One(kind, _) if *kind == discriminant(action))
    }
}

#[derive(Debug)]
struct Refusal {
    until: Instant,
    refusals: u32,
    /// What the Event says, until the request is sent again, and how many refusals in a row had this reason.
    note: Option<(Note, u32)>,
    /// Whether it was not refused, but slow before it failed.
    hangs: bool,
}

/// The requests of one JobSet that wait.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    generation: Option<i64>,
    entries: HashMap<Request, Refusal>,
    /// Requests that failed when they were sent last, for whatever reason.
    failing: HashSet<Request>,
}

impl Refusals {
    /// Takes the requests out that are not due yet; when the first of them is. Those of an edited JobSet are due at once:
    /// the edit may be what mends them. One that many actions share is made again by one of them alone: if that is
    /// accepted, the others follow in the next reconciliation.
    ///
    /// `settled` says that the reconciliation has no status to write. Then it has planned everything, and requests that it
    /// does not plan are forgotten.
    pub(super) fn withhold(
        &mut self,
        generation: Option<i64>,
        actions: &mut Vec<Action>,
        settled: bool,
        now: Instant,
    ) -> Option<Instant> {
        if self.generation != generation {
            self.generation = generation;
            for entry in self.entries.values_mut() {
                (entry.until, entry.refusals) = (now, 0);
            }
        }
        let planned: HashSet<Request> = actions.iter().flat_map(requests).collect();
        self.entries.retain(|request, _| !settled || planned.contains(request));
        self.failing.retain(|request| !settled || planned.contains(request));
        let entries = &self.entries;
        let is_due = |request: Request| entries.get(&request).is_none_or(|entry| entry.until <= now);
        let mut left = representatives(entries, actions);
        let mut speaks = |shared: Request| match left.get_mut(&shared) {
            Some(0) => {
                left.remove(&shared);
                true
            }
            Some(before) => {
                *before -= 1;
                false
            }
            None => !entries.contains_key(&shared),
        };
        actions.retain(|action| requests(action).all(is_due) && Request::shared(action).is_none_or(&mut speaks));
        let withheld = entries.iter().filter(|(request, entry)| now < entry.until && planned.contains(request));
        withheld.map(|(_, entry)| entry.until).min()
    }

    /// Puts requests that failed when they were sent last behind the others, so that they do not keep those from being sent.
    pub(super) fn put_failing_last(&self, actions: &mut [Action]) {
        if !self.failing.is_empty() {
            actions.sort_by_cached_key(|action| self.failing.contains(&Request::of(action)));
        }
    }

    pub(super) fn failed(&mut self, request: Request) {
        self.failing.insert(request);
    }

    /// The request was refused; when it is due again.
    pub(super) fn refused(
        &mut self,
        generation: Option<i64>,
        request: Request,
        note: Option<Note>,
        now: Instant,
    ) -> Instant {
        self.generation = generation;
        let before = self.entries.remove(&request);
        let entry = match before {
            // Not due, and yet made: of a request that several actions share, this is another refusal in the same reconciliation.
            Some(before) if now < before.until => before,
            before => {
                let (refusals, note_before) = before.map_or((0, None), |before| (before.refusals, before.note));
                let until = now + wait(refusals);
                let note = still_true(note_before, note);
                Refusal { until, refusals: refusals + 1, note, hangs: false }
            }
        };
        let until = entry.until;
        self.entries.insert(request, entry);
        until
    }

    /// What it would create is somebody else's, which is as good as long as it is there; when to look again.
    pub(super) fn provided(&mut self, generation: Option<i64>, request: Request, now: Instant) -> Instant {
        self.generation = generation;
        let until = now + LONGEST;
        self.entries.insert(request, Refusal { until, refusals: 0, note: None, hangs: false });
        until
    }

    /// The request was made, and not refused, unless another that shares it was refused in the same reconciliation.
    pub(super) fn accepted(&mut self, request: &Request, now: Instant) {
        self.failing.remove(request);
        if self.entries.get(request).is_some_and(|entry| entry.until <= now) {
            self.entries.remove(request);
        }
    }

    /// The notes of the refusals that still hold, sorted by their messages, each with its number of refusals.
    pub(super) fn notes(&self) -> Vec<(Note, u32)> {
        let entries = self.entries.values();
        let mut notes: Vec<(Note, u32)> = entries.filter_map(|entry| entry.note.clone()).collect();
        notes.sort_unstable_by(|(a, _), (b, _)| a.message.cmp(&b.message));
        notes
    }
}

/// The wait after so many refusals and one more.
fn wait(refusals: u32) -> Duration {
    FIRST.saturating_mul(1 << refusals.min(20)).min(LONGEST)
}

/// Of each request that is to be made again and that several actions share: the index of the one that makes it. Each time
/// it is another, in case that there is something about one of them alone.
fn representatives(entries: &HashMap<Request, Refusal>, actions: &[Action]) -> HashMap<Request, u32> {
    let mut sharers: HashMap<Request, u32> = HashMap::new();
    for shared in actions.iter().filter_map(Request::shared).filter(|shared| entries.contains_key(shared)) {
        *sharers.entry(shared).or_default() += 1;
    }
    let index = |(shared, count): (Request, u32)| {
        let refusals = entries.get(&shared).map_or(0, |entry| entry.refusals);
        (shared, refusals.saturating_sub(1) % count)
    };
    sharers.into_iter().map(index).collect()
}

/// The requests that an action is: its own, and the one that it shares with others.
fn requests(action: &Action) -> impl Iterator<Item = Request> {
    Request::shared(action).into_iter().chain([Request::of(action)])
}

/// The note before, if the same request is refused for the same reason, otherwise the new one. Numbers make no
/// other reason: the use of a quota changes with whatever else uses it, Jobs that are refused as one differ by their
/// index, and nobody wants to hear of each change.
fn still_true(before: Option<(Note, u32)>, now: Option<Note>) -> Option<(Note, u32)> {
    let without_numbers = |note: &Note| note.message.replace(|c: char| c.is_ascii_digit(), "");
    let same =
        |before: &Note, now: &Note| before.reason == now.reason && without_numbers(before) == without_numbers(now);
    match (before, now) {
        (Some((before, times)), Some(now)) if same(&before, &now) => Some((before, times.saturating_add(1))),
        (_, now) => now.map(|now| (now, 1)),
    }
}
