//! Healthy programs, as people write them, in a simulated life: `auto` never takes one for stalled.

use std::time::Duration;

use super::{ProgressLine, ProgressOutput, ProgressState, StallAfter, StallLimits, Told};

/// How many programs live, and for how many hours each.
const LIVES: (u64, u64) = (80, 125);
/// Seconds between two readings: what the agent costs in a test is the same with more of them.
const INTERVAL: f64 = 4.0;

#[derive(Clone, Copy, Debug)]
struct Habit {
    name: &'static str,
    /// Seconds that it takes at most, and once in how many steps.
    longest: f64,
    every: u32,
    is_declared: bool,
}

#[derive(Debug)]
struct Program {
    rng: fastrand::Rng,
    step_seconds: f64,
    /// Some declare all of their pauses, some none, and most a part.
    habits: [Habit; 3],
    gives_limits: bool,
    /// Whether a few steps take fifteen times as long as others.
    is_noisy: bool,
    /// Whether the steps are in the output, and phases alone in the file.
    prints_steps: bool,
}

/// What the program has told last, and when.
#[derive(Clone, Copy, Debug)]
struct Word {
    step: u32,
    phase: Option<Habit>,
    at: f64,
}

impl Program {
    fn of(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let declares_all = rng.u32(..4) == 0;
        let mut habit = |name, longest, every| Habit { name, longest, every, is_declared: declares_all || rng.bool() };
        let habits = [habit("checkpoint", 600.0, 0), habit("eval", 900.0, 5000), habit("compile", 300.0, 7777)];
        let mut program = Self {
            step_seconds: [0.05, 0.5, 2.0, 20.0][rng.usize(..4)],
            habits,
            gives_limits: rng.bool(),
            is_noisy: rng.bool(),
            prints_steps: rng.bool(),
            rng,
        };
        program.habits[0].every = program.rng.u32(100..1000);
        for habit in &mut program.habits {
            habit.longest *= [0.002, 0.05, 1.0][program.rng.usize(..3)];
        }
        program
    }

    /// How long the next step takes, the pauses before it included, and the last of these.
    fn step(&mut self, step: u32) -> (f64, Option<Habit>) {
        let is_long = self.is_noisy && self.rng.u32(..200) == 0;
        let noise = if is_long { 15.0 * self.rng.f64() } else { 0.5 + self.rng.f64() };
        // A straggler on a slow node for some time.
        let slow = if (step / 5000) % 7 == 3 { 4.0 } else { 1.0 };
        let mut lasts = self.step_seconds * noise * slow;
        let pause = self.habits.into_iter().find(|habit| step.is_multiple_of(habit.every));
        if let Some(habit) = pause {
            lasts += habit.longest * (0.2 + 0.8 * self.rng.f64());
        }
        (lasts, pause.filter(|habit| habit.is_declared))
    }

    fn told(&self, word: Word, now: f64) -> Vec<Told> {
        let ago = Duration::from_secs_f64(now - word.at);
        let step = Told::by_output((word.step.into(), ago));
        let line = match word.phase {
            Some(Habit { name, .. }) => {
                let limit = if self.gives_limits { " limit=1200" } else { "" };
                format!("step={} phase={name}{limit}", word.step)
            }
            None if self.prints_steps => return vec![step],
            None => word.step.to_string(),
        };
        let file = Told::by_file(ProgressLine::parse(&line), ago);
        if self.prints_steps { vec![step, file] } else { vec![file] }
    }

    /// Lives for some hours with a watchdog. Returns the stalls that it saw, and the limit at the end.
    fn live(&mut self, hours: u64) -> (usize, Option<Duration>) {
        let mut state = ProgressState::new(StallLimits { after: StallAfter::Auto, first: None });
        state.begin(1, Duration::ZERO);
        state.read(Duration::ZERO, vec![Told::by_file(ProgressLine::parse("phase=init limit=3600"), Duration::ZERO)]);
        let (mut stalls, mut now, mut step, mut word) = (0, 0.0_f64, 0_u32, None);
        // When the next step begins.
        let mut next = self.rng.f64() * 1500.0;
        while now < 3600.0 * f64::from(u32::try_from(hours).unwrap()) {
            now += INTERVAL;
            while next <= now {
                step += 1;
                let (lasts, phase) = self.step(step);
                word = Some(Word { step, phase, at: next });
                next += lasts;
            }
            let told = word.take().map(|word| self.told(word, now)).unwrap_or_default();
            let outputs = state.read(Duration::from_secs_f64(now), told);
            stalls += outputs.iter().filter(|output| matches!(output, ProgressOutput::Stalled { .. })).count();
        }
        (stalls, state.limit())
    }
}

/// 10,000 hours with compilations, checkpoints, evaluations, noisy steps and slow nodes.
#[test]
fn healthy_workers_never_stall_with_auto() {
    let mut short = 0;
    for seed in 0..LIVES.0 {
        let mut program = Program::of(seed);
        let told = format!("{program:?}");
        let (stalls, limit) = program.live(LIVES.1);
        assert_eq!(stalls, 0, "seed {seed}: {told}");
        short += u32::from(limit.is_some_and(|limit| limit < Duration::from_mins(30)));
    }
    assert!(short > 5, "{short} programs alone have a limit that is shorter than at their begin");
}
