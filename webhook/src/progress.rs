//! How far a connection has come, from which its time limits and its rank follow. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use jobset_program::server::places::Rank;
use tokio::time::Instant;

use crate::limits::Limits;

/// How long a connection that is to end has after its last answer, which the kernel may not have sent yet.
const LINGER: Duration = Duration::from_secs(1);

/// Whether a connection is to end, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It goes on.
    No,
    /// It has exceeded a limit, or made room: a request that has arrived is still answered.
    Evicted(Instant),
    /// The service stops: a request that is arriving is answered, too.
    Stopping(Instant),
}

/// Progress of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The body is arriving.
    Coming,
    /// The request has arrived as a whole.
    Working,
    /// The answer has been on its way since then.
    Going(Instant),
}

/// The requests of a connection.
#[derive(Debug)]
pub(crate) struct Progress {
    /// When the connection was accepted, or its last request answered.
    since: Instant,
    /// When a head began that has not ended yet.
    head: Option<Instant>,
    /// Requests in the order in which they began.
    requests: BTreeMap<u64, Stage>,
    begun: u64,
    has_answered: bool,
}

impl Progress {
    pub(crate) fn new(now: Instant) -> Self {
        Self { since: now, head: None, requests: BTreeMap::new(), begun: 0, has_answered: false }
    }

    /// In which order the connection makes room.
    pub(crate) fn rank(&self) -> Rank {
        match self.has_answered {
            _ if self.is_working() => Rank::Served,
            true => Rank::Known,
            false => Rank::Stranger,
        }
    }

    pub(crate) fn has_begun(&self) -> bool {
        self.begun > 0
    }

    /// Whether a request has arrived as a whole and has no answer yet.
    fn is_working(&self) -> bool {
        self.requests.values().any(|it| *it == Stage::Working)
    }

    /// Whether neither a request nor an answer is on its way.
    fn is_idle(&self) -> bool {
        self.head.is_none() && self.requests.is_empty()
    }

    /// Bytes have arrived. Returns whether they begin a head.
    pub(crate) fn hear(&mut self, now: Instant) -> bool {
        let begins = self.is_idle();
        if begins {
            self.head = Some(now);
        }
        begins
    }

    /// The head of a request has arrived.
    pub(crate) fn begin(&mut self) -> u64 {
        self.begun += 1;
        self.head = None;
        self.requests.insert(self.begun, Stage::Coming);
        self.begun
    }

    /// The request has arrived as a whole.
    pub(crate) fn receive(&mut self, id: u64) {
        if let Some(stage @ Stage::Coming) = self.requests.get_mut(&id) {
            *stage = Stage::Working;
        }
    }

    /// The answer is being sent, perhaps before the request has arrived as a whole.
    pub(crate) fn answer(&mut self, id: u64, now: Instant) {
        self.has_answered = true;
        self.requests.entry(id).and_modify(|stage| *stage = Stage::Going(now));
    }

    /// The answer has been sent, or given up.
    pub(crate) fn end(&mut self, id: u64, now: Instant) {
        self.requests.remove(&id);
        self.since = now;
    }

    /// When the connection exceeds a time limit, or has had its time to end, unless something changes before.
    pub(crate) fn deadline(&self, ending: Ending, limits: &Limits, now: Instant) -> Option<Instant> {
        match ending {
            Ending::No => Some(self.limit(limits, now)),
            Ending::Evicted(at) => (!self.is_working()).then(|| self.since.max(at) + LINGER),
            Ending::Stopping(at) => self.is_idle().then(|| self.since.max(at) + LINGER),
        }
    }

    fn limit(&self, limits: &Limits, now: Instant) -> Instant {
        let going = self.requests.values().filter_map(|it| match it {
            Stage::Going(since) => Some(*since + limits.body_timeout),
            // The reader of the body has a limit of its own.
            Stage::Coming | Stage::Working => None,
        });
        let idle = if self.requests.is_empty() { self.since } else { now } + limits.idle_timeout;
        going.chain(self.head.map(|since| since + limits.header_timeout)).min().unwrap_or(idle)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    fn limits() -> Limits {
        crate::args::Args::parse_from(["jobset-webhook", "--namespace=ns"]).limits
    }

    #[test]
    fn connection_is_stranger_until_answered_and_served_while_it_waits() {
        let now = Instant::now();
        let mut progress = Progress::new(now);
        assert!(progress.hear(now) && !progress.hear(now));
        let (first, second) = (progress.begin(), progress.begin());
        assert!(!progress.hear(now), "these bytes are of the bodies");
        assert_eq!(progress.rank(), Rank::Stranger);
        progress.receive(first);
        assert_eq!(progress.rank(), Rank::Served);
        progress.answer(first, now);
        assert_eq!(progress.rank(), Rank::Known);
        progress.answer(second, now);
        progress.receive(second);
        assert_eq!(progress.rank(), Rank::Known, "it was answered before it had arrived");
    }

    #[test]
    fn deadline_is_that_of_the_slowest_part() {
        let (limits, start) = (limits(), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        let mut progress = Progress::new(start);
        let deadline = |progress: &Progress, seconds| progress.deadline(Ending::No, &limits, at(seconds)).unwrap();
        progress.hear(at(1));
        assert_eq!(deadline(&progress, 2), at(6));
        let id = progress.begin();
        assert_eq!(deadline(&progress, 3), at(183));
        progress.answer(id, at(4));
        assert_eq!(deadline(&progress, 5), at(9));
        progress.end(id, at(4));
        assert_eq!(deadline(&progress, 100), at(184));
        progress.hear(at(120));
        assert_eq!(deadline(&progress, 121), at(125));
    }

    #[test]
    fn evicted_connection_waits_for_reviews_stopping_one_for_all_requests() {
        let (limits, start) = (limits(), Instant::now());
        let mut progress = Progress::new(start);
        let deadlines = |progress: &Progress| {
            [Ending::Evicted(start), Ending::Stopping(start)].map(|it| progress.deadline(it, &limits, start))
        };
        assert_eq!(deadlines(&progress), [Some(start + LINGER); 2]);
        let id = progress.begin();
        assert_eq!(deadlines(&progress), [Some(start + LINGER), None]);
        progress.receive(id);
        assert_eq!(deadlines(&progress), [None, None]);
        let later = start + Duration::from_secs(5);
        progress.answer(id, later);
        progress.end(id, later);
        assert_eq!(deadlines(&progress), [Some(later + LINGER); 2]);
    }
}
