//! Results: a JSON file for other programs, and a table for people.

use std::fmt::{self, Display};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use jobset_harness::programs::{SHIPPED_AGENT_PROFILE, SHIPPED_PROFILE};
use serde::Serialize;
use tabwriter::TabWriter;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct Report<F> {
    #[serde(flatten)]
    pub(crate) figures: F,
    /// The profile that the measured program was built with.
    pub(crate) build: &'static str,
    pub(crate) cpus: usize,
}

impl<F: Serialize> Report<F> {
    /// The figures of a program, whose folder tells its profile.
    pub(crate) fn new(figures: F, program: &Path) -> Self {
        let folder = program.parent().and_then(Path::file_name).and_then(|name| name.to_str());
        let build = match folder {
            Some("release") => SHIPPED_PROFILE,
            Some("agent") => SHIPPED_AGENT_PROFILE,
            Some("debug") => "dev",
            _ => "unknown",
        };
        Self { figures, build, cpus: std::thread::available_parallelism().map_or(1, usize::from) }
    }

    /// Writes the result into `folder`, and gives its path.
    pub(crate) fn write(&self, folder: &Path, file: &str) -> Result<PathBuf> {
        let path = folder.join(file);
        let json = serde_json::to_string_pretty(self).context("a result is not JSON")? + "\n";
        fs::write(&path, json).with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}

/// Lines of cells in aligned columns.
pub(crate) struct Table(String);

impl Table {
    pub(crate) fn new(headings: &[&str]) -> Self {
        Self(headings.join("\t") + "\n")
    }

    pub(crate) fn line(&mut self, cells: &[String]) {
        self.0 += &(cells.join("\t") + "\n");
    }

    /// Adds a figure, and whether it is at most its target; without a target, it explains others.
    pub(crate) fn figure(&mut self, what: &str, value: f64, target: Option<f64>, unit: &str) {
        let with_unit = |value: f64| format!("{value} {unit}").trim_end().to_owned();
        let target = target.map_or_else(String::new, |target| {
            format!("{}\t{}", with_unit(target), if value <= target { "met" } else { "MISSED" })
        });
        self.line(&[what.to_owned(), with_unit(value), target]);
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut columns = TabWriter::new(Vec::new());
        // Writing to memory cannot fail.
        let _ = columns.write_all(self.0.as_bytes());
        let aligned = columns.into_inner().unwrap_or_default();
        String::from_utf8_lossy(&aligned).lines().try_for_each(|line| writeln!(f, "{}", line.trim_end()))
    }
}

/// Seconds, to a tenth of a millisecond.
pub(crate) fn seconds(time: Duration) -> f64 {
    rounded(time.as_secs_f64(), 1e4)
}

/// A count, for arithmetic; the largest counts, of bytes and ticks, are exact up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "no count reaches 2^53")]
pub(crate) fn number(count: impl TryInto<u64>) -> f64 {
    count.try_into().unwrap_or(u64::MAX) as f64
}

/// KiB as MB, to a hundredth.
pub(crate) fn megabytes(kib: u64) -> f64 {
    rounded(number(kib) * 1024.0 / 1e6, 1e2)
}

/// Rounds to `parts` parts of one: 1e3 gives thousandths.
pub(crate) fn rounded(value: f64, parts: f64) -> f64 {
    (value * parts).round() / parts
}

#[cfg(test)]
pub(crate) mod tests {
    use rstest::rstest;

    use super::*;

    /// The lines of a table, with one space between words.
    pub(crate) fn lines(table: &str) -> Vec<String> {
        table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    #[rstest]
    #[case::below(1.5, Some(2.0), "s", "figure 1.5 s 2 s met")]
    #[case::at(2.0, Some(2.0), "s", "figure 2 s 2 s met")]
    #[case::above(2.1, Some(2.0), "s", "figure 2.1 s 2 s MISSED")]
    #[case::not_measured(f64::NAN, Some(2.0), "s", "figure NaN s 2 s MISSED")]
    #[case::without_target(2.1, None, "s", "figure 2.1 s")]
    #[case::count(1.0, Some(1.0), "", "figure 1 1 met")]
    fn figure_beside_target_says_met_or_missed(
        #[case] value: f64,
        #[case] target: Option<f64>,
        #[case] unit: &str,
        #[case] expected: &str,
    ) {
        let mut table = Table::new(&["what", "measured", "target"]);
        table.figure("figure", value, target, unit);
        assert_eq!(lines(&table.to_string()), ["what measured target", expected]);
    }

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&["a", "b"]);
        table.line(&["longer".to_owned(), "c".to_owned()]);
        assert_eq!(table.to_string(), "a       b\nlonger  c\n");
    }

    #[rstest]
    #[case("/target/x/release/jobset-webhook", "release (thin LTO)")]
    #[case("/target/x/agent/jobset-agent", "agent (fat LTO, size)")]
    #[case("/target/x/debug/jobset-webhook", "dev")]
    #[case("jobset-webhook", "unknown")]
    fn build_of_program_is_its_folder(#[case] program: &str, #[case] build: &str) {
        assert_eq!(Report::new((), Path::new(program)).build, build);
    }
}
