//! What follows from readings of a worker's progress.

use std::time::Duration;

use rstest::rstest;

use super::*;

/// What a worker tells, a second at a time: this line once in as many seconds, so often.
type Lines = (&'static str, u64, u64);

fn limits(after: StallAfter) -> StallLimits {
    StallLimits { after, first: None }
}

fn after(seconds: u64) -> StallAfter {
    StallAfter::After(Duration::from_secs(seconds))
}

/// A line of the file that has just been written.
fn by_file(line: &str) -> Told {
    Told::by_file(ProgressLine::parse(line), Duration::ZERO)
}

/// Steps of a second for a day, in which each pause is a phase.
const DAY: Lines = ("+", 1, 90_000);

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
        self.reads(told.map(by_file).into_iter().collect());
    }

    fn reads(&mut self, told: Vec<Told>) {
        self.now += 1;
        let outputs = self.state.read(Duration::from_secs(self.now), told);
        self.outputs.extend(outputs.into_iter().map(|output| (self.now, output)));
    }

    /// `+` in a line stands for the next step.
    fn tell(&mut self, (line, every, times): Lines) {
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

const STEPS: Lines = ("+", 1, 100);

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
#[case::auto_after_declared_checkpoint(StallAfter::Auto, &[STEPS, ("+ phase=checkpoint", 1, 1), ("+", 30, 1), DAY], Some(300))]
#[case::auto_soon_after_declared_checkpoint(StallAfter::Auto, &[STEPS, ("+ phase=checkpoint", 1, 1), ("+", 30, 1), STEPS], Some(1800))]
#[case::auto_after_undeclared_pause(StallAfter::Auto, &[DAY, ("+ phase=checkpoint", 1, 1), ("+", 30, 1), ("+", 20, 1), STEPS], Some(1800))]
#[case::auto_after_long_compilation(StallAfter::Auto, &[("phase=compile", 1, 1), ("+", 1200, 1), STEPS], Some(1800))]
#[case::same_step_again(after(90), &[STEPS, ("100", 80, 50)], Some(90))]
#[case::fallen_step(after(90), &[STEPS, ("3", 80, 50)], Some(90))]
#[case::fallen_step_in_phase(after(90), &[STEPS, ("3 phase=eval", 80, 50)], Some(1800))]
#[case::fallen_step_after_phase(after(90), &[STEPS, ("+ phase=eval", 1, 1), ("3", 80, 50)], Some(90))]
#[case::torn_line(after(90), &[STEPS, ("st", 80, 50)], Some(90))]
#[case::absurd_step(after(90), &[STEPS, ("99999999999999999999", 80, 50)], Some(90))]
fn stall_begins_as_long_after_last_word(#[case] after: StallAfter, #[case] told: &[Lines], #[case] limit: Option<u64>) {
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
    let told = |line: &str, ago| vec![Told::by_file(ProgressLine::parse(line), at(ago))];
    state.begin(3, Duration::ZERO);
    assert_eq!(state.next_reading(), READ_INTERVAL);
    state.read(at(1000), told("1", 400));
    state.read(at(2000), told("2", 300));
    assert_eq!(state.facts().unwrap().pause, Duration::ZERO, "before its first step");
    state.read(at(3000), told("3", 300));
    assert_eq!(state.facts().unwrap().pause, at(1000));
    for second in 4..=7 {
        state.read(at(second * 1000), Vec::new());
    }
    assert_eq!(state.next_reading(), at(700));
    assert_eq!(state.read(at(7700), Vec::new()), [ProgressOutput::Stalled { silent: at(5000) }]);
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
        let step = u64::try_from(now.as_millis()).unwrap().saturating_sub(1000).div_euclid(200).min(5);
        let line = if step == 0 { "phase=init".to_owned() } else { step.to_string() };
        let is_new = known.replace(line.clone()) != Some(line.clone());
        let ago = now.saturating_sub(at(1000 + step * 200));
        let told = is_new.then(|| Told::by_file(ProgressLine::parse(&line), ago));
        let outputs = state.read(now, told.into_iter().collect());
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
    state.left(None, &ProgressLine::parse("step=1200 checkpoint=1000"));
    let facts = state.facts().unwrap();
    assert_eq!((facts.epoch, facts.step, facts.checkpoint), (None, Some(1200), Some(1000)));
    let mut follow = Follow::new(after(90));
    follow.state.left(None, &ProgressLine::parse("1200"));
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
fn checkpoint_is_declared_once_its_phase_is_left(#[case] told: &[Lines], #[case] expected: Option<i64>) {
    let mut follow = Follow::new(after(90));
    for told in told {
        follow.tell(*told);
    }
    assert_eq!(follow.state.facts().unwrap().checkpoint, expected);
}

/// A step in the output that was read so many milliseconds ago.
fn by_output(step: i64, ago: u64) -> Told {
    Told::by_output((step, Duration::from_millis(ago)))
}

/// A phase of an hour, and what the output says in the same second and in the next one.
#[rstest]
#[case::same_step(&[], by_output(1200, 0), true)]
#[case::same_step_twice(&[by_output(1200, 0)], by_output(1200, 0), true)]
#[case::earlier_step(&[], by_output(1199, 0), true)]
#[case::older_line_that_comes_late(&[], by_output(1201, 950), true)]
#[case::next_step(&[], by_output(1201, 0), false)]
fn output_ends_phase_with_higher_later_step(#[case] beside: &[Told], #[case] next: Told, #[case] is_in_phase: bool) {
    let mut follow = Follow::new(after(90));
    follow.reads(vec![by_output(1199, 0)]);
    let phase = by_file("step=1200 phase=checkpoint limit=3600 in=save");
    follow.reads([&[phase], beside].concat());
    follow.reads(vec![next]);
    let facts = follow.state.facts().unwrap();
    assert_eq!((facts.phase.is_some(), facts.within.is_some()), (is_in_phase, is_in_phase), "{facts:?}");
    assert_eq!(facts.checkpoint, (!is_in_phase).then_some(1200));
    let since = follow.now;
    follow.silence(4000);
    assert_eq!(follow.stalls(), [since + if is_in_phase { 3600 } else { 90 }]);
}

#[test]
fn phase_without_step_lasts_until_step_after_last_one() {
    let mut follow = Follow::new(after(90));
    follow.reads(vec![by_output(7, 0)]);
    follow.reads(vec![by_file("phase=eval")]);
    follow.reads(vec![by_output(7, 0)]);
    assert!(follow.state.facts().unwrap().phase.is_some());
    follow.reads(vec![by_output(8, 0)]);
    assert_eq!(follow.state.facts().unwrap().phase, None);
    // A worker that begins again at an earlier step.
    follow.reads(vec![by_file("step=3 phase=load")]);
    follow.reads(vec![by_output(4, 0)]);
    assert_eq!(follow.state.facts().unwrap().phase, None);
}

#[test]
fn worker_that_flaps_is_stalled_once() {
    let mut follow = Follow::new(after(5));
    follow.tell(("+", 1, 2));
    follow.tell(("+", 6, 1000));
    assert_eq!(follow.stalls().len(), 1);
    let since = follow.now;
    follow.silence(100);
    assert_eq!(follow.stalls().last(), Some(&(since + 12)));
    // Whatever it was held up once.
    follow.silence(30_000);
    follow.tell(("+", 6, 10));
    let since = follow.now;
    follow.silence(2000);
    assert_eq!(follow.stalls().last(), Some(&(since + 1800)));
    follow.state.end();
    follow.state.begin(4, Duration::from_secs(follow.now));
    follow.tell(("+", 1, 2));
    let since = follow.now;
    follow.silence(100);
    assert_eq!(follow.stalls().last(), Some(&(since + 5)));
}

#[test]
fn long_first_step_is_noticed_once_by_agent() {
    let mut follow = Follow::new(after(90));
    for epoch in 4..8 {
        follow.tell(("phase=init", 1, 1));
        follow.tell(("1", 2400, 1));
        follow.tell(STEPS);
        follow.state.end();
        follow.state.begin(epoch, Duration::from_secs(follow.now));
        follow.step = 0;
    }
    assert_eq!(follow.stalls(), [1801]);
}

#[test]
fn day_of_declared_pauses_counts_for_next_epoch() {
    let mut follow = Follow::new(StallAfter::Auto);
    for line in [STEPS, ("+ phase=checkpoint", 1, 1), ("+", 30, 1), DAY] {
        follow.tell(line);
    }
    follow.state.end();
    follow.state.begin(4, Duration::from_secs(follow.now));
    follow.tell(("+", 2, 100));
    let since = follow.now;
    follow.silence(2000);
    assert_eq!(follow.stalls(), [since + 300]);
}

#[test]
fn fast_steps_between_two_readings_are_no_pause() {
    let mut follow = Follow::new(StallAfter::Auto);
    follow.tell(("phase=init", 1, 1));
    for step in 1..100_000 {
        let phase = if step == 50 { " phase=eval" } else { "" };
        follow.second(Some(&format!("step={}{phase}", step * 100)));
    }
    let since = follow.now;
    follow.silence(2000);
    assert_eq!(follow.stalls(), [since + 60]);
}
