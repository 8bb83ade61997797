//! Pages of names: each is a documented constant of the code.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use syn::{Attribute, Expr, Item, Lit, Meta, Visibility};

use super::cell;

const LABELS: &str = "api/protocol/src/labels.rs";

struct Constant {
    name: String,
    value: String,
    docs: String,
}

/// Conditions of JobSets, and reasons of conditions and Events.
pub(super) fn events(workspace: &Path) -> Result<String> {
    let conditions = constants(workspace, "api/src/conditions.rs")?;
    let events = constants(workspace, "api/src/event.rs")?;
    let labels = constants(workspace, LABELS)?;
    let is_reason = |constant: &&Constant| {
        constant.docs.starts_with("Reason of") || constant.docs.starts_with("Prefix of the reason")
    };
    let (reasons, types): (Vec<&Constant>, Vec<&Constant>) = conditions.iter().partition(|it| is_reason(it));
    let mut page =
        "# Conditions and events\n\nThe controller writes both. Types and reasons that the Go JobSet has as well are \
                    the same there.\n\n## Conditions of a JobSet\n\n"
            .to_owned();
    table(&mut page, "type", &types, &conditions, &labels);
    page.push_str("\n## Reasons of conditions\n\nMost of them are also reasons of Events.\n\n");
    table(&mut page, "reason", &reasons, &conditions, &labels);
    page.push_str("\n## Reasons of other Events\n\n");
    table(&mut page, "reason", &events.iter().collect::<Vec<_>>(), &events, &labels);
    Ok(page)
}

/// Labels, annotations, and the environment of the agent.
pub(super) fn labels(workspace: &Path) -> Result<String> {
    let labels = constants(workspace, LABELS)?;
    let agent = constants(workspace, "api/protocol/src/agent.rs")?;
    let mut page = "# Labels, annotations and environment\n\n## Labels and annotations\n\n".to_owned();
    table(&mut page, "name", &labels.iter().collect::<Vec<_>>(), &labels, &labels);
    page.push_str("\n## Names and variables of the agent\n\nVariables are set in the agent's container.\n\n");
    table(&mut page, "name or value", &agent.iter().collect::<Vec<_>>(), &agent, &labels);
    Ok(page)
}

/// `known` are the constants beside these.
fn table(page: &mut String, title: &str, constants: &[&Constant], known: &[Constant], labels: &[Constant]) {
    let _ = writeln!(page, "| {title} | meaning |\n|---|---|");
    for constant in constants {
        let _ = writeln!(page, "| `{}` | {} |", constant.value, cell(&resolved(&constant.docs, known, labels)));
    }
}

/// Documentation in which links to other constants are their values. A name may be that of two: a label, and one beside the constant.
fn resolved(docs: &str, known: &[Constant], labels: &[Constant]) -> String {
    let mut text = docs.to_owned();
    for Constant { name, value, .. } in labels {
        text = text.replace(&format!("[`{name}`](crate::labels::{name})"), &format!("`{value}`"));
    }
    for other in known {
        text = text.replace(&format!("[`{}`]", other.name), &format!("`{}`", other.value));
    }
    text.replace("[`", "`").replace("`]", "`")
}

/// The public constants of a file, in its order.
fn constants(workspace: &Path, file: &str) -> Result<Vec<Constant>> {
    let text = fs::read_to_string(workspace.join(file)).with_context(|| format!("cannot read {file}"))?;
    let parsed = syn::parse_file(&text).with_context(|| format!("{file} is not Rust"))?;
    let constants = parsed.items.iter().filter_map(|item| match item {
        Item::Const(item) if matches!(item.vis, Visibility::Public(_)) => {
            let value = literal(&item.expr)?;
            Some(Constant { name: item.ident.to_string(), value, docs: docs(&item.attrs) })
        }
        _ => None,
    });
    Ok(constants.collect())
}

fn literal(expression: &Expr) -> Option<String> {
    let Expr::Lit(literal) = expression else { return None };
    match &literal.lit {
        Lit::Str(text) => Some(text.value()),
        Lit::Int(number) => Some(number.base10_digits().to_owned()),
        _ => None,
    }
}

/// The documentation of an item, without the line breaks of its source.
fn docs(attributes: &[Attribute]) -> String {
    let lines = attributes.iter().filter_map(|attribute| match &attribute.meta {
        Meta::NameValue(pair) if pair.path.is_ident("doc") => match &pair.value {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Str(text) => Some(text.value().trim().to_owned()),
                _ => None,
            },
            _ => None,
        },
        _ => None,
    });
    lines.collect::<Vec<_>>().join("\n")
}
