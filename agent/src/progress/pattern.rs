//! The steps in the output of a worker that cannot be changed.

use std::sync::{Arc, Mutex, PoisonError};

use regex_lite::{Regex, RegexBuilder};

use super::ProgressLine;

/// Longest line that is looked at, in bytes. Of a longer one, the rest is ignored.
const LONGEST_LINE: usize = 4096;
/// Largest compiled pattern, in bytes.
const LARGEST_PATTERN: usize = 1 << 20;

/// A regular expression with one group, which is the step.
#[derive(Clone, Debug)]
pub struct StepPattern(Regex);

impl StepPattern {
    /// `None` if the text is no regular expression, is too large, or has not just one group.
    pub fn parse(text: &str) -> Option<Self> {
        let pattern = RegexBuilder::new(text).size_limit(LARGEST_PATTERN).build().ok()?;
        (pattern.captures_len() == 2).then_some(Self(pattern))
    }

    /// The step in this line.
    fn step(&self, line: &str) -> Option<i64> {
        ProgressLine::of_step(self.0.captures(line)?.get(1)?.as_str()).step
    }
}

impl PartialEq for StepPattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

/// The last step in the output of a worker, from the threads that copy the output to the agent.
#[derive(Clone, Debug, Default)]
pub struct MatchedSteps(Arc<Mutex<Option<i64>>>);

impl MatchedSteps {
    /// The last step since the last call.
    pub fn take(&self) -> Option<ProgressLine> {
        let step = self.0.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        Some(ProgressLine { step: Some(step), ..ProgressLine::default() })
    }
}

/// Reads the steps in one stream of output.
#[derive(Debug)]
pub struct StepReader {
    pattern: StepPattern,
    steps: MatchedSteps,
    /// The line that has not ended yet.
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
                if let Some(step) = self.pattern.step(&String::from_utf8_lossy(&self.line)) {
                    *self.steps.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(step);
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
    #[case::no_group("step [0-9]+", false)]
    #[case::one_group("step ([0-9]+)", true)]
    #[case::two_groups("(step) ([0-9]+)", false)]
    #[case::group_that_is_not_captured("(?:step|iter) ([0-9]+)", true)]
    #[case::unbalanced("step ([0-9]+", false)]
    #[case::huge("((a{999}){999}){999}", false)]
    fn pattern_has_one_group(#[case] text: &str, #[case] is_valid: bool) {
        assert_eq!(StepPattern::parse(text).is_some(), is_valid);
    }

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
        assert_eq!(steps.take().and_then(|line| line.step), expected);
        assert_eq!(steps.take(), None);
    }

    #[test]
    fn long_line_is_cut_and_next_one_read() {
        let steps = MatchedSteps::default();
        let mut reader = StepReader::new(StepPattern::parse("step ([0-9]+)").unwrap(), steps.clone());
        reader.read(&[b'x'; 3 * LONGEST_LINE]);
        reader.read(b"step 7\nstep 8\n");
        assert_eq!(steps.take().and_then(|line| line.step), Some(8));
        assert_eq!(reader.line.capacity(), LONGEST_LINE);
    }
}
