//! How long a worker may make no progress.

use std::time::Duration;

/// `auto`: as many times the longest pause.
const TIMES: u32 = 10;
/// `auto`: the shortest limit.
const LEAST: Duration = Duration::from_mins(1);
/// A pause is much longer than a step if it is as many times as long.
const MUCH_LONGER: u32 = 10;
/// `auto`: for how long a worker has to step without a long pause that it has not declared, to be taken for one that declares them all.
/// Programs evaluate and write checkpoints once a day, if not more often.
const LONG_REGULAR: Duration = Duration::from_hours(24);
/// The limit before the first step, unless somebody has asked for another one.
const DEFAULT_FIRST: Duration = Duration::from_mins(30);

/// For how long a worker may make no progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StallAfter {
    /// For ever: nobody has asked.
    Never,
    /// As the pauses that were survived say.
    Auto,
    After(Duration),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StallLimits {
    pub after: StallAfter,
    /// The limit before the first step of an epoch, and in a phase that gives none, if somebody has asked for one.
    pub first: Option<Duration>,
}

/// The pauses that were survived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pauses {
    /// The longest between steps, of this worker or of another of the JobSet.
    pub longest: Duration,
    /// The longest of this agent's workers before their first step.
    pub first: Duration,
    /// The longest of this worker that was taken for a stall.
    pub stalled: Duration,
    /// The longest of this agent's workers in a phase that they have declared.
    pub declared: Duration,
    /// For how long this agent's workers have stepped since one paused for much longer than a step, and had not declared why.
    pub regular: Duration,
    /// The time that steps took, pauses included.
    pub stepped: Duration,
    /// Number of those steps.
    pub steps: u32,
}

impl Pauses {
    /// Whether a pause is much longer than so many steps, as far as this worker has shown how long they are.
    pub fn is_long(&self, pause: Duration, steps: u32) -> bool {
        let step = self.stepped.checked_div(self.steps).filter(|step| !step.is_zero());
        step.is_some_and(|step| pause >= step.saturating_mul(steps.saturating_mul(MUCH_LONGER)))
    }

    /// Whether workers declare all phases in which they pause: they have declared one that took much longer than a step, and paused for
    /// no other reason for long enough.
    fn are_declared(&self) -> bool {
        self.is_long(self.declared, 1) && self.regular >= LONG_REGULAR
    }
}

