//! What follows from readings of a worker's progress.

use std::time::Duration;

use rstest::rstest;

use super::*;

/// What a worker tells, a second at a time: this line once in as many seconds, so often.
type Told = (&'static str, u64, u64);

fn limits(after: StallAfter) -> StallLimits {
    StallLimits { after, first: Duration::from_mins(30) }
}

fn after(seconds: u64) -> StallAfter {
    StallAfter::After(Duration::from_secs(seconds))
}

/// A worker that is read once a second.
struct Follow {
    state: ProgressState,
    now: u64,
    step: i64,
    outputs: Vec<(u64, ProgressOutput)>,
}

impl Follow {
    fn new(after: StallAfter) -> Self {
        let mut state = ProgressState::new(limits(after));
        state.begin(3, Duration::ZERO);
        Self { state, now: 0, step: 0, outputs: Vec::new() }
    }

    /// A second passes, and the worker has told this by then.
    fn second(&mut self, told: Option<&str>) {
        self.now += 1;
        let outputs = self
            .state
            .read(Duration::from_secs(self.now), told.map(|line| (ProgressLine::parse(line), Duration::ZERO)));
        self.outputs.extend(outputs.into_iter().map(|output| (self.now, output)));
    }

    /// `+` in a line stands for the next step.
    fn tell(&mut self, (line, every, times): Told) {
        for _ in 0..times {
            (1..every).for_each(|_| self.second(None));
            self.step += i64::from(line.contains('+'));
            self.second(Some(&line.replace('+', &self.step.to_string())));
        }
    }

    fn silence(&mut self, seconds: u64) {
        (0..seconds).for_each(|_| self.second(None));
    }

    /// When stalls began.
    fn stalls(&self) -> Vec<u64> {
        let is_stall = |output: &ProgressOutput| matches!(output, ProgressOutput::Stalled { .. });
        self.outputs.iter().filter(|(_, output)| is_stall(output)).map(|(at, _)| *at).collect()
    }
}

const STEPS: Told = ("+", 1, 100);

#[rstest]
#[case::after_steps(after(90), &[STEPS], Some(90))]
#[case::after_named_steps(after(90), &[("step=+", 1, 100)], Some(90))]
#[case::after_touches(after(90), &[("", 1, 100)], Some(90))]
#[case::before_first_step(after(90), &[("+", 1, 1)], Some(1800))]
#[case::after_the_first_touch(after(90), &[("", 1, 1)], Some(90))]
#[case::in_phase(after(90), &[STEPS, ("step=+ phase=eval", 1, 1)], Some(1800))]
#[case::in_phase_with_limit(after(90), &[STEPS, ("step=+ phase=compile limit=3600", 1, 1)], Some(3600))]
#[case::in_first_phase(after(90), &[("phase=init", 1, 1)], Some(1800))]
#[case::in_first_phase_with_limit(after(90), &[("phase=init limit=60", 1, 1)], Some(60))]
#[case::after_phase(after(90), &[STEPS, ("+ phase=eval", 1, 1), ("+ phase=eval", 200, 2), STEPS], Some(90))]
#[case::touched_in_phase(after(90), &[STEPS, ("+ phase=eval", 1, 1), ("", 1, 5)], Some(1800))]
#[case::never_told(after(90), &[], None)]
#[case::nobody_asked(StallAfter::Never, &[STEPS], None)]
#[case::auto(StallAfter::Auto, &[STEPS], Some(1800))]
#[case::auto_after_undeclared_checkpoint(StallAfter::Auto, &[STEPS, ("+", 600, 1), STEPS], Some(6000))]
#[case::auto_after_declared_checkpoint(StallAfter::Auto, &[STEPS, ("+ phase=checkpoint", 1, 1), ("+", 30, 1), STEPS], Some(300))]
#[case::auto_after_long_compilation(StallAfter::Auto, &[("phase=compile", 1, 1), ("+", 1200, 1), STEPS], Some(1800))]
#[case::same_step_again(after(90), &[STEPS, ("100", 80, 50)], Some(90))]
#[case::fallen_step(after(90), &[STEPS, ("3", 80, 50)], Some(90))]
#[case::fallen_step_in_phase(after(90), &[STEPS, ("3 phase=eval", 80, 50)], Some(1800))]
#[case::fallen_step_after_phase(after(90), &[STEPS, ("+ phase=eval", 1, 1), ("3", 80, 50)], Some(90))]
#[case::torn_line(after(90), &[STEPS, ("st", 80, 50)], Some(90))]
#[case::absurd_step(after(90), &[STEPS, ("99999999999999999999", 80, 50)], Some(90))]
fn stall_begins_as_long_after_last_word(#[case] after: StallAfter, #[case] told: &[Told], #[case] limit: Option<u64>) {
    let mut follow = Follow::new(after);
    for told in told {
        follow.tell(*told);
    }
    assert_eq!(follow.stalls(), Vec::<u64>::new(), "while it tells");
    let since = follow.now;
    follow.silence(20_000);
    assert_eq!(follow.stalls(), limit.map(|limit| since + limit).into_iter().collect::<Vec<_>>());
}

#[test]
fn stall_is_looked_at_before_and_ends_with_next_word() {
    let mut follow = Follow::new(after(90));
    follow.tell(("+", 1, 10));
    follow.outputs.clear();
    follow.silence(200);
    assert!(follow.state.is_stalled());
    follow.tell(("+", 1, 1));
    let silent = Duration::from_secs(90);
    let expected =
        [(95, ProgressOutput::Look), (100, ProgressOutput::Stalled { silent }), (211, ProgressOutput::Resumed)];
    assert_eq!(follow.outputs, expected);
    assert!(!follow.state.is_stalled());
    assert_eq!(follow.state.facts().unwrap().pause, Duration::from_secs(201));
}

#[test]
fn undeclared_checkpoint_never_trips_auto_twice() {
    // Longer than `stall-first`, so that the first one trips.
    let mut follow = Follow::new(StallAfter::Auto);
    for _ in 0..20 {
        follow.tell(("+", 1, 500));
        follow.tell(("+", 2400, 1));
    }
    assert_eq!(follow.stalls().len(), 1);
    let mut follow = Follow::new(StallAfter::Auto);
    for _ in 0..20 {
        follow.tell(("+", 1, 500));
        follow.tell(("+", 600, 1));
    }
    assert_eq!(follow.stalls(), Vec::<u64>::new());
}

#[test]
fn pause_of_the_group_counts_for_new_worker() {
    let mut follow = Follow::new(StallAfter::Auto);
    follow.state.survived_by_group(Duration::from_mins(40));
    follow.tell(("+", 1, 10));
    follow.silence(23_000);
    assert_eq!(follow.stalls(), Vec::<u64>::new());
    follow.silence(1_001);
    assert_eq!(follow.stalls(), [24_010]);
    assert_eq!(follow.state.facts().unwrap().pause, Duration::from_secs(1), "its own");
}

#[test]
fn frozen_agent_sees_no_stall() {
    let mut follow = Follow::new(after(90));
    follow.tell(STEPS);
    follow.now += 3600;
    follow.silence(84);
    assert_eq!(follow.stalls(), Vec::<u64>::new());
    follow.silence(2);
    assert_eq!(follow.stalls().len(), 1);
}

#[test]
fn time_of_the_word_counts_and_reading_is_in_time() {
    let mut state = ProgressState::new(limits(after(5)));
    let at = Duration::from_millis;
    state.begin(3, Duration::ZERO);
    assert_eq!(state.next_reading(), READ_INTERVAL);
    state.read(at(1000), Some((ProgressLine::parse("1"), at(400))));
    state.read(at(2000), Some((ProgressLine::parse("2"), at(300))));
    assert_eq!(state.facts().unwrap().pause, Duration::ZERO, "before its first step");
    state.read(at(3000), Some((ProgressLine::parse("3"), at(300))));
    assert_eq!(state.facts().unwrap().pause, at(1000));
    for second in 4..=7 {
        state.read(at(second * 1000), None);
    }
    assert_eq!(state.next_reading(), at(700));
    assert_eq!(state.read(at(7700), None), [ProgressOutput::Stalled { silent: at(5000) }]);
    assert_eq!(state.next_reading(), READ_INTERVAL);
}

/// Steps of 200 ms, from 200 ms after `phase=init` was read, and none after the fifth.
#[test]
fn hang_soon_after_first_step_is_noticed() {
    let mut state = ProgressState::new(limits(after(5)));
    let at = Duration::from_millis;
    state.begin(1, Duration::ZERO);
    let (mut now, mut known, mut stalled) = (Duration::ZERO, None, None);
    while stalled.is_none() && now < at(60_000) {
        now += state.next_reading();
        let step = (now.as_millis().saturating_sub(1000) / 200).min(5);
        let line = if step == 0 { "phase=init".to_owned() } else { step.to_string() };
        let is_new = known.replace(line.clone()) != Some(line.clone());
        let told = is_new.then(|| (ProgressLine::parse(&line), Duration::ZERO));
        let outputs = state.read(now, told);
        stalled = outputs.iter().any(|it| matches!(it, ProgressOutput::Stalled { .. })).then_some(now);
    }
    assert_eq!(stalled, Some(at(7000)));
}

#[test]
fn worker_that_ends_makes_no_stall() {
    let mut follow = Follow::new(after(90));
    follow.tell(STEPS);
    follow.state.stop();
    follow.silence(200);
    follow.state.end();
    follow.silence(200);
    assert_eq!(follow.stalls(), Vec::<u64>::new());
    let facts = follow.state.facts().unwrap();
    assert_eq!((facts.epoch, facts.step), (Some(3), Some(100)));
}

#[test]
fn next_epoch_begins_with_its_own_step() {
    let mut follow = Follow::new(after(90));
    follow.tell(STEPS);
    follow.state.end();
    follow.state.begin(4, Duration::from_secs(follow.now));
    assert_eq!(follow.state.facts().unwrap().step, None);
    follow.silence(200);
    assert_eq!(follow.stalls(), Vec::<u64>::new(), "before its first step");
    follow.step = 50;
    follow.tell(("+", 1, 2));
    assert_eq!(follow.state.facts().unwrap().step, Some(52));
}

#[test]
fn worker_of_earlier_agent_is_known_and_may_stall() {
    let mut state = ProgressState::new(limits(after(90)));
    assert_eq!(state.facts(), None);
    state.left(&ProgressLine::parse("step=1200 checkpoint=1000"));
    let facts = state.facts().unwrap();
    assert_eq!((facts.epoch, facts.step, facts.checkpoint), (None, Some(1200), Some(1000)));
    let mut follow = Follow::new(after(90));
    follow.state.left(&ProgressLine::parse("1200"));
    follow.silence(2000);
    assert_eq!(follow.stalls(), [1800]);
}

#[test]
fn first_word_and_later_steps_are_said() {
    let mut follow = Follow::new(after(90));
    follow.tell(("+", 1, 100));
    follow.tell(("100", 1, 100));
    let expected = [
        (1, ProgressOutput::First),
        (31, ProgressOutput::Advanced),
        (61, ProgressOutput::Advanced),
        (91, ProgressOutput::Advanced),
        (121, ProgressOutput::Advanced),
    ];
    assert_eq!(follow.outputs, expected);
}

#[rstest]
#[case::left(&[("5 phase=checkpoint", 1, 1), ("6", 1, 1)], Some(5))]
#[case::not_left(&[("5 phase=checkpoint", 1, 1)], None)]
#[case::left_for_another(&[("5 phase=checkpoint", 1, 1), ("5 phase=eval", 1, 1)], Some(5))]
#[case::said_alone(&[("7 checkpoint=4", 1, 1), ("8", 1, 1)], Some(4))]
#[case::fallen(&[("7 checkpoint=4", 1, 1), ("8 checkpoint=2", 1, 1)], Some(4))]
#[case::begun_again(&[("7 checkpoint=4", 1, 1), ("8 phase=checkpoint", 1, 1), ("5", 1, 1)], Some(4))]
fn checkpoint_is_declared_once_its_phase_is_left(#[case] told: &[Told], #[case] expected: Option<i64>) {
    let mut follow = Follow::new(after(90));
    for told in told {
        follow.tell(*told);
    }
    assert_eq!(follow.state.facts().unwrap().checkpoint, expected);
}

/// A program as people write them, in a simulated life.
struct Program {
    rng: fastrand::Rng,
    step_seconds: f64,
    /// Seconds of the longest checkpoint, and after how many steps one is written.
    checkpoint: (f64, u32),
    declares: bool,
    gives_limits: bool,
}

impl Program {
    fn of(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        Self {
            step_seconds: [0.05, 0.5, 2.0, 20.0][rng.usize(..4)],
            checkpoint: ([1.0, 30.0, 600.0][rng.usize(..3)], rng.u32(100..1000)),
            declares: rng.bool(),
            gives_limits: rng.bool(),
            rng,
        }
    }

    /// Runs for some hours with a watchdog. Returns the stalls that it saw.
    fn live(&mut self, hours: u64) -> usize {
        let mut state = ProgressState::new(limits(StallAfter::Auto));
        state.begin(1, Duration::ZERO);
        let (mut stalls, mut now, mut step, mut word) = (0, 0.0_f64, 0_u32, None);
        // The agent reads once in this time; what it costs is the same with less.
        let interval = 4.0;
        let mut read_at = 0.0;
        // When the phase that lasts ends.
        let mut until = self.rng.f64() * 1500.0;
        if self.declares {
            word = Some("phase=init limit=3600".to_owned());
        }
        while now < 3600.0 * f64::from(u32::try_from(hours).unwrap()) {
            while until <= read_at + interval {
                step += 1;
                word = Some(step.to_string());
                let noise = if self.rng.u32(..200) == 0 { 15.0 * self.rng.f64() } else { 0.5 + self.rng.f64() };
                // A straggler on a slow node for some time.
                let slow = if (step / 5000) % 7 == 3 { 4.0 } else { 1.0 };
                let mut lasts = self.step_seconds * noise * slow;
                let mut pause = |rng: &mut fastrand::Rng, name: &str, longest: f64| {
                    lasts += longest * (0.2 + 0.8 * rng.f64());
                    if self.declares {
                        let limit = if self.gives_limits { " limit=1200" } else { "" };
                        word = Some(format!("step={step} phase={name}{limit}"));
                    }
                };
                if step % self.checkpoint.1 == 0 {
                    pause(&mut self.rng, "checkpoint", self.checkpoint.0);
                } else if step % 7777 == 0 {
                    pause(&mut self.rng, "compile", 300.0);
                } else if step % 5000 == 0 {
                    pause(&mut self.rng, "eval", 900.0);
                }
                until += lasts;
            }
            read_at += interval;
            now = read_at;
            let outputs = state.read(
                Duration::from_secs_f64(now),
                word.take().map(|word| (ProgressLine::parse(&word), Duration::ZERO)),
            );
            stalls += outputs.iter().filter(|output| matches!(output, ProgressOutput::Stalled { .. })).count();
        }
        stalls
    }
}

/// 10,000 hours with compilations, checkpoints, evaluations, noisy steps and slow nodes.
#[test]
fn healthy_workers_never_stall_with_auto() {
    for seed in 0..40 {
        let mut program = Program::of(seed);
        let told = (program.step_seconds, program.checkpoint, program.declares, program.gives_limits);
        assert_eq!(program.live(250), 0, "seed {seed}: {told:?}");
    }
}
