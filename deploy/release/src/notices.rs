//! The notices of what is linked into the programs of a release: each crate with its licence, and the texts that those licences
//! want to be passed on.
//!
//! A crate that leaves the choice is taken under the Apache License 2.0, whose text is this project's own. Of the others all licence
//! files are repeated, as they are in the crate.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId, TargetKind};
use spdx::Expression;

use crate::paths::workspace;

/// The packages of the programs: those of images, and the plugin of kubectl.
const PROGRAMS: [&str; 6] =
    ["jobset-agent", "jobset-certs", "jobset-cli", "jobset-controller", "jobset-relay", "jobset-webhook"];
/// What they run on. The plugin runs on macOS, too.
const TARGETS: [&str; 3] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "aarch64-apple-darwin"];
/// The licence of choice.
const CHOSEN: &str = "Apache-2.0";
/// How the names of files with licences begin.
const FILES: [&str; 6] = ["LICENSE", "LICENCE", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"];
const RULE: &str = "--------------------------------------------------------------------------------";

pub fn file() -> PathBuf {
    workspace().join("deploy/THIRD-PARTY-NOTICES")
}

/// The text of the file for the crates of `Cargo.lock`.
///
/// # Errors
/// If cargo fails, or a crate asks for a licence and has no text of it.
pub fn text() -> Result<String> {
    let begin = workspace().join("deploy/notices.txt");
    let mut text = fs::read_to_string(&begin).with_context(|| format!("cannot read {}", begin.display()))?;
    let mut command = MetadataCommand::new();
    command.manifest_path(workspace().join("Cargo.toml")).other_options(options());
    let metadata = command.exec().context("cannot list the crates")?;
    let linked = linked(&metadata);
    ensure!(linked.len() > 100, "only {} crates are linked", linked.len());
    let (chosen, others): (Vec<&Package>, Vec<&Package>) = linked.into_iter().partition(|it| is_chosen(it));

    writeln!(text, "{RULE}\nCrates under the Apache License 2.0\n{RULE}\n")?;
    let mut texts = BTreeMap::<String, BTreeSet<String>>::new();
    for package in chosen {
        writeln!(text, "{}", line(package))?;
        // Only notices have to be passed on, beside the licence itself.
        for (_, notice) in licence_files(package, &["NOTICE"])? {
            texts.entry(notice).or_default().insert(line(package));
        }
    }
    for package in others {
        let files = licence_files(package, &FILES)?;
        ensure!(!files.is_empty(), "{} has no text of its licence", line(package));
        for (_, licence) in files {
            texts.entry(licence).or_default().insert(line(package));
        }
    }
    for (licence, packages) in texts {
        writeln!(text, "\n{RULE}")?;
        packages.iter().try_for_each(|package| writeln!(text, "{package}"))?;
        writeln!(text, "{RULE}\n\n{licence}")?;
    }
    Ok(text)
}

fn options() -> Vec<String> {
    let targets = TARGETS.iter().flat_map(|target| ["--filter-platform", target]);
    std::iter::once("--locked").chain(targets).map(str::to_owned).collect()
}

/// The crates of others that are linked into a program, by name and version. Macros are not: they run in the compiler.
fn linked(metadata: &Metadata) -> Vec<&Package> {
    let packages: BTreeMap<&PackageId, &Package> = metadata.packages.iter().map(|it| (&it.id, it)).collect();
    let nodes = metadata.resolve.iter().flat_map(|it| &it.nodes);
    let nodes: BTreeMap<_, _> = nodes.map(|it| (&it.id, it)).collect();
    let roots = metadata.packages.iter().filter(|it| PROGRAMS.contains(&it.name.as_str()));
    let mut found: BTreeSet<&PackageId> = roots.map(|it| &it.id).collect();
    let mut next: Vec<&PackageId> = found.iter().copied().collect();
    while let Some(id) = next.pop() {
        for dependency in nodes.get(id).iter().flat_map(|it| &it.deps) {
            let package = packages.get(&dependency.pkg);
            let is_macro =
                package.is_some_and(|it| it.targets.iter().any(|it| it.kind.contains(&TargetKind::ProcMacro)));
            let is_linked = dependency.dep_kinds.iter().any(|it| it.kind == DependencyKind::Normal);
            if is_linked && !is_macro && found.insert(&dependency.pkg) {
                next.push(&dependency.pkg);
            }
        }
    }
    let found = found.into_iter().filter_map(|id| packages.get(id).copied());
    let mut found: Vec<_> = found.filter(|it| it.source.is_some()).collect();
    found.sort_by_key(|it| (it.name.clone(), it.version.clone()));
    found
}

/// Whether the crate can be had under the licence of choice alone.
fn is_chosen(package: &Package) -> bool {
    let expression = package.license.as_deref().and_then(|it| Expression::parse_mode(it, spdx::ParseMode::LAX).ok());
    expression.is_some_and(|it| {
        it.evaluate(|it| it.addition.is_none() && it.license.id().is_some_and(|it| it.name == CHOSEN))
    })
}

fn line(package: &Package) -> String {
    let licence = package.license.as_deref().unwrap_or("its own licence");
    let place = package.repository.as_deref().map(|it| format!(", {it}")).unwrap_or_default();
    format!("{} {} ({licence}{place})", package.name, package.version)
}

/// The files beside the crate's manifest whose names begin so, and what they hold.
fn licence_files(package: &Package, begins: &[&str]) -> Result<Vec<(PathBuf, String)>> {
    let folder = package.manifest_path.parent().context("a manifest has no folder")?;
    let named = |path: &Path| {
        let name = path.file_name().map(|it| it.to_string_lossy().to_uppercase()).unwrap_or_default();
        begins.iter().any(|begin| name.starts_with(begin))
    };
    let paths = fs::read_dir(folder).with_context(|| format!("cannot read {folder}"))?;
    let mut paths = paths.map(|it| Ok(it?.path())).collect::<Result<Vec<_>>>()?;
    paths.retain(|path| named(path) && path.is_file());
    paths.sort();
    let read = |path: PathBuf| {
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<_> = text.trim().lines().map(str::trim_end).collect();
        Ok((path, lines.join("\n")))
    };
    paths.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn committed_notices_are_those_of_the_locked_crates() {
        let text = text().unwrap();
        if std::env::var_os("UPDATE_NOTICES").is_some() {
            fs::write(file(), &text).unwrap();
        }
        let committed = fs::read_to_string(file()).unwrap();
        assert!(committed == text, "{} is stale: run make notices and commit it", file().display());
    }
}
