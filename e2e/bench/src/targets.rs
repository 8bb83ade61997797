//! A table of figures, each beside what it is to be at most. Pure.

use std::fmt::Write as _;

/// The table, line by line.
pub(super) struct Targets(String);

impl Targets {
    /// A table with this heading over its first column.
    pub(super) fn new(heading: &str) -> Self {
        Self(format!("{heading:<46} {:>10} {:>10}\n", "measured", "target"))
    }

    /// Adds a figure; without a target, it explains others.
    pub(super) fn line(&mut self, what: &str, value: f64, target: Option<f64>, unit: &str) {
        let target = target.map_or_else(String::new, |target| {
            let verdict = if value <= target { "met" } else { "MISSED" };
            format!("{:>10}  {verdict}", with_unit(target, unit))
        });
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "{what:<46} {:>10} {target}", with_unit(value, unit));
    }

    /// The table, with this text below.
    pub(super) fn explained(self, text: &str) -> String {
        self.0 + text + "\n"
    }
}

/// A count has no unit.
fn with_unit(value: f64, unit: &str) -> String {
    format!("{value} {unit}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::below(1.5, Some(2.0), "s", "figure 1.5 s 2 s met")]
    #[case::at(2.0, Some(2.0), "s", "figure 2 s 2 s met")]
    #[case::above(2.1, Some(2.0), "s", "figure 2.1 s 2 s MISSED")]
    #[case::nothing_was_measured(f64::NAN, Some(2.0), "s", "figure NaN s 2 s MISSED")]
    #[case::without_a_target(2.1, None, "s", "figure 2.1 s")]
    #[case::a_count(1.0, Some(1.0), "", "figure 1 1 met")]
    fn line_says_what_is_met(
        #[case] value: f64,
        #[case] target: Option<f64>,
        #[case] unit: &str,
        #[case] wanted: &str,
    ) {
        let mut targets = Targets::new("what");
        targets.line("figure", value, target, unit);
        let table = targets.explained("below");
        let words: Vec<String> =
            table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        assert_eq!(words, ["what measured target", wanted, "below"]);
    }
}
