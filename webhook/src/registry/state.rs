//! What a connection does, as far as it matters to others.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::limits::Limits;

/// What a connection does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It has not asked for anything yet: the handshake, or what comes before the first request.
    Greeting(Instant),
    /// A part of a request is still to come, or of an answer to be taken; of the oldest since then.
    Moving(Instant),
    /// At least one request has come as a whole, and is not answered.
    Working,
    /// All requests are answered, the last one then.
    Idle(Instant),
}

impl Phase {
    /// How easily it can be missed, the least first; `None` where the answer to a whole request would be lost.
    fn rank(self, patience: Duration, now: Instant) -> Option<(u8, Instant)> {
        match self {
            Self::Greeting(since) => Some((0, since)),
            Self::Moving(since) if since + patience < now => Some((1, since)),
            Self::Idle(since) => Some((2, since)),
            Self::Moving(since) => Some((3, since)),
            Self::Working => None,
        }
    }
}

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Its head is here; the body comes, since then.
    Coming(Instant),
    /// It is here.
    Working,
    /// Its answer goes, since then.
    Going(Instant),
}

/// The requests of a connection.
#[derive(Debug)]
pub(super) struct State {
    /// When it was accepted, or its last request answered.
    since: Instant,
    /// Whether there ever was a request.
    asked: bool,
    /// Since when the rest of a head is awaited.
    head: Option<Instant>,
    /// Requests by the order in which they began.
    requests: BTreeMap<u64, Stage>,
    next: u64,
}

impl State {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, asked: false, head: None, requests: BTreeMap::new(), next: 0 }
    }

    pub(super) fn phase(&self) -> Phase {
        match self.moving().min() {
            _ if self.is_working() => Phase::Working,
            _ if !self.asked => Phase::Greeting(self.since),
            Some(since) => Phase::Moving(since),
            None => Phase::Idle(self.since),
        }
    }

    /// Whether there are requests that have come as a whole and are not answered.
    pub(super) fn is_working(&self) -> bool {
        self.requests.values().any(|it| *it == Stage::Working)
    }

    /// Whether nobody waits for it: no request is here or on its way, and no answer.
    fn is_idle(&self) -> bool {
        self.head.is_none() && self.requests.is_empty()
    }

    /// When it may be closed that was told to end, for all that is on its way: `linger` after its last answer, which the
    /// kernel may not have yet. `None` while an answer is awaited.
    pub(super) fn end_of_work(&self, linger: Duration) -> Option<Instant> {
        (!self.is_working()).then(|| self.since + linger)
    }

    /// The same, and nothing is on its way either.
    pub(super) fn end_of_all(&self, linger: Duration) -> Option<Instant> {
        self.is_idle().then(|| self.since + linger)
    }

    /// Since when each head, body and answer has been on its way.
    fn moving(&self) -> impl Iterator<Item = Instant> {
        self.head.into_iter().chain(self.requests.values().filter_map(|it| match it {
            Stage::Coming(since) | Stage::Going(since) => Some(*since),
            Stage::Working => None,
        }))
    }

    /// Bytes have come; whether they begin a head.
    pub(super) fn hear(&mut self, now: Instant) -> bool {
        let begins = self.is_idle();
        if begins {
            self.head = Some(now);
        }
        begins
    }

    /// The head of a request is whole.
    pub(super) fn begin(&mut self, now: Instant) -> u64 {
        let id = self.next;
        self.next = id.wrapping_add(1);
        (self.asked, self.head) = (true, None);
        self.requests.insert(id, Stage::Coming(now));
        id
    }

    /// No more is to come of the request.
    pub(super) fn receive(&mut self, id: u64) {
        if let Some(stage @ Stage::Coming(_)) = self.requests.get_mut(&id) {
            *stage = Stage::Working;
        }
    }

    /// The request is answered, be it before all of it has come, and its answer goes.
    pub(super) fn answer(&mut self, id: u64, now: Instant) {
        self.requests.entry(id).and_modify(|stage| *stage = Stage::Going(now));
    }

    /// The answer is gone, or nobody is to take it.
    pub(super) fn end(&mut self, id: u64, now: Instant) {
        self.requests.remove(&id);
        self.since = now;
    }

    /// When to look at the connection again: if it is still as it is now by then, it has been so for too long.
    pub(super) fn deadline(&self, limits: &Limits, now: Instant) -> Instant {
        let going = self.requests.values().filter_map(|it| match it {
            Stage::Going(since) => Some(*since + limits.body_timeout),
            // Whoever reads them has a limit of its own.
            Stage::Coming(_) | Stage::Working => None,
        });
        let idle = if self.requests.is_empty() { self.since } else { now } + limits.idle_timeout;
        going.chain(self.head.map(|since| since + limits.header_timeout)).min().unwrap_or(idle)
    }
}

