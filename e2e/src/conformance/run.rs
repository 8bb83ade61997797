//! Runs the programs of suites, each in a PID namespace of its own: what it starts ends with it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Error, Result, ensure};
use tokio::io::AsyncReadExt as _;
use tokio::process::{ChildStdout, Command};

use super::build::Binaries;
use super::cases::{self, Pass};
use super::report::{self, AGAIN, Case, Outcome, check_complete};
use super::{Suite, score};
use jobset_harness::programs::{Set, ensure, rust_binaries};
use jobset_harness::progress::progress;
use jobset_harness::{deps, paths};

/// How often a running suite says how far it is.
const PROGRESS_PERIOD: Duration = Duration::from_secs(15);

/// By what Ginkgo starts the line of a case that has ended.
const ENDED: char = '•';

/// Runs the cases of an integration suite against our programs, each in the pass of its gates.
pub(super) async fn passes(binaries: &Binaries, suite: Suite, focus: &[&str]) -> Result<Vec<Case>> {
    let assets = control_plane().await?;
    let all = list(binaries, suite).await?;
    let controller = rust_binaries().await?.controller;
    let programs = controller.parent().context("the controller is in no folder")?;
    let manifests = paths::workspace().join("deploy");
    let mut ran = Vec::new();
    for pass in cases::focused(cases::passes(suite, &all)?, focus)? {
        let name =
            if pass.gates.is_empty() { suite.name().to_owned() } else { format!("{}-{}", suite.name(), pass.gates) };
        let env = [
            ("CONFORMANCE_PROGRAMS", programs),
            ("CONFORMANCE_MANIFESTS", &manifests),
            ("CONFORMANCE_GATES", Path::new(pass.gates)),
            ("KUBEBUILDER_ASSETS", &assets),
        ];
        ran.extend(run(binaries, suite, &name, &pass, &env).await?);
    }
    Ok(ran)
}

/// Runs the cases of an unmodified suite, in one pass.
pub(super) async fn original(
    binaries: &Binaries,
    suite: Suite,
    focus: &[&str],
    env: &[(&str, &Path)],
) -> Result<Vec<Case>> {
    let assets = control_plane().await?;
    let cases = list(binaries, suite).await?;
    let all = Pass { gates: "", cases };
    let env = [env, &[("KUBEBUILDER_ASSETS", assets.as_path())]].concat();
    let mut ran = Vec::new();
    for pass in cases::focused(vec![all], focus)? {
        ran.extend(run(binaries, suite, &format!("{}-original", suite.name()), &pass, &env).await?);
    }
    Ok(ran)
}

/// Chooses the cases of a suite that touch JobSets.
fn label_filter(suite: Suite) -> Option<String> {
    suite.labels().map(|labels| format!("--ginkgo.label-filter={labels}"))
}

/// The names of all cases of a suite that touch JobSets.
async fn list(binaries: &Binaries, suite: Suite) -> Result<BTreeSet<String>> {
    let work = work_folder(&format!("{}-list", suite.name()))?;
    let file = work.join("report.json");
    let output = Command::new(binaries.program(suite))
        .arg("--ginkgo.dry-run")
        .args(label_filter(suite))
        .arg(format!("--ginkgo.json-report={}", file.display()))
        .current_dir(binaries.folder(suite))
        .stdin(Stdio::null())
        .output()
        .await
        .context("cannot run the suite")?;
    ensure!(output.status.success(), "the suite does not list its cases: {}", String::from_utf8_lossy(&output.stdout));
    let cases = report::read(&file)?;
    Ok(cases.into_iter().map(|case| case.name).collect())
}

async fn run(binaries: &Binaries, suite: Suite, name: &str, pass: &Pass, env: &[(&str, &Path)]) -> Result<Vec<Case>> {
    let work = work_folder(name)?;
    let file = work.join("report.json");
    let log = work.join("suite.log");
    progress(&format!("{name}: {} cases", pass.cases.len()));
    let start = Instant::now();
    // The one before has the same name.
    let by_name = pass.cases.iter().filter(|case| !case.ends_with(AGAIN));
    let focus = by_name.map(|case| format!("--ginkgo.focus={}", cases::exactly(case)));
    let mut child = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "unshare", "--pid", "--fork", "--kill-child"])
        .arg(binaries.program(suite))
        .args(["--ginkgo.no-color", "--ginkgo.timeout=2h"])
        .arg(format!("--ginkgo.json-report={}", file.display()))
        .args(focus)
        .args(label_filter(suite))
        .current_dir(binaries.folder(suite))
        .envs(env.iter().copied())
        .env("CONFORMANCE_WORK", &work)
        // A loaded machine takes longer than the twenty seconds that are given by default.
        .env("KUBEBUILDER_CONTROLPLANE_START_TIMEOUT", "2m")
        .env("KUBEBUILDER_CONTROLPLANE_STOP_TIMEOUT", "1m")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::from(std::fs::File::create(work.join("stderr.log"))?))
        .kill_on_drop(true)
        .spawn()
        .context("cannot run the suite")?;
    let stdout = child.stdout.take().context("the suite's output is not captured")?;
    follow(stdout, name, pass.cases.len(), &log).await?;
    child.wait().await.context("cannot wait for the suite")?;
    let ran = match report::read(&file) {
        Ok(ran) => ran,
        Err(error) => none_passed(pass, &error),
    };
    check_complete(pass, &ran).with_context(|| format!("the suite {name}; see {}", log.display()))?;
    let seconds = start.elapsed().as_secs_f64();
    let passed = score::passed(&ran);
    progress(&format!("{name}: {passed} of {} passed in {seconds:.0} s", ran.len()));
    Ok(ran)
}

/// The cases of a pass whose suite did not come to them.
fn none_passed(pass: &Pass, error: &Error) -> Vec<Case> {
    let failed = |name: &String| Case { name: name.clone(), outcome: Outcome::Failed(format!("{error:#}")) };
    pass.cases.iter().map(failed).collect()
}

/// Writes the output of a suite to its log, and says how far it is.
async fn follow(mut stdout: ChildStdout, name: &str, total: usize, log: &Path) -> Result<()> {
    let mut text = Vec::new();
    let mut said = Instant::now();
    let mut chunk = [0; 4096];
    loop {
        let length = stdout.read(&mut chunk).await?;
        if length == 0 {
            return std::fs::write(log, text).with_context(|| format!("cannot write {}", log.display()));
        }
        text.extend_from_slice(chunk.get(..length).unwrap_or_default());
        if said.elapsed() >= PROGRESS_PERIOD {
            said = Instant::now();
            let ended = String::from_utf8_lossy(&text).matches(ENDED).count();
            progress(&format!("{name}: {ended} of {total} cases ended"));
        }
    }
}

/// The folder of the programs that a control plane consists of.
async fn control_plane() -> Result<PathBuf> {
    let ensured = tokio::task::spawn_blocking(|| {
        deps::check(Set::ControlPlane)?;
        ensure(Set::ControlPlane)
    });
    Ok(ensured.await??.path("kube-apiserver")?.parent().map(Path::to_path_buf).unwrap_or_default())
}

/// An empty folder for one run: no report of an earlier run is taken for its own.
fn work_folder(name: &str) -> Result<PathBuf> {
    let folder = paths::target().join("conformance/runs").join(name);
    if folder.exists() {
        std::fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    Ok(folder)
}
