//! The metrics of the programs, from where they are made in the code: a name, followed by its help.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

use super::cell;

/// The programs that serve metrics, and where each makes its own.
const PROGRAMS: [(&str, &[&str]); 4] = [
    ("jobset-controller", &["controller/src", "api/metrics/src", "api/program/src"]),
    ("jobset-webhook", &["webhook/src"]),
    ("jobset-certs", &["certs/src"]),
    ("jobset-relay", &["agent/relay/src"]),
];

/// What names of metrics begin with.
const PREFIXES: [&str; 5] = ["jobset_", "kube_jobset_", "controller_runtime_", "workqueue_", "process_"];

struct Metric {
    help: String,
    labels: Vec<String>,
}

pub(super) fn page(workspace: &Path) -> Result<String> {
    let mut page = "# Metrics\n\nEvery program serves `/metrics`; [Metrics and dashboard](../metrics.md) says how to scrape it. A name that \
                    ends with `_total` is a counter. Metrics that begin with `kube_jobset_`, and those with `jobset_name` that are no \
                    counters, are optional (`--metrics-per-jobset`).\n"
        .to_owned();
    for (program, folders) in PROGRAMS {
        let mut metrics = BTreeMap::new();
        for folder in folders {
            for file in sources(&workspace.join(folder))? {
                let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
                let Ok(tokens) = text.parse::<TokenStream>() else { bail!("{} is not Rust", file.display()) };
                collect(tokens, None, &[], &mut metrics);
            }
        }
        let _ = writeln!(page, "\n## {program}\n\n| metric | labels | meaning |\n|---|---|---|");
        for (name, Metric { help, labels }) in metrics {
            let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
            let _ = writeln!(page, "| `{name}` | {} | {} |", labels.join(", "), cell(&help));
        }
    }
    Ok(page)
}

/// The files of a folder that are not tests.
fn sources(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if path.is_dir() && !["tests", "proof"].contains(&name) {
            files.extend(sources(&path)?);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !name.ends_with("tests.rs") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Takes each name that is followed by a comma and a text, or by the variable `help`. Modules of tests are left out. `after` is what
/// follows after the group of these tokens.
fn collect(tokens: TokenStream, mut help: Option<String>, after: &[TokenTree], metrics: &mut BTreeMap<String, Metric>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    pairs(&tokens, help.as_deref(), after, metrics);
    for (place, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Group(group) => {
                let is_tests = group.delimiter() == Delimiter::Brace
                    && place > 0
                    && tokens.get(place - 1).is_some_and(|before| before.to_string() == "tests");
                if !is_tests {
                    collect(group.stream(), help.clone(), &tokens[place + 1..], metrics);
                }
            }
            // `let help = "…";`
            TokenTree::Ident(name) if name == "help" => help = tokens.get(place + 2).and_then(text).or(help),
            _ => {}
        }
    }
}

/// `"name", "help"`, or `"name", help` with the help of a variable.
fn pairs(tokens: &[TokenTree], variable: Option<&str>, after: &[TokenTree], metrics: &mut BTreeMap<String, Metric>) {
    for (place, window) in tokens.windows(3).enumerate() {
        let [name, comma, help] = window else { continue };
        let Some(name) = text(name).filter(|name| is_metric(name)) else { continue };
        if comma.to_string() != "," {
            continue;
        }
        let help = text(help).or_else(|| (help.to_string() == "help").then(|| variable.map(str::to_owned)).flatten());
        if let Some(help) = help.filter(|help| help.contains(' ')) {
            let labels = Some(labels(tokens.get(place + 4..).unwrap_or_default()))
                .filter(|labels| !labels.is_empty())
                .unwrap_or_else(|| labels_after(after));
            metrics.entry(name).or_insert(Metric { help, labels });
        }
    }
}

/// The texts of a list `&["one", "two"]` at the beginning.
fn labels(tokens: &[TokenTree]) -> Vec<String> {
    let [reference, TokenTree::Group(list), ..] = tokens else { return Vec::new() };
    if reference.to_string() != "&" || list.delimiter() != Delimiter::Bracket {
        return Vec::new();
    }
    list.stream().into_iter().filter_map(|token| text(&token)).collect()
}

/// The labels behind `Opts::new("name", "help")`: `, &["one", "two"]`; or `options, &["one", "two"]` in the next statement, where these
/// are a variable.
fn labels_after(after: &[TokenTree]) -> Vec<String> {
    let direct = labels(after.get(1..).unwrap_or_default());
    let [semicolon, next, ..] = after else { return direct };
    if !direct.is_empty() || semicolon.to_string() != ";" {
        return direct;
    }
    let is_end = |token: &&TokenTree| token.to_string() != ";";
    let statement: TokenStream = std::iter::once(next).chain(after[2..].iter().take_while(is_end)).cloned().collect();
    let mut flat = Vec::new();
    flatten(statement, &mut flat);
    let of_options = flat.windows(2).position(|pair| pair[0].to_string() == "options" && pair[1].to_string() == ",");
    of_options.map_or(direct, |place| labels(&flat[place + 2..]))
}

/// All tokens, those in parentheses after these themselves.
fn flatten(tokens: TokenStream, flat: &mut Vec<TokenTree>) {
    for token in tokens {
        let inner = match &token {
            TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => Some(group.stream()),
            _ => None,
        };
        flat.push(token);
        if let Some(inner) = inner {
            flatten(inner, flat);
        }
    }
}

fn is_metric(name: &str) -> bool {
    PREFIXES.iter().any(|prefix| name.starts_with(prefix)) && name.chars().all(|c| c.is_ascii_lowercase() || c == '_')
}

fn text(token: &TokenTree) -> Option<String> {
    let TokenTree::Literal(literal) = token else { return None };
    syn::parse_str::<syn::LitStr>(&literal.to_string()).ok().map(|literal| literal.value())
}
