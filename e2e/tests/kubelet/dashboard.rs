//! The Grafana dashboard of the chart: its expressions, to be asked of a Prometheus, and its form.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use jobset_harness::chart::Chart;
use jobset_harness::paths;
use jobset_harness::programs::run;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) panel: String,
    /// The expression, as a Prometheus takes it.
    pub(crate) expression: String,
}

fn file() -> PathBuf {
    Chart::folder().join("files/dashboard.json")
}

/// Compiles the dashboard against the types that Grafana publishes of its schema.
pub(crate) fn check_schema() -> Result<()> {
    let (sources, folder) = (paths::workspace().join("e2e/dashboard"), paths::target().join("dashboard"));
    fs::create_dir_all(&folder)?;
    for source in ["package.json", "package-lock.json", "tsconfig.json", "generate.mjs"] {
        fs::copy(sources.join(source), folder.join(source)).with_context(|| format!("cannot copy {source}"))?;
    }
    let file = file();
    let file = file.to_string_lossy();
    for command in
        [&["npm", "ci", "--no-audit", "--no-fund"][..], &["node", "generate.mjs", &file], &["npx", "tsc", "-p", "."]]
    {
        let [program, args @ ..] = command else { continue };
        run(Command::new(program).args(args).current_dir(&folder)).context("it needs Node.js with npm")?;
    }
    Ok(())
}

/// All expressions of the dashboard, over the time `range` (as in `5m`), of all namespaces.
pub(crate) fn queries(range: &str) -> Result<Vec<Query>> {
    let file = file();
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let dashboard: Value = serde_json::from_str(&text).context("the dashboard is no JSON")?;
    let panels = dashboard["panels"].as_array().context("the dashboard has no panels")?;
    let of_panel = |panel: &Value| {
        let title = panel["title"].as_str().unwrap_or_default().to_owned();
        let targets = panel["targets"].as_array().cloned().unwrap_or_default();
        let expressions = targets.into_iter().filter_map(|target| Some(target["expr"].as_str()?.to_owned()));
        let query = move |expression: String| Query { panel: title.clone(), expression: filled(&expression, range) };
        expressions.map(query).collect::<Vec<_>>()
    };
    Ok(panels.iter().flat_map(of_panel).collect())
}

/// The expression with Grafana's variables replaced by what they are when nothing is selected.
fn filled(expression: &str, range: &str) -> String {
    let variables = [("$__rate_interval", range), ("$__range", range), ("$namespace", ".*")];
    variables.iter().fold(expression.to_owned(), |text, (variable, value)| text.replace(variable, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dashboard_expression_filled_has_no_variable() {
        let queries = queries("5m").unwrap();
        assert!(queries.len() > 20, "{}", queries.len());
        for query in queries {
            assert!(!query.expression.contains('$'), "{query:?}");
        }
    }
}
