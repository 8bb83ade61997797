//! What a change costs: ARCHITECTURE.md lists all files of a change of each kind, and an example shows that the list is true.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// A kind of change, as its row is named; and by what the files are found that its example stands in: texts, where `^` stands for
/// the beginning of a line.
const EXAMPLES: [(&str, &[&str]); 3] = [
    (
        "a field of the failure policy",
        &["stable_seconds", "stableSeconds:", "`stableSeconds` (", "restart_backoff().stable", "backoff.stable"],
    ),
    ("a message of the stream", &["^Beat", "::Beat", "FromAgent::Report", "AgentEventKind::Report"]),
    ("a metric", &["jobset_active_deadline_exceeded_total", "^DeadlineExceeded,", "Fact::DeadlineExceeded"]),
];

/// Folders and files that use what is there: tests on clusters, benchmarks, proofs, and what the plugin explains.
const USES: [&str; 8] = [
    "target",
    ".git",
    "e2e",
    "cli",
    "controller/benches",
    "controller/engine/src/proof",
    "webhook/tests/main",
    "ARCHITECTURE.md",
];

/// What is wrong with the table of costs in this page.
///
/// A row is `| change | at most | files |`. A file stands for itself, and a folder, which ends with a slash, for the files of it.
pub fn problems(page: &str, workspace: &Path) -> Result<Vec<String>> {
    let mut problems = Vec::new();
    let table = page.split(HEADING).nth(1).unwrap_or_default();
    for (change, patterns) in EXAMPLES {
        let row = table.lines().find_map(|line| line.strip_prefix(&format!("| {change} |")));
        let cells: Vec<&str> = row.unwrap_or_default().trim_matches('|').split('|').map(str::trim).collect();
        let [most, files] = cells[..] else {
            problems.push(format!("{change}: no row `| {change} | at most | files |`"));
            continue;
        };
        let listed: Vec<&str> = files.split('`').skip(1).step_by(2).collect();
        let found = holders(workspace, patterns)?;
        let is_listed = |file: &String| listed.iter().any(|it| file == it || it.ends_with('/') && file.starts_with(it));
        let unlisted = found.iter().filter(|file| !is_listed(file));
        problems.extend(unlisted.map(|file| format!("{change}: its row lacks {file}")));
        let has_example =
            |it: &&&str| found.iter().any(|file| file == **it || it.ends_with('/') && file.starts_with(**it));
        let without = listed.iter().filter(|it| !has_example(it) && **it != CHANGELOG);
        problems.extend(without.map(|it| format!("{change}: its example is not in {it}")));
        // A case comes with its snapshot.
        let cost: usize = listed.iter().map(|it| if it.starts_with("controller/cases/plan/") { 2 } else { 1 }).sum();
        if most.parse() != Ok(cost) {
            problems.push(format!("{change}: its row lists {cost} files, and says {most}"));
        }
    }
    Ok(problems)
}

/// What the table stands below.
const HEADING: &str = "## What a change costs";
/// Has a line for users, without the names of the code.
const CHANGELOG: &str = "CHANGELOG.md";

/// The files below the workspace that have one of these texts, but for comments, tests, pages written by hand, and [`USES`].
fn holders(workspace: &Path, patterns: &[&str]) -> Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    add_holders(workspace, "", patterns, &mut found)?;
    Ok(found)
}

fn add_holders(workspace: &Path, below: &str, patterns: &[&str], found: &mut BTreeSet<String>) -> Result<()> {
    let folder = workspace.join(below);
    for entry in fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let entry = entry?;
        let path = format!("{below}{}", entry.file_name().to_string_lossy());
        let is_page = path.strip_prefix("docs/src/").is_some_and(|page| !page.starts_with("reference"));
        let is_test = path.ends_with("/tests.rs") || path.ends_with("/tests") && path != "webhook/tests";
        let is_left_out = is_page || is_test || path == CHANGELOG || USES.contains(&path.as_str());
        if is_left_out || entry.file_type()?.is_symlink() {
            continue;
        }
        if entry.file_type()?.is_dir() {
            add_holders(workspace, &format!("{path}/"), patterns, found)?;
        } else if let Ok(text) = fs::read_to_string(entry.path()) {
            let product = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
            let mut lines = product.lines().filter(|line| !line.trim_start().starts_with("//"));
            if lines.any(|line| patterns.iter().any(|pattern| has(line, pattern))) {
                found.insert(path);
            }
        }
    }
    Ok(())
}

fn has(line: &str, pattern: &str) -> bool {
    pattern.strip_prefix('^').map_or_else(|| line.contains(pattern), |start| line.trim_start().starts_with(start))
}

#[cfg(test)]
mod tests {
    use jobset_harness::paths;

    use super::*;

    #[test]
    fn costs_in_architecture_are_all_files_of_examples() {
        let page = fs::read_to_string(paths::workspace().join("ARCHITECTURE.md")).unwrap();
        assert_eq!(problems(&page, &paths::workspace()).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn cost_with_missing_or_superfluous_file_is_a_problem() {
        let page = fs::read_to_string(paths::workspace().join("ARCHITECTURE.md")).unwrap();
        let problems_of = |from: &str, to: &str| problems(&page.replace(from, to), &paths::workspace()).unwrap();
        let found = problems_of("`docs/src/reference/metrics.md`", "`docs/src/reference/flags.md`");
        let expected =
            ["its row lacks docs/src/reference/metrics.md", "its example is not in docs/src/reference/flags.md"];
        assert_eq!(found, expected.map(|it| format!("a metric: {it}")));
        let found = problems_of("| a metric |", "| a gauge |");
        assert_eq!(found, ["a metric: no row `| a metric | at most | files |`"]);
    }
}
