//! The suites as programs: built from the Go module, with our suite files where our programs are judged.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use sha2::{Digest as _, Sha256};

use super::Suite;
use crate::go_jobset;
use jobset_harness::paths;
use jobset_harness::programs::{GO_BUILD_ARGS, GO_BUILD_ENV, locked};
use jobset_harness::progress::progress;

/// Where the suites lie, below the target folder.
const FOLDER: &str = "conformance";

/// Our files, below `e2e/conformance`, and where they lie in the module: the suite files replace the module's own, which start
/// the Go manager in their own process.
const OURS: [(&str, &str); 3] = [
    ("program/program.go", "test/program/program.go"),
    ("webhook/suite_test.go", "test/integration/webhook/suite_test.go"),
    ("controller/suite_test.go", "test/integration/controller/suite_test.go"),
];

/// Built suites.
#[derive(Clone, Debug)]
pub struct Binaries {
    /// The folder of the module, in which the suites run.
    module: PathBuf,
    /// The folder of the suites' programs.
    programs: PathBuf,
}

impl Binaries {
    /// The program of a suite.
    pub(super) fn program(&self, suite: Suite) -> PathBuf {
        self.programs.join(format!("{}.test", suite.name()))
    }

    /// The folder that a suite runs in: it finds files of its module by paths relative to its package.
    pub(super) fn folder(&self, suite: Suite) -> PathBuf {
        self.module.join(suite.package())
    }
}

/// The suites that judge our programs, built if they are missing: one to four minutes.
///
/// # Errors
/// If the module cannot be downloaded, or does not build with our files.
pub async fn ours() -> Result<Binaries> {
    tokio::task::spawn_blocking(ensure_ours).await?
}

/// The unmodified suites, built if they are missing.
///
/// # Errors
/// If the module cannot be downloaded, or does not build.
pub async fn originals() -> Result<Binaries> {
    tokio::task::spawn_blocking(ensure_originals).await?
}

fn ensure_ours() -> Result<Binaries> {
    let (root, _lock) = locked(FOLDER)?;
    let sources = paths::workspace().join("e2e/conformance");
    let dir = root.join(format!("suites-{}", hash(&sources)?));
    let binaries = |dir: &Path| Binaries { module: dir.join("module"), programs: dir.to_path_buf() };
    built(&dir, |building| {
        let made = binaries(building);
        copy(&go_jobset::module()?, &made.module)?;
        for (ours, path) in OURS {
            let to = made.module.join(path);
            fs::create_dir_all(to.parent().unwrap_or(&to))?;
            // The module's own file is read-only.
            let _ = fs::remove_file(&to);
            fs::copy(sources.join(ours), &to).with_context(|| format!("cannot write {}", to.display()))?;
        }
        compile(&made, &[Suite::Webhook, Suite::Controller])
    })?;
    Ok(binaries(&dir))
}

fn ensure_originals() -> Result<Binaries> {
    let (root, _lock) = locked(FOLDER)?;
    let dir = root.join(format!("originals-{}", go_jobset::VERSION));
    let module = go_jobset::module()?;
    built(&dir, |building| {
        compile(&Binaries { module: module.clone(), programs: building.to_path_buf() }, &Suite::ALL)
    })?;
    Ok(Binaries { module, programs: dir })
}

/// Fills a folder if it does not exist.
fn built(dir: &Path, fill: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    if dir.exists() {
        return Ok(());
    }
    let building = dir.with_file_name("building");
    if building.exists() {
        fs::remove_dir_all(&building).with_context(|| format!("cannot remove {}", building.display()))?;
    }
    fs::create_dir_all(&building)?;
    fill(&building)?;
    remove_older(dir)?;
    fs::rename(&building, dir).with_context(|| format!("cannot move the suites to {}", dir.display()))
}

/// Removes the folders beside this one that were filled from other sources: their names differ in the hash alone.
fn remove_older(dir: &Path) -> Result<()> {
    let (Some(root), Some(name)) = (dir.parent(), dir.file_name()) else { return Ok(()) };
    let name = name.to_string_lossy();
    let kind = name.split_once('-').map_or(&*name, |(kind, _)| kind);
    for entry in fs::read_dir(root)? {
        let path = entry?.path();
        let is_older = path.file_name().is_some_and(|it| it.to_string_lossy().starts_with(&format!("{kind}-")));
        if is_older {
            fs::remove_dir_all(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

fn compile(binaries: &Binaries, suites: &[Suite]) -> Result<()> {
    let packages: Vec<String> = suites.iter().map(|suite| format!("./{}", suite.package())).collect();
    progress(&format!("building the Go JobSet's suites {}", packages.join(" ")));
    let start = Instant::now();
    let output = Command::new("go")
        .args(["test", "-c"])
        .args(GO_BUILD_ARGS)
        .args(["-ldflags", "-s -w", "-o"])
        .arg(format!("{}/", binaries.programs.display()))
        .args(&packages)
        .current_dir(&binaries.module)
        .env("CGO_ENABLED", "0")
        .envs(GO_BUILD_ENV)
        .env_remove("GOFLAGS")
        .stdin(Stdio::null())
        .output()
        .context("cannot run go: install Go 1.26 or newer (https://go.dev/dl) and put it on the PATH")?;
    if !output.status.success() {
        bail!("go test -c ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    progress(&format!("built the suites in {:.0} s", start.elapsed().as_secs_f64()));
    Ok(())
}

/// Copies a folder; the module cache keeps its files read-only, and the copy's folders are not.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("cannot read {}", from.display()))? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), &to).with_context(|| format!("cannot write {}", to.display()))?;
        }
    }
    Ok(())
}

/// A hash over what decides the outcome of a build with our files.
fn hash(sources: &Path) -> Result<String> {
    let mut hash = Sha256::new();
    hash.update(go_jobset::VERSION);
    for (ours, _) in OURS {
        let file = sources.join(ours);
        hash.update([0]);
        hash.update(fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?);
    }
    Ok(format!("{:x}", hash.finalize()).chars().take(12).collect())
}
