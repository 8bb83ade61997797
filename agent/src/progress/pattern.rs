//! The steps in the output of a worker that cannot be changed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jobset_protocol::step_pattern::StepPattern;

use super::ProgressLine;

/// Longest line that is looked at, in bytes. Of a longer one, the rest is ignored.
const LONGEST_LINE: usize = 4096;

/// The last step in the output of a worker, and when it was read, from the threads that copy the output to the agent.
#[derive(Clone, Debug, Default)]
pub struct MatchedSteps(Arc<Mutex<Option<(i64, Instant)>>>);

impl MatchedSteps {
    /// The last step since the last call, and how long ago it was read.
    pub fn take(&self) -> Option<(i64, Duration)> {
        let (step, read_at) = self.0.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some((step, read_at.elapsed()))
    }

    fn put(&self, step: i64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((step, Instant::now()));
    }
}

/// Reads the steps in one stream of output.
#[derive(Debug)]
pub struct StepReader {
    pattern: StepPattern,
    steps: MatchedSteps,
    line: Vec<u8>,
}

impl StepReader {
    pub fn new(pattern: StepPattern, steps: MatchedSteps) -> Self {
        Self { pattern, steps, line: Vec::with_capacity(LONGEST_LINE) }
    }

    /// Takes output in. A line ends with a newline, or with a carriage return, as those of progress bars do.
    pub fn read(&mut self, bytes: &[u8]) {
        for part in bytes.split_inclusive(|byte| matches!(byte, b'\n' | b'\r')) {
            let (text, has_ended) = match part {
                [text @ .., b'\n' | b'\r'] => (text, true),
                text => (text, false),
            };
            let room = LONGEST_LINE - self.line.len();
            self.line.extend_from_slice(&text[..text.len().min(room)]);
            if has_ended {
                let line = String::from_utf8_lossy(&self.line);
                if let Some(step) = self.pattern.find(&line).and_then(|text| ProgressLine::of_step(text).step) {
                    self.steps.put(step);
                }
                self.line.clear();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::line(&["step 7\n"], Some(7))]
    #[case::last_of_many(&["step 7\nstep 8\nloss 3\n"], Some(8))]
    #[case::progress_bar(&["step 7\rstep 8\r"], Some(8))]
    #[case::torn_over_reads(&["st", "ep 1", "2\n"], Some(12))]
    #[case::not_ended(&["step 7\nstep 8"], Some(7))]
    #[case::absurd(&["step 99999999999999999999\n"], None)]
    #[case::no_text(&["\u{fffd}\0step x\n"], None)]
    fn step_is_read_from_output(#[case] parts: &[&str], #[case] expected: Option<i64>) {
        let steps = MatchedSteps::default();
        let mut reader = StepReader::new(StepPattern::parse("step ([0-9]+)").unwrap(), steps.clone());
        for part in parts {
            reader.read(part.as_bytes());
        }
        assert_eq!(steps.take().map(|(step, _)| step), expected);
        assert_eq!(steps.take(), None);
    }

    #[test]
    fn long_line_is_cut_and_next_one_read() {
        let steps = MatchedSteps::default();
        let mut reader = StepReader::new(StepPattern::parse("step ([0-9]+)").unwrap(), steps.clone());
        reader.read(&[b'x'; 3 * LONGEST_LINE]);
        reader.read(b"step 7\nstep 8\n");
        assert_eq!(steps.take().map(|(step, _)| step), Some(8));
        assert_eq!(reader.line.capacity(), LONGEST_LINE);
    }
}