/// The connection that makes room. First of those that have not asked for anything yet the oldest, so that a crowd which
/// never does displaces itself; then the one whose request or answer has been on its way for longest, if that is too long; then the
/// one that has been idle for longest; and then the others.
pub(super) fn victim(phases: impl Iterator<Item = (u64, Phase)>, patience: Duration, now: Instant) -> Option<u64> {
    phases.filter_map(|(id, phase)| Some((phase.rank(patience, now)?, id))).min().map(|(_, id)| id)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;
    use rstest::rstest;

    use super::*;

    #[derive(Clone, Copy)]
    enum Is {
        Greeting(u64),
        Moving(u64),
        Working,
        Idle(u64),
    }
    use Is::{Greeting, Idle, Moving, Working};

    /// With the seconds since when, at second 10.
    #[rstest]
    #[case::nobody(&[], None)]
    #[case::all_have_reviews_in_progress(&[Working, Working], None)]
    #[case::the_oldest_that_has_not_asked(&[Idle(1), Greeting(5), Greeting(3), Moving(2), Working], Some(2))]
    #[case::the_slowest_request_or_answer(&[Idle(1), Moving(8), Moving(7), Working], Some(2))]
    #[case::the_longest_idle(&[Idle(7), Working, Idle(2), Moving(9)], Some(2))]
    #[case::a_request_that_has_just_begun(&[Moving(10), Working, Moving(9)], Some(2))]
    fn whoever_can_be_missed_makes_room(#[case] connections: &[Is], #[case] expected: Option<u64>) {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let phases = connections.iter().map(|it| match *it {
            Greeting(since) => Phase::Greeting(at(since)),
            Moving(since) => Phase::Moving(at(since)),
            Working => Phase::Working,
            Idle(since) => Phase::Idle(at(since)),
        });
        assert_eq!(victim((0..).zip(phases), Duration::from_secs(1), at(10)), expected);
    }

    #[test]
    fn a_connection_goes_from_head_to_body_to_work_to_idle() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut state = State::new(start);
        assert!(state.hear(at(1)) && !state.hear(at(2)));
        assert_eq!(state.phase(), Phase::Greeting(start), "it has not asked");
        let (first, second) = (state.begin(at(3)), state.begin(at(4)));
        assert_eq!(state.phase(), Phase::Moving(at(3)));
        assert!(!state.hear(at(5)), "this is of the bodies");
        state.receive(first);
        assert_eq!(state.phase(), Phase::Working);
        state.answer(first, at(6));
        assert_eq!(state.phase(), Phase::Moving(at(4)), "the oldest that moves");
        state.answer(second, at(7));
        state.receive(second);
        assert_eq!(state.phase(), Phase::Moving(at(6)), "it was answered before it had come");
        state.end(first, at(7));
        assert_eq!(state.phase(), Phase::Moving(at(7)));
        state.end(second, at(7));
        assert_eq!(state.phase(), Phase::Idle(at(7)));
        assert!(state.hear(at(8)));
        assert_eq!(state.phase(), Phase::Moving(at(8)));
    }

    #[test]
    fn each_time_runs_while_what_it_is_for_is_awaited() {
        let limits = crate::args::Args::parse_from(["jobset-webhook", "--namespace=ns"]).limits;
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut state = State::new(start);
        state.hear(at(1));
        assert_eq!(state.deadline(&limits, at(2)), at(6));
        let id = state.begin(at(2));
        assert_eq!(state.deadline(&limits, at(3)), at(183));
        state.answer(id, at(4));
        assert_eq!(state.deadline(&limits, at(5)), at(9));
        state.end(id, at(4));
        assert_eq!(state.deadline(&limits, at(100)), at(184));
        state.hear(at(120));
        assert_eq!(state.deadline(&limits, at(121)), at(125));
    }
}
