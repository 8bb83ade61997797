//! The suites as programs: built from their Go modules, with our files where our programs are judged.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use sha2::{Digest as _, Sha256};

use super::suite::{Project, Suite};
use jobset_harness::paths;
use jobset_harness::programs::{self, GO_BUILD_ARGS, filled, go, locked, run, short};
use jobset_harness::progress::progress;

/// Where the suites lie, below the target folder.
const FOLDER: &str = "conformance";

/// Runs our programs; for every project. Below `e2e/conformance`, and where it lies in a module.
const PROGRAM: (&str, &str) = ("program/program.go", "test/program/program.go");

#[derive(Clone, Debug)]
pub(super) struct Binaries {
    /// The folder of the module, in which the suites run.
    module: PathBuf,
    programs: PathBuf,
}

impl Binaries {
    pub(super) fn program(&self, suite: Suite) -> PathBuf {
        self.programs.join(format!("{}.test", suite.name()))
    }

    /// The folder that a suite runs in: it finds files of its module by paths relative to its package.
    pub(super) fn folder(&self, suite: Suite) -> PathBuf {
        self.module.join(suite.package())
    }
}

/// The files of ours that a module gets in place of its own, below `e2e/conformance`, and where they lie in it: its own start
/// a manager in their own process.
fn ours(project: Project) -> &'static [(&'static str, &'static str)] {
    match project {
        Project::JobSet => &[
            PROGRAM,
            ("webhook/suite_test.go", "test/integration/webhook/suite_test.go"),
            ("controller/suite_test.go", "test/integration/controller/suite_test.go"),
        ],
        Project::Trainer => &[PROGRAM, ("trainer/framework.go", "test/integration/framework/framework.go")],
        Project::Kueue => &[],
    }
}

/// A CustomResourceDefinition of a third project, which a suite's own build downloads.
struct ForeignCrd {
    module: &'static str,
    version: &'static str,
    /// Where it lies in its module.
    path: &'static str,
    /// Where the suite finds it, in the suite's module.
    to: &'static str,
}

/// What Trainer's suites find below `manifests/external-crds`.
const TRAINER_CRDS: [ForeignCrd; 2] = [
    ForeignCrd {
        module: "sigs.k8s.io/scheduler-plugins",
        version: "v0.35.4-devel",
        path: "manifests/coscheduling/crd.yaml",
        to: "manifests/external-crds/scheduler-plugins/crd.yaml",
    },
    ForeignCrd {
        module: "volcano.sh/volcano",
        version: "v1.14.1",
        path: "config/crd/volcano/bases/scheduling.volcano.sh_podgroups.yaml",
        to: "manifests/external-crds/volcano/podgroups.yaml",
    },
];

/// The CustomResourceDefinitions that a project's module lacks.
fn foreign_crds(project: Project) -> &'static [ForeignCrd] {
    match project {
        Project::Trainer => &TRAINER_CRDS,
        Project::JobSet | Project::Kueue => &[],
    }
}

/// The suites of a project that judge our programs on an API server of their own, built if they are missing: one to four
/// minutes.
pub(super) async fn beside_ours(project: Project) -> Result<Binaries> {
    tokio::task::spawn_blocking(move || ensure_beside_ours(project)).await?
}

/// The unmodified suites of a project, built if they are missing. Those of Trainer are never run so.
pub(super) async fn originals(project: Project) -> Result<Binaries> {
    tokio::task::spawn_blocking(move || ensure_originals(project)).await?
}

fn ensure_beside_ours(project: Project) -> Result<Binaries> {
    let (root, _lock) = locked(FOLDER)?;
    let sources = paths::workspace().join("e2e/conformance");
    let suites = project.beside_ours();
    let name = format!("{}-suites", project.name());
    let dir = filled(&root, &name, &hash(&sources, project)?, |building| {
        let module = building.join("module");
        let copy = ["--recursive", "--no-target-directory", "--no-preserve=mode"];
        // The module cache keeps its files read-only.
        run(Command::new("cp").args(copy).arg(project.module()?).arg(&module))?;
        for (ours, path) in ours(project) {
            copy_file(&sources.join(ours), &module.join(path))?;
        }
        for crd in foreign_crds(project) {
            copy_file(&programs::sources(crd.module, crd.version)?.join(crd.path), &module.join(crd.to))?;
        }
        compile(&module, building, suites)
    })?;
    Ok(Binaries { module: dir.join("module"), programs: dir })
}

/// Copies a file into a folder that may be missing. A file of the module cache is read-only, its copy is not.
fn copy_file(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to.parent().unwrap_or(to))?;
    let content = fs::read(from).with_context(|| format!("cannot read {}", from.display()))?;
    fs::write(to, content).with_context(|| format!("cannot write {}", to.display()))
}

fn ensure_originals(project: Project) -> Result<Binaries> {
    let (root, _lock) = locked(FOLDER)?;
    let module = project.module()?;
    let suites = [project.in_clusters(), if project == Project::JobSet { project.beside_ours() } else { &[] }].concat();
    let version = suites.first().map_or("", |suite| suite.version());
    let build = |building: &Path| compile(&module, building, &suites);
    let programs = filled(&root, &format!("{}-originals", project.name()), version, build)?;
    Ok(Binaries { module, programs })
}

/// Compiles suites of a module into a folder: one by one, since packages of the same name would be one program.
fn compile(module: &Path, programs: &Path, suites: &[Suite]) -> Result<()> {
    for suite in suites {
        let name = suite.name();
        progress(&format!("building the suite {name}"));
        let start = Instant::now();
        let output = go(false)
            .args(["test", "-c"])
            .args(GO_BUILD_ARGS)
            .args(["-ldflags", "-s -w", "-o"])
            .arg(programs.join(format!("{name}.test")))
            .arg(format!("./{}", suite.package()))
            .current_dir(module)
            .output()
            .context("cannot run go: install Go 1.26 or newer (https://go.dev/dl) and put it on the PATH")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("go test -c of the suite {name} ended with {}: {}", output.status, said.trim());
        }
        progress(&format!("built the suite {name} in {:.0} s", start.elapsed().as_secs_f64()));
    }
    Ok(())
}

/// A hash over what decides the outcome of a build with our files.
fn hash(sources: &Path, project: Project) -> Result<String> {
    let mut hash = Sha256::new();
    for suite in project.beside_ours() {
        hash.update(suite.version());
        hash.update(suite.package());
    }
    for (ours, _) in ours(project) {
        let file = sources.join(ours);
        hash.update([0]);
        hash.update(fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?);
    }
    for crd in foreign_crds(project) {
        hash.update(crd.version);
    }
    Ok(short(hash))
}
