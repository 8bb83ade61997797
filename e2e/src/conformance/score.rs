//! How many cases of a suite pass, and which do not.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{Case, Outcome, Suite};

/// How many lines of a failure's message the table has.
const LINES: usize = 6;

#[derive(Clone, Debug)]
pub struct Score {
    suite: Suite,
    cases: Vec<Case>,
}

impl Score {
    pub(super) fn new(suite: Suite, cases: Vec<Case>) -> Self {
        Self { suite, cases }
    }

    /// How many cases ran.
    pub fn total(&self) -> usize {
        self.cases.len()
    }

    pub fn passed(&self) -> usize {
        passed(&self.cases)
    }

    /// Name and message of the cases that failed.
    pub fn failures(&self) -> Vec<(&str, &str)> {
        let failure = |case: &'_ Case| matches!(case.outcome, Outcome::Failed(_));
        let failed = self.cases.iter().filter(|case| failure(case));
        failed.map(|case| (case.name.as_str(), case.message())).collect()
    }
}

pub(super) fn passed(cases: &[Case]) -> usize {
    cases.iter().filter(|case| case.outcome == Outcome::Passed).count()
}

impl Case {
    fn message(&self) -> &str {
        match &self.outcome {
            Outcome::Passed => "",
            Outcome::Failed(message) => message,
        }
    }
}

/// The scores as a table, and below it the cases that failed.
pub fn table(scores: &[Score]) -> String {
    let mut text = format!("{:<20}{:<10}{:>6}{:>7}\n", "suite", "version", "passed", "total");
    for score in scores {
        let (suite, version) = (score.suite.name(), score.suite.version());
        let _ = writeln!(text, "{suite:<20}{version:<10}{:>6}{:>7}", score.passed(), score.total());
    }
    for score in scores {
        for (name, message) in score.failures() {
            let _ = writeln!(text, "\nfailed: {}: {name}", score.suite.name());
            for line in message.lines().filter(|line| !line.trim().is_empty()).take(LINES) {
                let _ = writeln!(text, "    {line}");
            }
        }
    }
    text
}

/// Writes the scores as JSON, each with the time of its run. Scores of other suites that the file has stay.
pub fn write(file: &Path, scores: &[Score]) -> Result<()> {
    let before: Vec<Value> =
        fs::read(file).ok().and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default();
    let is_other = |row: &Value| scores.iter().all(|score| row["suite"] != score.suite.name());
    let rows = scores.iter().map(|score| {
        json!({
            "suite": score.suite.name(), "version": score.suite.version(),
            "passed": score.passed(), "total": score.total(), "time": Timestamp::now(),
        })
    });
    let mut rows: Vec<Value> = before.into_iter().filter(is_other).chain(rows).collect();
    rows.sort_by(|a, b| a["suite"].as_str().cmp(&b["suite"].as_str()));
    let text = serde_json::to_string_pretty(&rows)? + "\n";
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_names_each_failed_case() {
        let case = |name: &str, outcome| Case { name: name.to_owned(), outcome };
        let failed = Outcome::Failed("failed: Timed out\n\n\texpected true".to_owned());
        let score = Score::new(Suite::Webhook, vec![case("a", Outcome::Passed), case("b c", failed)]);
        let wanted = "\
suite               version   passed  total
webhook             v0.12.0        1      2

failed: webhook: b c
    failed: Timed out
    \texpected true
";
        assert_eq!(table(&[score]), wanted);
    }
}
