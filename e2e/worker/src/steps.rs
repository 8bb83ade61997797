//! Steps: what the worker tells its agent of its progress, and how it stops making any.

use std::fs;
use std::io::{Write as _, stdout};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use signal_hook::consts::SIGSTOP;
use signal_hook::low_level::raise;

use crate::config::Config;
use crate::journal::Journal;

/// Exit code of a worker that ends at a step.
const FAILED: u8 = 1;

/// A line of output that tells of nothing, as long as those that trainings write.
const NOISE: &str =
    "INFO trainer.loop loss 2.3441 grad_norm 0.8123 learning_rate 0.00030000 tokens_per_second 12345.6 rank 0";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hang {
    /// It waits for ever.
    Wait,
    /// It goes round without end.
    Loop,
    /// It is stopped, as by a debugger.
    Stop,
}

impl Hang {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        match text {
            "wait" => Some(Self::Wait),
            "loop" => Some(Self::Loop),
            "stop" => Some(Self::Stop),
            _ => None,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Steps {
    hang: Mutex<Option<Hang>>,
    changed: Condvar,
}

impl Steps {
    /// Begins to make steps, if the configuration says so.
    pub(crate) fn begin(config: &Arc<Config>, journal: &Arc<Journal>) -> Arc<Self> {
        let steps = Arc::new(Self::default());
        if let (Some(time), Some(file)) = (config.step, config.progress.clone()) {
            let (steps, journal, last) = (Arc::clone(&steps), Arc::clone(journal), config.last_step);
            let lines = config.lines;
            thread::spawn(move || {
                for step in 1_u64.. {
                    if let Err(error) = fs::write(&file, format!("{step}\n")) {
                        eprintln!("jobset-test-worker: {}: {error}", file.display());
                    }
                    print(lines, step);
                    thread::sleep(time);
                    if Some(step) == last {
                        let _guard = journal.begin_exit(FAILED, "step");
                        std::process::exit(FAILED.into());
                    }
                    steps.hang();
                }
            });
        }
        steps
    }

    /// Lets the steps hang from the next one on, or go on.
    pub(crate) fn set(&self, hang: Option<Hang>) {
        *self.hang.lock().unwrap_or_else(PoisonError::into_inner) = hang;
        self.changed.notify_all();
    }

    fn asked(&self) -> Option<Hang> {
        *self.hang.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hangs as long as it is asked for.
    fn hang(&self) {
        match self.asked() {
            None => {}
            Some(Hang::Wait) => {
                let guard = self.hang.lock().unwrap_or_else(PoisonError::into_inner);
                let waited = self.changed.wait_while(guard, |hang| *hang == Some(Hang::Wait));
                drop(waited.unwrap_or_else(PoisonError::into_inner));
            }
            Some(Hang::Loop) => {
                while self.asked() == Some(Hang::Loop) {
                    thread::yield_now();
                }
            }
            Some(Hang::Stop) => {
                self.set(None);
                // The kernel has no other answer than to stop the process.
                let _ = raise(SIGSTOP);
            }
        }
    }
}

/// Writes so many lines at once, of which the last has the step. A worker whose output nobody reads any longer goes on.
fn print(lines: u32, step: u64) {
    if let Some(others) = lines.checked_sub(1) {
        let text = [NOISE, "\n"].concat().repeat(usize::try_from(others).unwrap_or(usize::MAX));
        let _ = stdout().lock().write_all(format!("{text}step {step}\n").as_bytes());
    }
}

/// The pause between two steps: a number of milliseconds.
pub(crate) fn milliseconds(text: &str) -> Option<Duration> {
    text.parse().ok().map(Duration::from_millis)
}
