//! The text of nodes.

use super::report::{Avoidance, JobSetName, NodeReport, NodeRow, ObservedNode};
use crate::output::{BAD, GOOD, Report, Table, View, WAIT, age, paint};

/// The most names in a cell. With `-o wide`, all of them are there.
const NAMED: usize = 3;

impl Report for NodeReport {
    fn text(&self, view: &View) -> String {
        if self.nodes.is_empty() {
            let place =
                self.namespace.as_ref().map_or_else(|| "all namespaces".to_owned(), |it| format!("namespace {it}"));
            return format!("No JobSet in {place} blames a node for a failure of the last 24 hours.\n");
        }
        let titles = ["NODE", "FAILURES", "JOBSETS", "LAST", "REASONS", "AVOIDED BY", "CORDONED", "READY"];
        let mut table = Table::titled(&titles);
        for node in &self.nodes {
            let [cordoned, ready] = observed(node.observed);
            table.push(vec![
                node.name.clone(),
                paint(if node.failures > 1 { BAD } else { WAIT }, node.failures.to_string()),
                few(node.jobsets.iter().map(|jobset| self.name(jobset)), view),
                if node.last.is_some() { age(node.last, view.now) } else { "-".to_owned() },
                reasons(node),
                few(node.avoided_by.iter().map(|avoidance| self.avoidance(avoidance, view)), view),
                cordoned,
                ready,
            ]);
        }
        table.render()
    }
}

impl NodeReport {
    /// The name of a JobSet, with its namespace if there are several.
    fn name(&self, JobSetName { namespace, name }: &JobSetName) -> String {
        if self.namespace.is_some() { name.clone() } else { format!("{namespace}/{name}") }
    }

    fn avoidance(&self, Avoidance { jobset, until }: &Avoidance, view: &View) -> String {
        format!("{} for {}", self.name(jobset), age(Some(view.now), *until))
    }
}

fn reasons(node: &NodeRow) -> String {
    let reasons = node.reasons.iter().map(|(reason, failures)| format!("{reason} {failures}"));
    or_dash(reasons.collect::<Vec<_>>().join(", "))
}

/// The columns CORDONED and READY.
fn observed(node: Option<ObservedNode>) -> [String; 2] {
    match node {
        None => ["-".to_owned(), "-".to_owned()],
        Some(ObservedNode { exists: false, .. }) => ["-".to_owned(), paint(BAD, "gone")],
        Some(ObservedNode { cordoned, ready, .. }) => [
            if cordoned { paint(WAIT, "yes") } else { "no".to_owned() },
            if ready { paint(GOOD, "yes") } else { paint(BAD, "no") },
        ],
    }
}

/// The first of some texts, and the number of the others.
fn few(texts: impl Iterator<Item = String>, view: &View) -> String {
    let mut texts: Vec<String> = texts.collect();
    let more = texts.len().saturating_sub(NAMED);
    if more > 0 && !view.wide {
        texts.truncate(NAMED);
        texts.push(format!("{more} more"));
    }
    or_dash(texts.join(", "))
}

fn or_dash(text: String) -> String {
    if text.is_empty() { "-".to_owned() } else { text }
}
