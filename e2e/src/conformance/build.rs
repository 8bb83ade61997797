//! The suites as programs: built from the Go module, with our suite files where our programs are judged.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use sha2::{Digest as _, Sha256};

use super::Suite;
use crate::go_jobset;
use jobset_harness::paths;
use jobset_harness::programs::{GO_BUILD_ARGS, filled, go, locked, run};
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
    let dir = filled(&root, "suites", &hash(&sources)?, |building| {
        let module = building.join("module");
        let copy = ["--recursive", "--no-target-directory", "--no-preserve=mode"];
        // The module cache keeps its files read-only.
        run(Command::new("cp").args(copy).arg(go_jobset::module()?).arg(&module))?;
        for (ours, path) in OURS {
            let to = module.join(path);
            fs::create_dir_all(to.parent().unwrap_or(&to))?;
            fs::copy(sources.join(ours), &to).with_context(|| format!("cannot write {}", to.display()))?;
        }
        compile(&module, building, &[Suite::Webhook, Suite::Controller])
    })?;
    Ok(Binaries { module: dir.join("module"), programs: dir })
}

fn ensure_originals() -> Result<Binaries> {
    let (root, _lock) = locked(FOLDER)?;
    let module = go_jobset::module()?;
    let build = |building: &Path| compile(&module, building, &Suite::ALL);
    let programs = filled(&root, "originals", go_jobset::VERSION, build)?;
    Ok(Binaries { module, programs })
}

/// Compiles suites of a module into a folder.
fn compile(module: &Path, programs: &Path, suites: &[Suite]) -> Result<()> {
    let packages: Vec<String> = suites.iter().map(|suite| format!("./{}", suite.package())).collect();
    progress(&format!("building the Go JobSet's suites {}", packages.join(" ")));
    let start = Instant::now();
    let output = go(false)
        .args(["test", "-c"])
        .args(GO_BUILD_ARGS)
        .args(["-ldflags", "-s -w", "-o"])
        .arg(format!("{}/", programs.display()))
        .args(&packages)
        .current_dir(module)
        .output()
        .context("cannot run go: install Go 1.26 or newer (https://go.dev/dl) and put it on the PATH")?;
    if !output.status.success() {
        bail!("go test -c ended with {}: {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    progress(&format!("built the suites in {:.0} s", start.elapsed().as_secs_f64()));
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
