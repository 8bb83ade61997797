//! How long a worker may make no progress.

use std::time::Duration;

/// `auto`: as many times the longest pause.
const TIMES: u32 = 10;
/// `auto`: the shortest limit.
const LEAST: Duration = Duration::from_mins(1);
/// A pause is much longer than a step if it is as many times as long.
const MUCH_LONGER: u32 = 10;

/// For how long a worker may make no progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallAfter {
    /// For ever: nobody has asked.
    Never,
    /// As the pauses that were survived say.
    Auto,
    After(Duration),
}

/// The limits of a JobSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StallLimits {
    pub after: StallAfter,
    /// The limit before the first step of an epoch, and in a phase that gives none.
    pub first: Duration,
}

/// The pauses between steps that were survived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pauses {
    /// The longest, of this worker or of another of the JobSet.
    pub longest: Duration,
    /// The longest of this agent's worker in a phase that it has declared.
    pub declared: Duration,
    /// The time that steps took, pauses included.
    pub stepped: Duration,
    /// Number of those steps.
    pub steps: u32,
}

impl Pauses {
    /// Whether the worker declares the phases in which it pauses: it has declared one that took much longer than a step.
    fn are_declared(&self) -> bool {
        self.steps > 0 && self.declared >= self.stepped / self.steps * MUCH_LONGER && !self.declared.is_zero()
    }
}

impl StallLimits {
    /// The limit in a phase. `None` if there is none.
    ///
    /// With `auto`, a worker that declares no phases may pause at any time: a checkpoint, an evaluation. Its limit is never below
    /// `first`, because short pauses say nothing about the longest one.
    pub fn limit(&self, pauses: &Pauses, phase: Phase) -> Option<Duration> {
        let steps = match self.after {
            StallAfter::Never => return None,
            StallAfter::After(after) => after,
            StallAfter::Auto => {
                let least = if pauses.are_declared() { LEAST } else { self.first };
                pauses.longest.saturating_mul(TIMES).max(least)
            }
        };
        Some(match phase {
            Phase::Limited(limit) => limit,
            Phase::Unlimited => steps.max(self.first),
            Phase::First => self.first,
            Phase::Steps => steps,
        })
    }
}

/// What a worker does, as far as its limit depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It has made no step yet.
    First,
    Steps,
    /// A phase of which it has said how long it may last.
    Limited(Duration),
    /// Another phase.
    Unlimited,
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    const AUTO: StallAfter = StallAfter::Auto;

    fn after(seconds: u64) -> StallAfter {
        StallAfter::After(Duration::from_secs(seconds))
    }

    fn limited(seconds: u64) -> Phase {
        Phase::Limited(Duration::from_secs(seconds))
    }

    /// Steps of one second; the longest pause, and the longest declared one, in seconds.
    #[rstest]
    #[case::fixed(after(90), 600, 0, Phase::Steps, Some(90))]
    #[case::fixed_before_first_step(after(90), 0, 0, Phase::First, Some(1800))]
    #[case::fixed_in_phase(after(90), 0, 0, Phase::Unlimited, Some(1800))]
    #[case::fixed_above_first(after(7200), 0, 0, Phase::Unlimited, Some(7200))]
    #[case::phase_with_limit(after(90), 0, 0, limited(3600), Some(3600))]
    #[case::phase_with_short_limit(AUTO, 600, 600, limited(5), Some(5))]
    #[case::auto_at_first(AUTO, 0, 0, Phase::Steps, Some(1800))]
    #[case::auto_before_first_step(AUTO, 600, 600, Phase::First, Some(1800))]
    #[case::auto_noise(AUTO, 15, 0, Phase::Steps, Some(1800))]
    #[case::auto_short_declared(AUTO, 9, 9, Phase::Steps, Some(1800))]
    #[case::auto_declared(AUTO, 20, 20, Phase::Steps, Some(200))]
    #[case::auto_least(AUTO, 5, 5, Phase::Steps, Some(1800))]
    #[case::auto_survived(AUTO, 600, 0, Phase::Steps, Some(6000))]
    #[case::auto_survived_in_phase(AUTO, 600, 0, Phase::Unlimited, Some(6000))]
    #[case::auto_declared_in_phase(AUTO, 20, 20, Phase::Unlimited, Some(1800))]
    #[case::never(StallAfter::Never, 600, 600, limited(5), None)]
    fn limit_follows_from_pauses_and_phase(
        #[case] after: StallAfter,
        #[case] longest: u64,
        #[case] declared: u64,
        #[case] phase: Phase,
        #[case] expected: Option<u64>,
    ) {
        let limits = StallLimits { after, first: Duration::from_mins(30) };
        let seconds = Duration::from_secs;
        let pauses =
            Pauses { longest: seconds(longest), declared: seconds(declared), stepped: seconds(100), steps: 100 };
        assert_eq!(limits.limit(&pauses, phase), expected.map(seconds));
    }

    #[test]
    fn auto_with_short_steps_is_a_minute_at_least() {
        let limits = StallLimits { after: AUTO, first: Duration::from_mins(30) };
        let declared = Duration::from_secs(2);
        let pauses = Pauses { longest: declared, declared, stepped: Duration::from_secs(10), steps: 100 };
        assert_eq!(limits.limit(&pauses, Phase::Steps), Some(LEAST));
    }
}
