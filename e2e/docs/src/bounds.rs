//! The table of bounds: every row names a number that is in the code, and a test that exceeds it.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, Result};

/// What is wrong with the rows of the table in this page, read against the sources of this workspace.
///
/// A row is `| what | number | source | test |`. The source is `` `NAME` in `file` ``, or a flag with the file that has it; the
/// test is the name of a function.
pub fn problems(page: &str, workspace: &Path) -> Result<Vec<String>> {
    let tests = test_names(workspace)?;
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| what "));
    let mut problems = Vec::new();
    for row in rows {
        let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
        let [what, _, source, test] = cells[..] else {
            problems.push(format!("not four cells: {row}"));
            continue;
        };
        let quoted = |cell: &str| cell.split('`').skip(1).step_by(2).map(ToOwned::to_owned).collect::<Vec<_>>();
        match &quoted(source)[..] {
            [name, file] => {
                let code = std::fs::read_to_string(workspace.join(file)).unwrap_or_default();
                let field = name.trim_start_matches("--").replace('-', "_");
                if !code.contains(name) && !code.contains(&field) {
                    problems.push(format!("{what}: {file} has no {name}"));
                }
            }
            _ => problems.push(format!("{what}: the source is no name in a file: {source}")),
        }
        let of_row = quoted(test);
        if of_row.is_empty() {
            problems.push(format!("{what}: no test"));
        }
        problems
            .extend(of_row.iter().filter(|name| !tests.contains(*name)).map(|name| format!("{what}: no test {name}")));
    }
    Ok(problems)
}

/// The names of all functions in the Rust sources of the workspace.
fn test_names(workspace: &Path) -> Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    for folder in ["agent", "api", "certs", "controller", "webhook", "e2e"] {
        add_names(&workspace.join(folder), &mut names)?;
    }
    Ok(names)
}

fn add_names(folder: &Path, names: &mut BTreeSet<String>) -> Result<()> {
    for entry in std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            add_names(&path, names)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path)?;
            let functions = text.lines().filter_map(|line| line.trim().split_once("fn ")?.1.split_once('('));
            names.extend(functions.map(|(name, _)| name.to_owned()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use jobset_harness::paths;

    use super::*;

    #[test]
    fn each_bound_names_its_constant_and_its_test() {
        let page = std::fs::read_to_string(crate::pages_folder().join("bounds.md")).unwrap();
        assert_eq!(problems(&page, &paths::workspace()).unwrap(), Vec::<String>::new());
        assert!(page.lines().filter(|line| line.starts_with("| ")).count() > 10);
    }

    #[test]
    fn bound_without_constant_or_test_is_a_problem() {
        let page = "| what | number | source | test |\n| a | 1 | `NOBODY` in `controller/src/lib.rs` | `no_such_test` |\n| b | 2 | none | |";
        let found = problems(page, &paths::workspace()).unwrap();
        assert_eq!(found.len(), 4, "{found:?}");
    }
}