impl StallLimits {
    /// The limit in a phase. `None` if there is none.
    ///
    /// With `auto`, a worker that does not declare all its phases may pause at any time: a checkpoint, an evaluation. Its limit is never
    /// below that of the first step, because short pauses say nothing about the longest one.
    ///
    /// A worker that goes on after it was taken for stalled has pauses as long as that. It may take twice as long, so that it is not
    /// taken for stalled at each of them; but not longer than the first step may take, however long it was held up once.
    pub fn limit(&self, pauses: &Pauses, phase: Phase) -> Option<Duration> {
        let first = self.first.unwrap_or(DEFAULT_FIRST);
        let steps = match self.after {
            StallAfter::Never => return None,
            StallAfter::After(after) => after,
            StallAfter::Auto => {
                let least = if pauses.are_declared() { LEAST } else { first };
                pauses.longest.saturating_mul(TIMES).max(least)
            }
        };
        let limit = match phase {
            Phase::Limited(limit) => limit,
            Phase::Unlimited => steps.max(first),
            Phase::First => self.first.unwrap_or_else(|| first.max(steps).max(pauses.first.saturating_mul(2))),
            Phase::Steps => steps,
        };
        Some(limit.max(pauses.stalled.saturating_mul(2).min(first)))
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

    const NO_PAUSES: Pauses = Pauses {
        longest: Duration::ZERO,
        first: Duration::ZERO,
        stalled: Duration::ZERO,
        declared: Duration::ZERO,
        regular: Duration::ZERO,
        stepped: Duration::from_secs(100),
        steps: 100,
    };

    /// Steps of one second; the longest pause, and the longest declared one, in seconds, of a worker that declares all that are long.
    #[rstest]
    #[case::fixed(after(90), 600, 0, Phase::Steps, Some(90))]
    #[case::fixed_before_first_step(after(90), 0, 0, Phase::First, Some(1800))]
    #[case::fixed_above_first_before_first_step(after(7200), 0, 0, Phase::First, Some(7200))]
    #[case::fixed_in_phase(after(90), 0, 0, Phase::Unlimited, Some(1800))]
    #[case::fixed_above_first(after(7200), 0, 0, Phase::Unlimited, Some(7200))]
    #[case::phase_with_limit(after(90), 0, 0, limited(3600), Some(3600))]
    #[case::phase_with_short_limit(AUTO, 600, 600, limited(5), Some(5))]
    #[case::auto_at_first(AUTO, 0, 0, Phase::Steps, Some(1800))]
    #[case::auto_before_first_step(AUTO, 60, 60, Phase::First, Some(1800))]
    #[case::auto_survived_before_first_step(AUTO, 600, 600, Phase::First, Some(6000))]
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
        let limits = StallLimits { after, first: None };
        let seconds = Duration::from_secs;
        let (longest, declared) = (seconds(longest), seconds(declared));
        let pauses = Pauses { longest, declared, regular: LONG_REGULAR, ..NO_PAUSES };
        assert_eq!(limits.limit(&pauses, phase), expected.map(seconds));
        let asked = StallLimits { first: Some(seconds(600)), ..limits };
        if expected.is_some() && phase == Phase::First {
            assert_eq!(asked.limit(&pauses, phase), Some(seconds(600)), "as somebody has asked");
        }
    }

    #[test]
    fn auto_with_short_steps_is_a_minute_at_least() {
        let limits = StallLimits { after: AUTO, first: None };
        let declared = Duration::from_secs(2);
        let stepped = Duration::from_secs(10);
        let pauses = Pauses { longest: declared, declared, regular: LONG_REGULAR, stepped, ..NO_PAUSES };
        assert_eq!(limits.limit(&pauses, Phase::Steps), Some(LEAST));
    }

    #[test]
    fn auto_is_long_until_a_day_without_undeclared_pause() {
        let limits = StallLimits { after: AUTO, first: None };
        let (longest, declared) = (Duration::from_secs(15), Duration::from_secs(15));
        let limit = |regular| limits.limit(&Pauses { longest, declared, regular, ..NO_PAUSES }, Phase::Steps);
        assert_eq!(limit(Duration::from_hours(23)), Some(DEFAULT_FIRST));
        assert_eq!(limit(LONG_REGULAR), Some(Duration::from_secs(150)));
    }

    #[test]
    fn survived_first_pause_makes_default_limit_longer() {
        let pauses = Pauses { first: Duration::from_mins(40), ..NO_PAUSES };
        let limit = |first, phase| StallLimits { after: after(90), first }.limit(&pauses, phase);
        assert_eq!(limit(None, Phase::First), Some(Duration::from_mins(80)));
        assert_eq!(limit(None, Phase::Steps), Some(Duration::from_secs(90)));
        let asked = Some(Duration::from_mins(20));
        assert_eq!(limit(asked, Phase::First), asked);
    }

    #[rstest]
    #[case::short(6, Phase::Steps, 12)]
    #[case::in_phase(6, limited(5), 12)]
    #[case::long(32_400, Phase::Steps, 1800)]
    #[case::none(0, Phase::Steps, 5)]
    fn survived_stall_makes_limit_longer_up_to_first(
        #[case] stalled: u64,
        #[case] phase: Phase,
        #[case] expected: u64,
    ) {
        let pauses = Pauses { stalled: Duration::from_secs(stalled), ..NO_PAUSES };
        let limit = StallLimits { after: after(5), first: None }.limit(&pauses, phase);
        assert_eq!(limit, Some(Duration::from_secs(expected)));
    }
}
