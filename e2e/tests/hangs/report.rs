//! What came of the hangs, as a table.

use std::fmt::Write as _;

use jobset_harness::median::median;

use super::plan::{Hang, Kind};

#[derive(Clone, Debug)]
pub(super) struct Outcome {
    pub(super) shape: &'static str,
    pub(super) hang: Hang,
    /// Seconds from the last step of the worker that hangs until the condition said so.
    pub(super) noticed_after: f64,
    /// Rank of the worker that is blamed; `None`: the verdict is that nobody knows.
    pub(super) blamed: Option<usize>,
}

impl Outcome {
    pub(super) fn is_wrong(&self) -> bool {
        self.blamed.is_some_and(|rank| rank != self.hang.rank)
    }
}

/// Times and verdicts by shape and kind, and how many were noticed within this limit, in seconds.
pub(super) fn table(outcomes: &[Outcome], limit: f64) -> String {
    let mut text = format!(
        "{:<11} {:<9} {:>5} {:>6} {:>8} {:>6} {:>8} {:>8} {:>8}\n",
        "shape", "kind", "hangs", "named", "unknown", "wrong", "median", "99 %", "slowest"
    );
    let mut add = |shape: &str, kind: &str, rows: Vec<&Outcome>| {
        let named = rows.iter().filter(|row| row.blamed == Some(row.hang.rank)).count();
        let wrong = rows.iter().filter(|row| row.is_wrong()).count();
        let mut times: Vec<f64> = rows.iter().map(|row| row.noticed_after).collect();
        times.sort_by(f64::total_cmp);
        let Some(slowest) = times.last() else { return };
        let (middle, most) = (median(times.iter().copied()), times[(times.len() * 99).div_ceil(100) - 1]);
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "{shape:<11} {kind:<9} {:>5} {named:>6} {:>8} {wrong:>6} {middle:>6.2} s {most:>6.2} s {slowest:>6.2} s",
            rows.len(),
            rows.len() - named - wrong,
        );
    };
    for shape in ["Sidecar", "Supervisor"] {
        for kind in Kind::ALL {
            let is_of = |row: &&Outcome| row.shape == shape && row.hang.kind == kind;
            add(shape, &kind.to_string(), outcomes.iter().filter(is_of).collect());
        }
    }
    add("all", "", outcomes.iter().collect());
    let in_time = outcomes.iter().filter(|outcome| outcome.noticed_after <= limit).count();
    let _ = writeln!(text, "{in_time} of {} were noticed within {limit:.1} s", outcomes.len());
    text
}
