//! What a suite's program says of its cases: Ginkgo's report as JSON.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::cases::Pass;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Case {
    /// Full name: the texts of its containers, then its own.
    pub name: String,
    pub outcome: Outcome,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    Passed,
    /// Not so; the text says what the suite says.
    Failed(String),
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SuiteReport {
    #[serde(default)]
    spec_reports: Option<Vec<SpecReport>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SpecReport {
    container_hierarchy_texts: Option<Vec<String>>,
    leaf_node_type: String,
    #[serde(default)]
    leaf_node_text: String,
    state: String,
    failure: Option<Failure>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Failure {
    message: String,
    forwarded_panic: String,
}

/// The kind of a node that is a case.
const CASE: &str = "It";

/// Follows the name of a case that has the name of one before it.
pub(super) const AGAIN: &str = " (again)";

/// The state of a case that was not chosen, or that was never reached.
const NOT_RUN: [&str; 2] = ["skipped", "pending"];

/// Reads a report: the cases that ran, and the failures around them.
pub(super) fn read(file: &Path) -> Result<Vec<Case>> {
    let text = fs::read_to_string(file).with_context(|| format!("the suite wrote no report {}", file.display()))?;
    parse(&text)
}

fn parse(text: &str) -> Result<Vec<Case>> {
    let suites: Vec<SuiteReport> = serde_json::from_str(text).context("the suite's report is not Ginkgo's")?;
    let specs: Vec<SpecReport> = suites.into_iter().flat_map(|suite| suite.spec_reports.unwrap_or_default()).collect();
    for node in specs.iter().filter(|spec| spec.leaf_node_type != CASE) {
        ensure!(node.state == "passed", "{} {}: {}", node.leaf_node_type, node.state, node.said());
    }
    let ran = specs.iter().filter(|spec| spec.leaf_node_type == CASE && !NOT_RUN.contains(&spec.state.as_str()));
    let mut cases: Vec<Case> = Vec::new();
    for mut case in ran.map(SpecReport::case) {
        while cases.iter().any(|it| it.name == case.name) {
            case.name += AGAIN;
        }
        cases.push(case);
    }
    Ok(cases)
}

impl SpecReport {
    fn case(&self) -> Case {
        let containers = self.container_hierarchy_texts.iter().flatten();
        // As Ginkgo joins them, when it chooses cases by name.
        let texts = containers.chain([&self.leaf_node_text]).map(String::as_str).filter(|text| !text.is_empty());
        let name: Vec<&str> = texts.collect();
        let outcome = match self.state.as_str() {
            "passed" => Outcome::Passed,
            state => Outcome::Failed(format!("{state}: {}", self.said())),
        };
        Case { name: name.join(" "), outcome }
    }

    fn said(&self) -> String {
        self.failure.as_ref().map(|it| format!("{}{}", it.message, it.forwarded_panic)).unwrap_or_default()
    }
}

/// Fails unless each case of the pass ran once, and no other one did.
pub(super) fn check_complete(pass: &Pass, ran: &[Case]) -> Result<()> {
    let names: BTreeSet<String> = ran.iter().map(|case| case.name.clone()).collect();
    let missing: Vec<_> = pass.cases.difference(&names).collect();
    ensure!(missing.is_empty(), "cases that did not run: {missing:?}");
    let foreign: Vec<_> = names.difference(&pass.cases).collect();
    ensure!(foreign.is_empty(), "cases that ran in another pass than their own: {foreign:?}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"[{"SuiteDescription": "S", "SpecReports": [
        {"ContainerHierarchyTexts": null, "LeafNodeType": "BeforeSuite", "LeafNodeText": "", "State": "passed"},
        {"ContainerHierarchyTexts": ["a", "", "b"], "LeafNodeType": "It", "LeafNodeText": "c", "State": "passed"},
        {"ContainerHierarchyTexts": ["a"], "LeafNodeType": "It", "LeafNodeText": "d", "State": "failed",
         "Failure": {"Message": "expected 1"}},
        {"ContainerHierarchyTexts": ["a"], "LeafNodeType": "It", "LeafNodeText": "e", "State": "skipped"}
    ]}]"#;

    fn pass(cases: &[&str]) -> Pass {
        Pass { gates: "", cases: cases.iter().map(|case| (*case).to_owned()).collect() }
    }

    #[test]
    fn report_names_the_cases_that_ran() {
        let failed = Outcome::Failed("failed: expected 1".to_owned());
        let cases =
            [Case { name: "a b c".into(), outcome: Outcome::Passed }, Case { name: "a d".into(), outcome: failed }];
        assert_eq!(parse(REPORT).unwrap(), cases);
    }

    #[test]
    fn failed_preparation_is_an_error() {
        let report = REPORT.replacen("passed", "failed", 1);
        assert_eq!(parse(&report).unwrap_err().to_string(), "BeforeSuite failed: ");
    }

    #[test]
    fn case_outside_of_its_pass_is_an_error() {
        let ran = parse(REPORT).unwrap();
        check_complete(&pass(&["a b c", "a d"]), &ran).unwrap();
        let error = |pass: &Pass, ran: &[Case]| check_complete(pass, ran).unwrap_err().to_string();
        assert!(error(&pass(&["a b c", "a d", "a e"]), &ran).starts_with("cases that did not run"));
        assert!(error(&pass(&["a d"]), &ran).starts_with("cases that ran in another pass"));
    }

    #[test]
    fn cases_of_one_name_are_told_apart() {
        let report =
            REPORT.replace(r#""LeafNodeText": "d""#, r#""LeafNodeText": "c""#).replace(r#"["a"]"#, r#"["a", "b"]"#);
        let ran = parse(&report).unwrap();
        assert_eq!(ran.iter().map(|case| &*case.name).collect::<Vec<_>>(), ["a b c", "a b c (again)"]);
        let missing = check_complete(&pass(&["a b c", "a b c (again)"]), &ran[..1]).unwrap_err().to_string();
        assert_eq!(missing, r#"cases that did not run: ["a b c (again)"]"#);
        assert!(check_complete(&pass(&["a b c"]), &ran).unwrap_err().to_string().contains("another pass"));
    }
}
