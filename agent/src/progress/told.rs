//! What a worker has told between two readings.

use std::time::Duration;

use super::ProgressLine;

/// How much later than it was written a line of output may be read: a thread copies it, and the file needs none. Of a line that may be
/// older than what the file says, the file has the last word.
const OUTPUT_DELAY: Duration = Duration::from_millis(100);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    pub line: ProgressLine,
    /// How long ago it was written, or read from the output.
    pub ago: Duration,
    /// Whether it is from the output, which knows of steps alone.
    pub is_output: bool,
}

impl Told {
    /// What the file says.
    pub fn by_file(line: ProgressLine, ago: Duration) -> Self {
        Self { line, ago, is_output: false }
    }

    /// A step in the output.
    pub fn by_output((step, ago): (i64, Duration)) -> Self {
        Self { line: ProgressLine { step: Some(step), ..ProgressLine::default() }, ago, is_output: true }
    }

    /// For how long it has been there at most.
    pub fn age(&self) -> Duration {
        if self.is_output { self.ago + OUTPUT_DELAY } else { self.ago }
    }
}
