//! Programs of an older commit, built from the repository's own history: Pods keep their agent for weeks, so they meet those of now.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use jobset_release::Architecture;

use super::own::{Output, blocking, build};
use super::{RustBinaries, locked, run, rust_binaries};
use crate::paths;
use crate::progress::progress;

/// Names another commit or tag than [`COMMIT`].
const VARIABLE: &str = "JOBSET_OLDER";
/// The commit before the agent stream was on by default. After a release, its tag.
const COMMIT: &str = "0f965c78e8db2187dd231741d2e7d50dbe9d7c76";
/// The programs that meet those of another release.
const PROGRAMS: [&str; 3] = ["jobset-agent", "jobset-controller", "jobset-relay"];

/// Agent, controller and relay of the older commit, built with the development profile; the others are of now. `None`, and a line that
/// says so, in a checkout without history.
///
/// # Errors
/// If the checkout has no commit of the name that [`VARIABLE`] gives, or none at all where `CI` is set, or a build fails.
pub async fn older_binaries() -> Result<Option<RustBinaries>> {
    let Some(commit) = commit()? else { return Ok(None) };
    let now = rust_binaries().await?;
    let folder = blocking(move || build_older(&commit)).await?;
    let [agent, controller, relay] = PROGRAMS.map(|program| folder.join(program));
    Ok(Some(RustBinaries { agent, controller, relay, ..now }))
}

fn commit() -> Result<Option<String>> {
    let named = std::env::var(VARIABLE).ok();
    let name = named.as_deref().unwrap_or(COMMIT);
    let found = git(&["rev-parse", "--quiet", "--verify", &format!("{name}^{{commit}}")]).output();
    let found = found.context("cannot run git")?;
    if found.status.success() {
        return Ok(Some(String::from_utf8(found.stdout)?.trim().to_owned()));
    }
    let absent = format!("this checkout has no commit {name}, whose programs are to meet those of now");
    // On a machine of a pipeline, nobody reads the line.
    ensure!(
        named.is_none() && std::env::var_os("CI").is_none(),
        "{absent}: fetch it (git fetch --unshallow --tags), or name another one by {VARIABLE}"
    );
    progress(&format!("{absent}: what they show is LEFT OUT. Fetch the history: git fetch --unshallow --tags"));
    Ok(None)
}

/// A command of git on the checkout, which may belong to another user than root, who runs tests on kubelets.
fn git(args: &[&str]) -> Command {
    let mut git = Command::new("git");
    git.args(["-c", "safe.directory=*"]).args(args).current_dir(paths::workspace()).stdin(Stdio::null());
    git
}

fn build_older(commit: &str) -> Result<PathBuf> {
    let (all, _lock) = locked("older")?;
    let folder = all.join(commit);
    if !folder.exists() {
        // Those of a commit that was named before.
        for entry in fs::read_dir(&all)?.flatten().filter(|entry| entry.path().is_dir()) {
            paths::remove(&entry.path())?;
        }
        let fresh = all.join("new");
        fs::create_dir_all(&fresh).with_context(|| format!("cannot create {}", fresh.display()))?;
        export(commit, &fresh)?;
        rename_versions(&fresh, &commit[..8])?;
        fs::rename(&fresh, &folder).with_context(|| format!("cannot move it to {}", folder.display()))?;
    }
    let triple = Architecture::of_host()?.triple();
    let bins: Vec<&str> = PROGRAMS.iter().flat_map(|program| ["--bin", program]).collect();
    // All packages are selected, so that dependencies get the features that they have elsewhere, and what is built of them is shared.
    let selection = [&["--workspace", "--all-features"][..], &bins].concat();
    build(&folder, &Output::Apart(folder.join("target")), triple, "dev", &selection)?;
    Ok(folder.join("target").join(triple).join("debug"))
}

/// Gives the packages of a workspace versions of their own. Cargo would take them for those of the checkout, whose results are in the
/// same folder: it knows a package by name, version and place in its workspace.
fn rename_versions(workspace: &Path, commit: &str) -> Result<()> {
    let change = |file: &str, change: &dyn Fn(&str) -> String| {
        let path = workspace.join(file);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let changed = change(&text);
        ensure!(changed != text, "{} has no versions of the workspace", path.display());
        fs::write(&path, changed).with_context(|| format!("cannot write {}", path.display()))
    };
    change("Cargo.toml", &|text| with_version(text, commit))?;
    change("Cargo.lock", &|text| {
        let packages = text.split("[[package]]").map(|package| {
            let is_own = !package.contains("\nsource = ");
            if is_own { with_version(package, commit) } else { package.to_owned() }
        });
        packages.collect::<Vec<_>>().join("[[package]]")
    })
}

/// With build metadata behind the version of a line of its own, if it has three numbers.
fn with_version(text: &str, commit: &str) -> String {
    let changed = text.split_inclusive('\n').map(|line| {
        let version = line.strip_prefix("version = \"").and_then(|rest| rest.strip_suffix("\"\n"));
        match version.filter(|version| version.split('.').count() == 3) {
            Some(version) => format!("version = \"{version}+{commit}\"\n"),
            None => line.to_owned(),
        }
    });
    changed.collect()
}

/// Writes the files of a commit into a folder.
fn export(commit: &str, folder: &Path) -> Result<()> {
    let archive = folder.with_extension("tar");
    let (tar, to) = (archive.to_string_lossy(), folder.to_string_lossy());
    run(&mut git(&["archive", "--output", &tar, commit]))?;
    run(Command::new("tar").args(["--extract", "--file", &tar, "--directory", &to]))?;
    match fs::remove_file(&archive) {
        Ok(()) => Ok(()),
        Err(error) => bail!("cannot remove {}: {error}", archive.display()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_workspace_change_others_stay() {
        let lock = "version = 4\n\n[[package]]\nname = \"a\"\nversion = \"1.2.3\"\nsource = \"registry\"\n\n\
                    [[package]]\nname = \"jobset-api\"\nversion = \"0.1.0\"\n";
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("Cargo.lock"), lock).unwrap();
        fs::write(folder.path().join("Cargo.toml"), "[workspace.package]\nversion = \"0.1.0\"\n").unwrap();
        rename_versions(folder.path(), "0f965c78").unwrap();
        let lock = fs::read_to_string(folder.path().join("Cargo.lock")).unwrap();
        assert!(lock.contains("version = \"1.2.3\"\nsource") && lock.starts_with("version = 4\n"), "{lock}");
        assert!(lock.ends_with("name = \"jobset-api\"\nversion = \"0.1.0+0f965c78\"\n"), "{lock}");
        let manifest = fs::read_to_string(folder.path().join("Cargo.toml")).unwrap();
        assert_eq!(manifest, "[workspace.package]\nversion = \"0.1.0+0f965c78\"\n");
    }
}
