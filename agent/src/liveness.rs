//! Whether the leading controller is alive, by the times of the statements that it signs.
//!
//! The clocks of nodes differ, so the agent compares how much time has passed here and there since the answer to its hello. That
//! answer names the nonce, so it cannot be an old one. A relay that repeats old statements keeps no leader alive.

use std::time::Duration;

use tokio::time::Instant;

/// The signs of life on one connection.
#[derive(Clone, Copy, Debug)]
pub struct Liveness {
    /// When the connection began, or the answer came.
    since: Instant,
    /// Time of the leader in the answer, in milliseconds.
    leader_since: Option<i64>,
    /// The newest time of the leader.
    newest: i64,
    /// When the newest statement must have been made, by the clock of the agent.
    alive_at: Instant,
    silence: Duration,
}

impl Liveness {
    /// A connection that begins now. A leader that gives no sign of life for `silence` does not count.
    pub fn new(now: Instant, silence: Duration) -> Self {
        Self { since: now, leader_since: None, newest: i64::MIN, alive_at: now, silence }
    }

    /// Takes a statement of the leader, made at `time` by its clock in milliseconds.
    pub fn on_statement(&mut self, time: i64, is_answer: bool, now: Instant) {
        if is_answer && self.leader_since.is_none() {
            (self.since, self.leader_since) = (now, Some(time));
        }
        let Some(leader_since) = self.leader_since.filter(|_| time > self.newest) else { return };
        self.newest = time;
        let passed = u64::try_from(time.saturating_sub(leader_since)).unwrap_or(0);
        let made_at = self.since.checked_add(Duration::from_millis(passed)).unwrap_or(now);
        self.alive_at = self.alive_at.max(made_at.min(now));
    }

    /// When the leader no longer counts, unless it gives another sign of life.
    pub fn deadline(&self) -> Instant {
        self.alive_at + self.silence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SILENCE: Duration = Duration::from_secs(10);

    fn after(start: Instant, seconds: u64) -> Instant {
        start + Duration::from_secs(seconds)
    }

    #[test]
    fn statements_extend_the_life_whatever_the_clock_of_the_leader() {
        let start = Instant::now();
        let mut liveness = Liveness::new(start, SILENCE);
        assert_eq!(liveness.deadline(), after(start, 10));
        liveness.on_statement(-5_000, true, after(start, 2));
        assert_eq!(liveness.deadline(), after(start, 12));
        liveness.on_statement(-2_000, false, after(start, 5));
        assert_eq!(liveness.deadline(), after(start, 15));
    }

    #[test]
    fn broadcast_before_the_answer_is_no_sign_of_life() {
        let start = Instant::now();
        let mut liveness = Liveness::new(start, SILENCE);
        liveness.on_statement(7_000, false, after(start, 5));
        assert_eq!(liveness.deadline(), after(start, 10));
    }

    #[test]
    fn statement_that_is_repeated_or_late_keeps_no_leader_alive() {
        let start = Instant::now();
        let mut liveness = Liveness::new(start, SILENCE);
        liveness.on_statement(1_000, true, start);
        liveness.on_statement(1_000, false, after(start, 9));
        assert_eq!(liveness.deadline(), after(start, 10));
        // Made three seconds after the answer, and delivered much later.
        liveness.on_statement(4_000, false, after(start, 9));
        assert_eq!(liveness.deadline(), after(start, 13));
        // A clock that runs ahead does not reach into the future.
        liveness.on_statement(1_000_000, false, after(start, 9));
        assert_eq!(liveness.deadline(), after(start, 19));
    }
}
