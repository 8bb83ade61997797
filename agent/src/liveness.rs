//! What one connection of the stream has heard, and whether its relay passes on what the leading controller says.
//!
//! A relay may drop, delay, reorder and repeat statements. Four rules bound what that costs an agent:
//!
//! - A statement counts for the JobSet that it names alone. The leader repeats the state of each JobSet, so a relay that withholds
//!   an epoch has to withhold each statement about the JobSet, and the agent relies on the API server soon.
//! - A statement tells nothing if it comes before the answer to the hello, or is not newer than all before it. It may be one that the
//!   relay has kept: that the JobSet does not restart in place, for one, may no longer hold.
//! - A statement is as old as its time says. The clocks of nodes differ, so the agent compares how much time has passed here and
//!   there since the answer to its hello, which names the nonce and so cannot be an old one.
//! - No statement was made later than it has arrived. One that seems so corrects that comparison: a leader whose clock is ahead of
//!   the last one's gives no relay more time.
//!
//! So an agent hears of a state within twice the silence that it accepts: the answer may be late by one, and all that follows by
//! another. Each leader that follows on the same connection may add one more, and the connection ends within an hour.

use std::time::{Duration, Instant};

use jobset_stream::message::{GroupState, Nonce, Statement};

use crate::channels::ChannelInput;
use crate::decide::JobSetState;

/// The statements on one connection.
#[derive(Clone, Debug)]
pub struct Liveness {
    jobset_uid: String,
    /// That of the hello.
    nonce: Nonce,
    /// A time of the leader in milliseconds, and when a statement of that time had been made at the latest, by the clock of the agent.
    reference: Option<(i64, Instant)>,
    /// The newest time of the leader.
    newest: i64,
    /// When the newest statement must have been made, by the clock of the agent.
    alive_at: Instant,
    silence: Duration,
    /// The number of Pods, and the longest pause, that the newest statement about the JobSet has.
    pub pods: u32,
    pub longest_pause: Option<u32>,
}

impl Liveness {
    /// A connection that begins now, whose hello has this nonce. A relay that passes on nothing about the JobSet with this UID for
    /// `silence` does not count.
    pub fn new(jobset_uid: String, nonce: Nonce, now: Instant, silence: Duration) -> Self {
        let (reference, newest, pods, longest_pause) = (None, i64::MIN, 0, None);
        Self { jobset_uid, nonce, reference, newest, alive_at: now, silence, pods, longest_pause }
    }

    /// Takes a statement that the leader has signed. Returns what the channels of the agent have to know: nothing if it is a sign
    /// of life, the answer to another hello, about another JobSet, or may be old. An agent whose hello the relay has changed hears of
    /// another JobSet.
    pub fn hear(&mut self, statement: Statement, now: Instant) -> Option<ChannelInput> {
        let Statement { time, nonce, group, repeats } = statement;
        let is_answer = nonce.as_ref() == Some(&self.nonce);
        let is_for_another = nonce.is_some() && !is_answer;
        if is_for_another || group.as_ref().is_some_and(|group| group.uid != self.jobset_uid) {
            return None;
        }
        let is_new = time > self.newest && (is_answer || self.reference.is_some());
        // A leader of the release before does not repeat states, so its signs of life have to do.
        if group.is_some() || !repeats {
            self.note(time, is_answer && group.is_some(), now);
        }
        let GroupState { uid, synced, deprecated, failed, bypass, pods, pause } = group.filter(|_| is_new)?;
        (self.pods, self.longest_pause) = (pods, pause);
        let state = JobSetState { uid, synced, deprecated, failed, bypass };
        Some(ChannelInput::Statement { is_answer, state })
    }

    /// Takes the time of a statement that counts.
    fn note(&mut self, time: i64, is_answer: bool, now: Instant) {
        if is_answer && self.reference.is_none() {
            self.reference = Some((time, now));
        }
        let Some((reference, at)) = self.reference.filter(|_| time > self.newest) else { return };
        self.newest = time;
        let passed = Duration::from_millis(u64::try_from(time.saturating_sub(reference)).unwrap_or(0));
        let made_at = at.checked_add(passed).unwrap_or(now).min(now);
        if made_at == now {
            self.reference = Some((time, now));
        }
        self.alive_at = self.alive_at.max(made_at);
    }

    /// When the relay no longer counts, unless it passes on another statement.
    pub fn deadline(&self) -> Instant {
        self.alive_at + self.silence
    }
}

#[cfg(test)]
mod tests;
