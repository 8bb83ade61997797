//! Builds this workspace's own binaries statically, so that an image needs nothing but the binary.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::paths;
use crate::progress::progress;

/// The static binaries that images are made from.
#[derive(Clone, Debug)]
pub struct RustBinaries {
    /// `jobset-agent`, built with the profile `agent`.
    pub agent: PathBuf,
    /// `jobset-controller`.
    pub controller: PathBuf,
    /// `jobset-webhook`.
    pub webhook: PathBuf,
    /// The worker of tests and demo, `jobset-test-worker`.
    pub worker: PathBuf,
}

/// Builds the static binaries; cargo itself skips what is up to date.
///
/// # Errors
/// When cargo is missing or a build fails; the compiler's own words go to standard error.
pub async fn rust_binaries() -> Result<RustBinaries> {
    tokio::task::spawn_blocking(build_all).await.context("the build was aborted")?
}

/// Builds `jobset-controller` with the release profile for this machine, and gives its path.
///
/// # Errors
/// As [`rust_binaries`].
pub async fn release_controller() -> Result<PathBuf> {
    let build = || cargo_build("release", &["-p", "jobset-controller", "--bin", "jobset-controller"], |cargo| cargo);
    tokio::task::spawn_blocking(build).await.context("the build was aborted")??;
    Ok(paths::target().join("release/jobset-controller"))
}

/// Builds `jobset-webhook` as its image has it, and gives its path.
///
/// # Errors
/// As [`rust_binaries`].
pub async fn deployed_webhook() -> Result<PathBuf> {
    let build = || {
        let host = host_triple()?;
        build_release(&host)?;
        Ok(paths::target().join(host).join("release/jobset-webhook"))
    };
    tokio::task::spawn_blocking(build).await.context("the build was aborted")?
}

/// An architecture that images are built for, by its name in Go and in OCI images.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Architecture {
    /// x86_64
    Amd64,
    /// aarch64
    Arm64,
}

impl Architecture {
    /// That of this machine.
    ///
    /// # Errors
    /// If it is another one.
    pub fn of_host() -> Result<Self> {
        match std::env::consts::ARCH {
            "x86_64" => Ok(Self::Amd64),
            "aarch64" => Ok(Self::Arm64),
            other => bail!("there are no images for {other}"),
        }
    }

    /// In the words of an OCI image.
    pub fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    fn triple(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-unknown-linux-gnu",
            Self::Arm64 => "aarch64-unknown-linux-gnu",
        }
    }

    /// Debian's C compiler for it, which links for another machine as well.
    fn compiler(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-linux-gnu-gcc",
            Self::Arm64 => "aarch64-linux-gnu-gcc",
        }
    }
}

/// Builds the static binaries for another architecture: its standard library comes from `rustup target add`, its linker and C
/// library are Debian's packages `gcc-aarch64-linux-gnu` and `libc6-dev-arm64-cross`.
///
/// # Errors
/// As [`rust_binaries`].
pub fn cross_binaries(architecture: Architecture) -> Result<RustBinaries> {
    build_for(architecture.triple())
}

fn build_all() -> Result<RustBinaries> {
    build_for(&host_triple()?)
}

fn build_for(triple: &str) -> Result<RustBinaries> {
    build(triple, "agent", &["-p", "jobset-agent", "--bin", "jobset-agent"])?;
    build_release(triple)?;
    let dir = paths::target().join(triple);
    Ok(RustBinaries {
        agent: dir.join("agent/jobset-agent"),
        controller: dir.join("release/jobset-controller"),
        webhook: dir.join("release/jobset-webhook"),
        worker: dir.join("release/jobset-test-worker"),
    })
}

/// Builds what images get with the release profile: together, since features of dependencies are those that all of a
/// build ask for.
fn build_release(triple: &str) -> Result<()> {
    build(
        triple,
        "release",
        &[
            "-p",
            "jobset-controller",
            "-p",
            "jobset-webhook",
            "-p",
            "jobset-test-worker",
            "--bin",
            "jobset-controller",
            "--bin",
            "jobset-webhook",
            "--bin",
            "jobset-test-worker",
        ],
    )
}

/// Builds statically.
fn build(triple: &str, profile: &str, what: &[&str]) -> Result<()> {
    // A target is named even though it is the host: the flags must not reach build scripts and proc macros.
    cargo_build(profile, what, |cargo| {
        for architecture in [Architecture::Amd64, Architecture::Arm64] {
            if triple == architecture.triple() && Architecture::of_host().ok() != Some(architecture) {
                let variable = triple.replace('-', "_");
                let linker = format!("CARGO_TARGET_{}_LINKER", variable.to_uppercase());
                cargo.env(linker, architecture.compiler()).env(format!("CC_{variable}"), architecture.compiler());
            }
        }
        cargo
            .args(["--target", triple])
            .env("RUSTFLAGS", "-C target-feature=+crt-static")
            .env_remove("CARGO_ENCODED_RUSTFLAGS")
    })
}

fn cargo_build(profile: &str, what: &[&str], with: impl FnOnce(&mut Command) -> &mut Command) -> Result<()> {
    let start = Instant::now();
    progress(&format!("cargo build --profile {profile} {}", what.join(" ")));
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    // What cargo tells a test or a program that it runs would look like a change to build scripts, and rebuild the world.
    for (variable, _) in std::env::vars_os() {
        let name = variable.to_string_lossy();
        if ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_"].iter().any(|own| name.starts_with(own)) {
            cargo.env_remove(&variable);
        }
    }
    cargo.args(["build", "--quiet", "--profile", profile]).args(what);
    let status = with(&mut cargo)
        .current_dir(paths::workspace())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()
        .context("cannot run cargo: install Rust 1.95 or newer (https://rustup.rs)")?;
    if !status.success() {
        bail!("cargo build --profile {profile} {} ended with {status}; see its messages above", what.join(" "));
    }
    progress(&format!("built with profile {profile} in {:.0} s", start.elapsed().as_secs_f64()));
    Ok(())
}

/// The triple of the machine this runs on, as `rustc -vV` names it.
fn host_triple() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .arg("-vV")
        .output()
        .context("cannot run rustc: install Rust 1.95 or newer (https://rustup.rs)")?;
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .find_map(|line| line.strip_prefix("host: ").map(str::to_owned))
        .context("rustc -vV does not name its host")
}
