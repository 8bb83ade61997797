//! What is wrong with the pages of the site: links that lead nowhere, manifests that admission rejects, commands that do not
//! exist, pages that are too long.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use clap::CommandFactory as _;
use jobset_cli::validate::{self, AdmissionSettings, Outcome, Source};
use jobset_harness::markdown::{Block, blocks};
use jobset_harness::paths;

/// Most lines of a page that is written by hand.
const LONGEST: usize = 300;

struct PageText {
    /// Below the folder of the pages.
    path: PathBuf,
    text: String,
}

/// All problems of the pages in this folder, each with its page and line.
pub fn problems(folder: &Path) -> Result<Vec<String>> {
    let pages = pages(folder, Path::new(""))?;
    let (workspace, targets) = (paths::workspace(), make_targets()?);
    let mut problems = Vec::new();
    for page in pages_in(&workspace, Path::new(""))? {
        problems.extend(broken_links(&workspace, &page));
        problems.extend(target_problems(&page, &targets));
    }
    for page in &pages {
        problems.extend(target_problems(page, &targets));
        let lines = page.text.lines().count();
        if lines > LONGEST {
            problems.push(format!("{}: {lines} lines, more than {LONGEST}", page.path.display()));
        }
        problems.extend(broken_links(folder, page));
        match blocks(&page.text) {
            Ok(blocks) => problems.extend(blocks.iter().flat_map(|block| block_problems(page, block))),
            Err(error) => problems.push(format!("{}: {error}", page.path.display())),
        }
    }
    Ok(problems)
}

/// The pages in this folder and in those within it.
fn pages(folder: &Path, below: &Path) -> Result<Vec<PageText>> {
    let mut pages = pages_in(folder, below)?;
    for entry in fs::read_dir(folder.join(below))? {
        let entry = entry?;
        if entry.path().is_dir() {
            pages.extend(self::pages(folder, &below.join(entry.file_name()))?);
        }
    }
    pages.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(pages)
}

/// The pages in this folder alone.
fn pages_in(folder: &Path, below: &Path) -> Result<Vec<PageText>> {
    let entries = fs::read_dir(folder.join(below)).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut pages = Vec::new();
    for entry in entries {
        let path = below.join(entry?.file_name());
        if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(PageText { text: fs::read_to_string(folder.join(&path))?, path });
        }
    }
    Ok(pages)
}

/// Links and pictures of a page to files that do not exist, or to headings that a page does not have.
fn broken_links(folder: &Path, page: &PageText) -> Vec<String> {
    let directory = page.path.parent().unwrap_or(Path::new(""));
    let mut problems = Vec::new();
    for (number, target) in links(&page.text) {
        if target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let (file, heading) = target.split_once('#').unwrap_or((&target, ""));
        let path = if file.is_empty() { folder.join(&page.path) } else { folder.join(directory).join(file) };
        let text = fs::read_to_string(&path);
        let is_missing =
            !path.exists() || !heading.is_empty() && !text.is_ok_and(|text| headings(&text).contains(heading));
        if is_missing {
            problems.push(format!("{}:{number}: the link {target} leads nowhere", page.path.display()));
        }
    }
    problems
}

/// The targets of links and inclusions outside of code, with their lines.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    let mut in_code = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if in_code {
            continue;
        }
        let included = line.split("{{#include ").skip(1).filter_map(|rest| rest.split("}}").next());
        let linked = line.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
        links.extend(included.chain(linked).map(|target| (index + 1, target.trim().to_owned())));
    }
    links
}

/// The anchors of a page's headings, as mdBook makes them.
fn headings(text: &str) -> BTreeSet<String> {
    let title = |line: &str| line.strip_prefix('#').map(|rest| rest.trim_start_matches('#').trim().to_owned());
    let anchor = |title: String| -> String {
        let kept = title
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || [' ', '-', '_'].contains(c))
            .collect::<String>();
        kept.replace(' ', "-")
    };
    text.lines().filter_map(title).map(anchor).collect()
}

fn block_problems(page: &PageText, block: &Block) -> Vec<String> {
    let place = format!("{}:{}", page.path.display(), block.line);
    match block.language.as_str() {
        "yaml" => manifest_problems(&block.text).into_iter().map(|problem| format!("{place}: {problem}")).collect(),
        "yaml,part" => not_yaml(&block.text).into_iter().map(|problem| format!("{place}: {problem}")).collect(),
        "console" => {
            let unknown = block.text.lines().filter_map(unknown_command);
            unknown.map(|problem| format!("{place}: {problem}")).collect()
        }
        "" => vec![format!("{place}: the code block names no language: yaml, yaml,part, console, text, or another")],
        _ => Vec::new(),
    }
}

/// Why a part of an object is no YAML.
fn not_yaml(text: &str) -> Option<String> {
    let parsed: Result<serde_json::Value, _> = serde_yaml_ng::from_str(text);
    parsed.err().map(|error| format!("this is no YAML: {error}"))
}

