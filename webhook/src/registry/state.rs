//! The state of one connection, from which its time limits and its rank for eviction follow.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use crate::limits::Limits;

/// Phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Before the first request: the handshake, or silence after it. Since the connection was accepted.
    Greeting(Instant),
    /// A request arrives, or an answer is being sent. Since the oldest of them began.
    Moving(Instant),
    /// At least one request has arrived as a whole and has no answer yet.
    Working,
    /// All requests have been answered. Since the last answer.
    Idle(Instant),
}

impl Phase {
    /// Rank for eviction, the first to go first; `None` if the review of a whole request would be lost.
    fn rank(self, slow_after: Duration, now: Instant) -> Option<(u8, Instant)> {
        match self {
            Self::Greeting(since) => Some((0, since)),
            Self::Moving(since) if since + slow_after < now => Some((1, since)),
            Self::Idle(since) => Some((2, since)),
            Self::Moving(since) => Some((3, since)),
            Self::Working => None,
        }
    }
}

/// Progress of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The body has been arriving since then.
    Coming(Instant),
    /// The request has arrived as a whole.
    Working,
    /// The answer has been on its way since then.
    Going(Instant),
}

/// The requests of a connection.
#[derive(Debug)]
pub(super) struct State {
    /// When the connection was accepted, or its last request answered.
    since: Instant,
    /// Whether there has been a request.
    asked: bool,
    /// When a head began that has not ended yet.
    head: Option<Instant>,
    /// Requests in the order in which they began.
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

    /// Whether a request has arrived as a whole and has no answer yet.
    pub(super) fn is_working(&self) -> bool {
        self.requests.values().any(|it| *it == Stage::Working)
    }

    /// Whether neither a request nor an answer is on its way.
    fn is_idle(&self) -> bool {
        self.head.is_none() && self.requests.is_empty()
    }

    /// When an evicted connection may be closed, although requests may be arriving: `linger` after its last answer, which the
    /// kernel may not have sent yet. `None` while a review is in progress.
    pub(super) fn end_of_work(&self, linger: Duration) -> Option<Instant> {
        (!self.is_working()).then(|| self.since + linger)
    }

    /// The same for a connection that ends with the server: `None` also while a request or an answer is on its way.
    pub(super) fn end_of_all(&self, linger: Duration) -> Option<Instant> {
        self.is_idle().then(|| self.since + linger)
    }

    /// When each head, body and answer that is on its way began.
    fn moving(&self) -> impl Iterator<Item = Instant> {
        self.head.into_iter().chain(self.requests.values().filter_map(|it| match it {
            Stage::Coming(since) | Stage::Going(since) => Some(*since),
            Stage::Working => None,
        }))
    }

    /// Bytes have arrived. Returns whether they begin a head.
    pub(super) fn hear(&mut self, now: Instant) -> bool {
        let begins = self.is_idle();
        if begins {
            self.head = Some(now);
        }
        begins
    }

    /// The head of a request has arrived.
    pub(super) fn begin(&mut self, now: Instant) -> u64 {
        let id = self.next;
        self.next = id.wrapping_add(1);
        (self.asked, self.head) = (true, None);
        self.requests.insert(id, Stage::Coming(now));
        id
    }

    /// The request has arrived as a whole.
    pub(super) fn receive(&mut self, id: u64) {
        if let Some(stage @ Stage::Coming(_)) = self.requests.get_mut(&id) {
            *stage = Stage::Working;
        }
    }

    /// The answer is being sent, perhaps before the request has arrived as a whole.
    pub(super) fn answer(&mut self, id: u64, now: Instant) {
        self.requests.entry(id).and_modify(|stage| *stage = Stage::Going(now));
    }

    /// The answer has been sent, or given up.
    pub(super) fn end(&mut self, id: u64, now: Instant) {
        self.requests.remove(&id);
        self.since = now;
    }

    /// When the connection exceeds a time limit, unless its state changes before.
    pub(super) fn deadline(&self, limits: &Limits, now: Instant) -> Instant {
        let going = self.requests.values().filter_map(|it| match it {
            Stage::Going(since) => Some(*since + limits.body_timeout),
            // The reader of the body has a limit of its own.
            Stage::Coming(_) | Stage::Working => None,
        });
        let idle = if self.requests.is_empty() { self.since } else { now } + limits.idle_timeout;
        going.chain(self.head.map(|since| since + limits.header_timeout)).min().unwrap_or(idle)
    }
}

/// The connection to evict. First the oldest without a request, so that a flood of such connections evicts itself. Then the one whose
/// request or answer has been on its way longest, if that is slow. Then the one that has been idle longest, and last the others.
pub(super) fn victim(phases: impl Iterator<Item = (u64, Phase)>, slow_after: Duration, now: Instant) -> Option<u64> {
    phases.filter_map(|(id, phase)| Some((phase.rank(slow_after, now)?, id))).min().map(|(_, id)| id)
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
    fn victim_is_the_connection_that_is_needed_least(#[case] connections: &[Is], #[case] expected: Option<u64>) {
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
    fn connection_goes_from_head_to_body_to_work_to_idle() {
        let start = Instant::now();
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut state = State::new(start);
        assert!(state.hear(at(1)) && !state.hear(at(2)));
        assert_eq!(state.phase(), Phase::Greeting(start), "there was no request");
        let (first, second) = (state.begin(at(3)), state.begin(at(4)));
        assert_eq!(state.phase(), Phase::Moving(at(3)));
        assert!(!state.hear(at(5)), "these bytes are of the bodies");
        state.receive(first);
        assert_eq!(state.phase(), Phase::Working);
        state.answer(first, at(6));
        assert_eq!(state.phase(), Phase::Moving(at(4)), "since the oldest began");
        state.answer(second, at(7));
        state.receive(second);
        assert_eq!(state.phase(), Phase::Moving(at(6)), "it was answered before it had arrived");
        state.end(first, at(7));
        assert_eq!(state.phase(), Phase::Moving(at(7)));
        state.end(second, at(7));
        assert_eq!(state.phase(), Phase::Idle(at(7)));
        assert!(state.hear(at(8)));
        assert_eq!(state.phase(), Phase::Moving(at(8)));
    }

    #[test]
    fn deadline_is_that_of_the_slowest_part() {
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
