//! Builds this workspace's own binaries. `.cargo/config.toml` links them statically, so that an image needs nothing but the
//! binary.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use jobset_release::Architecture;

use crate::paths;
use crate::progress::progress;

/// The static binaries that images are made from.
#[derive(Clone, Debug)]
pub struct RustBinaries {
    pub agent: PathBuf,
    pub controller: PathBuf,
    pub webhook: PathBuf,
    pub certs: PathBuf,
    pub relay: PathBuf,
    /// The worker of tests and demo, `jobset-test-worker`.
    pub worker: PathBuf,
}

impl RustBinaries {
    fn of(folder: &Path) -> Self {
        Self {
            agent: folder.join("jobset-agent"),
            controller: folder.join("jobset-controller"),
            webhook: folder.join("jobset-webhook"),
            certs: folder.join("jobset-certs"),
            relay: folder.join("jobset-relay"),
            worker: folder.join("jobset-test-worker"),
        }
    }
}

/// The profile of controller and webhook in the images that users run, in words for a result.
pub const SHIPPED_PROFILE: &str = "release (thin LTO)";
/// The profile of the agent in the image that users run, in words for a result.
pub const SHIPPED_AGENT_PROFILE: &str = "agent (fat LTO, size)";

/// Builds all programs of this workspace with the development profile, and gives their folder; cargo skips what is up to date.
///
/// The selection is that of `make build`: another selection of packages gives dependencies other features, and cargo would
/// compile them again.
///
/// # Errors
/// When cargo is missing or a build fails; the compiler's own words go to standard error.
pub fn build_programs() -> Result<PathBuf> {
    let triple = Architecture::of_host()?.triple();
    build_own(triple, "dev", &["--workspace", "--all-features", "--bins"])?;
    Ok(paths::target().join(triple).join("debug"))
}

/// A program of this workspace. Cargo puts it beside the running program, or one folder above a test.
///
/// Cargo does not build it for the tests of another package; then it is built here.
pub fn beside(program: &str) -> Result<PathBuf> {
    let own = std::env::current_exe().context("cannot find the running program")?;
    let found = own.ancestors().skip(1).take(2).map(|folder| folder.join(program)).find(|path| path.exists());
    found.map_or_else(|| Ok(build_programs()?.join(program)), Ok)
}

/// Names the binaries that tests and demo run: `shipped` for those that users run. Default: the development profile.
const BUILD: &str = "JOBSET_BUILD";

/// The binaries that tests and demo run: built with the development profile, or those that `JOBSET_BUILD=shipped` names.
pub async fn rust_binaries() -> Result<RustBinaries> {
    match std::env::var(BUILD).unwrap_or_default().as_str() {
        "" => {}
        "shipped" => return shipped_binaries(Architecture::of_host()?).await,
        other => bail!("{BUILD} is {other:?}: it can be \"shipped\", or absent for the development profile"),
    }
    blocking(|| Ok(RustBinaries::of(&build_programs()?))).await
}

/// Builds the binaries that users run, with the profiles `release` and `agent`.
///
/// Another architecture's standard library comes from `rustup target add`, its linker and C library are Debian's packages
/// `gcc-aarch64-linux-gnu` and `libc6-dev-arm64-cross`.
pub async fn shipped_binaries(architecture: Architecture) -> Result<RustBinaries> {
    blocking(move || {
        let triple = architecture.triple();
        build_own(triple, "agent", &["-p", "jobset-agent", "--bin", "jobset-agent"])?;
        let agent = paths::target().join(triple).join("agent/jobset-agent");
        Ok(RustBinaries { agent, ..RustBinaries::of(&build_release(triple)?) })
    })
    .await
}

/// Builds `jobset-controller` as its image has it, and gives its path.
pub async fn shipped_controller() -> Result<PathBuf> {
    blocking(|| Ok(build_release(Architecture::of_host()?.triple())?.join("jobset-controller"))).await
}

/// Builds `jobset-webhook` as its image has it, and gives its path.
pub async fn shipped_webhook() -> Result<PathBuf> {
    blocking(|| Ok(build_release(Architecture::of_host()?.triple())?.join("jobset-webhook"))).await
}

pub(super) async fn blocking<T: Send + 'static>(build: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(build).await.context("the build was aborted")?
}

/// Builds what images get with the release profile, and gives the folder. All of it is built together, since the features
/// of a dependency are those that the packages of one build ask for.
fn build_release(triple: &str) -> Result<PathBuf> {
    let packages = ["jobset-controller", "jobset-webhook", "jobset-certs", "jobset-relay", "jobset-test-worker"];
    let selection: Vec<&str> = packages.iter().flat_map(|package| ["-p", package, "--bin", package]).collect();
    build_own(triple, "release", &selection)?;
    Ok(paths::target().join(triple).join("release"))
}

/// Where cargo puts programs.
pub(super) enum Output {
    /// Into the target folder.
    Shared,
    /// Into a folder of their own. What they are made of is in the target folder, so that dependencies are built once.
    Apart(PathBuf),
}

fn build_own(triple: &str, profile: &str, selection: &[&str]) -> Result<()> {
    build(&paths::workspace(), &Output::Shared, triple, profile, selection)
}

pub(super) fn build(workspace: &Path, output: &Output, triple: &str, profile: &str, selection: &[&str]) -> Result<()> {
    let start = Instant::now();
    progress(&format!("cargo build --profile {profile} {}", selection.join(" ")));
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // Cargo tells its own variables to each test and program that it runs. A build script that reads them would run again.
    for (variable, _) in std::env::vars_os() {
        let name = variable.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"].iter().any(|own| name.starts_with(own)) {
            cargo.env_remove(&variable);
        }
    }
    for architecture in [Architecture::Amd64, Architecture::Arm64] {
        if triple == architecture.triple() && Architecture::of_host().ok() != Some(architecture) {
            let variable = triple.replace('-', "_");
            let linker = format!("CARGO_TARGET_{}_LINKER", variable.to_uppercase());
            cargo.env(linker, architecture.compiler()).env(format!("CC_{variable}"), architecture.compiler());
        }
    }
    if let Output::Apart(folder) = output {
        cargo.env("CARGO_BUILD_BUILD_DIR", paths::target()).env("CARGO_TARGET_DIR", folder);
    }
    let status = cargo
        .args(["build", "--locked", "--quiet", "--profile", profile, "--target", triple])
        .args(selection)
        // Flags from the environment would replace those of .cargo/config.toml.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .current_dir(workspace)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .context("cannot run cargo: install Rust 1.95 or newer (https://rustup.rs)")?;
    if !status.success() {
        bail!("cargo build --profile {profile} {} ended with {status}; see its messages above", selection.join(" "));
    }
    progress(&format!("built with profile {profile} in {:.0} s", start.elapsed().as_secs_f64()));
    Ok(())
}