/// Why admission rejects objects. A part of an object is marked `yaml,part`.
fn manifest_problems(text: &str) -> Vec<String> {
    let source = Source { name: "block".to_owned(), text: Ok(text.to_owned()) };
    let verdicts = validate::check(&[source], &AdmissionSettings::default());
    let failed =
        verdicts.objects.into_iter().filter(|it| matches!(it.outcome, Outcome::Rejected | Outcome::Unreadable));
    failed
        .map(|verdict| {
            let errors: Vec<String> = verdict.errors.iter().map(|it| format!("{}: {}", it.field, it.message)).collect();
            format!("admission rejects {} {}: {}", verdict.kind, verdict.name, errors.join("; "))
        })
        .collect()
}

/// The targets of the Makefile and of what it includes.
fn make_targets() -> Result<BTreeSet<String>> {
    let mut targets = BTreeSet::new();
    for file in ["Makefile", "deploy/release/targets.mk"] {
        let text = fs::read_to_string(paths::workspace().join(file)).with_context(|| format!("cannot read {file}"))?;
        targets.extend(text.lines().filter_map(|line| line.split_once(':')).map(|(target, _)| target.to_owned()));
    }
    Ok(targets)
}

fn target_problems(page: &PageText, targets: &BTreeSet<String>) -> impl Iterator<Item = String> {
    let unknown = unknown_targets(&page.text, targets).into_iter();
    unknown.map(|(line, target)| format!("{}:{line}: `make {target}` is not a target", page.path.display()))
}

/// Commands `make TARGET` in code whose target does not exist, with their lines.
fn unknown_targets(text: &str, targets: &BTreeSet<String>) -> Vec<(usize, String)> {
    let mut unknown = Vec::new();
    let mut in_code = false;
    for (index, line) in text.lines().enumerate() {
        in_code ^= line.starts_with("```");
        let fenced_or_indented = in_code || line.starts_with("    ");
        let before: &[&str] = if fenced_or_indented { &[" make ", "\nmake "] } else { &["`make "] };
        let line = format!("\n{line}");
        let commands = before.iter().flat_map(|before| line.split(*before).skip(1));
        let named = commands.filter_map(|rest| rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').next());
        unknown.extend(named.filter(|it| !targets.contains(*it)).map(|target| (index + 1, target.to_owned())));
    }
    unknown
}

/// Whether a line begins with a command of the plugin that it does not have. A word in capitals stands for a name.
fn unknown_command(line: &str) -> Option<String> {
    let line = line.trim_start().strip_prefix("$ ").unwrap_or(line.trim_start());
    let rest = line.strip_prefix("kubectl jobset ")?;
    let words = rest.split_whitespace().take_while(|word| !["|", ">", "#", "&&", ";"].contains(word));
    let is_placeholder = |word: &str| word.chars().all(|c| c.is_ascii_uppercase());
    let words =
        words.filter(|word| !word.starts_with("$(")).map(|word| if is_placeholder(word) { "name" } else { word });
    let words = std::iter::once("kubectl-jobset").chain(words);
    let error = jobset_cli::args::Cli::command().try_get_matches_from(words).err()?;
    let is_fine = matches!(error.kind(), clap::error::ErrorKind::DisplayHelp | clap::error::ErrorKind::DisplayVersion);
    (!is_fine).then(|| format!("`{line}` is not a command: {}", error.to_string().lines().next().unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn make_target_in_code_must_exist() {
        let targets = BTreeSet::from(["demo".to_owned()]);
        let text = "make it so, `make demo ARGS=1` and `make tea`\n```console\nmake demo\nmake coffee && make demo\n```\n\n    make cake    # a cake\n";
        let found = unknown_targets(text, &targets);
        assert_eq!(found, [(1, "tea".to_owned()), (4, "coffee".to_owned()), (7, "cake".to_owned())]);
    }

    #[test]
    fn each_problem_of_a_page_is_found() {
        let folder = std::env::temp_dir().join(format!("jobset-docs-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let page = "# One\n[a](two.md) [b](#one) [c](#none)\n\n```yaml\napiVersion: jobset.x-k8s.io/v1alpha2\nkind: JobSet\n\
                    metadata: {name: n}\nspec: {replicas: 3}\n```\n\n```yaml\na: [\n```\n\n```console\n$ kubectl jobset sing\n\
                    $ kubectl jobset status train\n```\n";
        fs::write(folder.join("page.md"), page).unwrap();
        let found = problems(&folder).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        let places: Vec<&str> = found.iter().map(|it| it.split(": ").next().unwrap()).collect();
        assert_eq!(places, ["page.md:2", "page.md:2", "page.md:4", "page.md:11", "page.md:15"], "{found:#?}");
    }
}
