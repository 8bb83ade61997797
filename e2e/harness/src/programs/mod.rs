//! The programs that a test cluster runs: the Go programs of `e2e/cluster` and this workspace's own binaries.

mod clients;
mod go;
mod kubernetes;
mod older;
mod own;
mod sources;

use std::fmt::Display;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};
use sha2::{Digest as _, Sha256};

use crate::paths;
use crate::progress::progress;
pub use clients::{KueuePrograms, ensure_kueue, ensure_trainer};
pub use go::{
    GO_BUILD_ARGS, GoJobSetPrograms, GoPrograms, Helm, Set, ensure, ensure_cert_manager, ensure_go_jobset, ensure_helm,
    ensure_kube_state_metrics, ensure_versions,
};
pub use jobset_release::Architecture;
pub use kubernetes::{Kubernetes, Versions};
pub use older::older_binaries;
pub use own::{
    RustBinaries, SHIPPED_AGENT_PROFILE, SHIPPED_PROFILE, beside, build_programs, rust_binaries, shipped_binaries,
    shipped_controller, shipped_webhook,
};
pub use sources::sources;

/// A folder below the target folder, and the lock on filling it: whoever else asks, in this process or another, waits.
pub fn locked(name: &str) -> Result<(PathBuf, File)> {
    let folder = paths::target().join(name);
    fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let lock = File::create(folder.join("lock")).with_context(|| format!("cannot create the lock of {name}"))?;
    if lock.try_lock().is_err() {
        progress(&format!("waiting for another that fills {}", folder.display()));
        lock.lock().with_context(|| format!("cannot take the lock of {name}"))?;
    }
    Ok((folder, lock))
}

/// Fails with what a program, named so, said on standard error, unless it ended well.
pub fn succeeded(what: impl Display, output: &Output) -> Result<()> {
    if !output.status.success() {
        bail!("{what}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}

/// Runs a program to its end, which must be a good one; else the text has what it said.
pub fn run(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {command:?}"))?;
    if !output.status.success() {
        let said = [output.stdout, output.stderr].concat();
        bail!("{command:?} ended with {}: {}", output.status, String::from_utf8_lossy(&said).trim());
    }
    Ok(())
}

/// `go` with the installed toolchain and without the caller's flags. The compiler's processes are short: collecting less
/// garbage saves a tenth of their CPU.
pub fn go(cgo: bool) -> Command {
    let mut go = Command::new("go");
    go.env("CGO_ENABLED", if cgo { "1" } else { "0" })
        .env("GOTOOLCHAIN", "local")
        .env("GOWORK", "off")
        .env("GOGC", "400");
    go.env_remove("GOFLAGS").stdin(Stdio::null());
    go
}

/// Ends the name of a folder while its content is made.
const BUILDING: &str = ".building";

/// A hash as [`filled`] takes it: short enough for the name of a folder.
pub fn short(hash: Sha256) -> String {
    format!("{:x}", hash.finalize()).chars().take(12).collect()
}

/// The folder `<name>-<hash>` below `root`. If it is missing, `fill` makes its content, and the folders of other hashes are
/// removed.
pub fn filled(root: &Path, name: &str, hash: &str, fill: impl FnOnce(&Path) -> Result<()>) -> Result<PathBuf> {
    let folder = root.join(format!("{name}-{hash}"));
    if folder.exists() {
        return Ok(folder);
    }
    let building = root.join(format!("{name}{BUILDING}"));
    paths::remove(&building)?;
    fs::create_dir_all(&building).with_context(|| format!("cannot create {}", building.display()))?;
    fill(&building)?;
    for entry in fs::read_dir(root)?.filter_map(Result::ok) {
        if has_name(&entry.file_name().to_string_lossy(), name) {
            paths::remove(&entry.path())?;
        }
    }
    fs::rename(&building, &folder).with_context(|| format!("cannot move {name} to {}", folder.display()))?;
    Ok(folder)
}

/// Whether a folder is called `<name>-<hash>`. A name may begin with another one and a dash, so the hash is what follows the
/// last dash. The folder that a longer name is being made in has no hash yet.
fn has_name(folder: &str, name: &str) -> bool {
    let parts = folder.rsplit_once('-');
    parts.is_some_and(|(before, hash)| before == name && !hash.ends_with(BUILDING))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filled_removes_other_hashes_and_keeps_longer_names() {
        let root = tempfile::tempdir().unwrap();
        let kept = ["kubernetes-1.37-0123", "kubernetes-1.37.building", "helm-0123", "lock"];
        for folder in kept.iter().chain(&["kubernetes-0123"]) {
            fs::create_dir(root.path().join(folder)).unwrap();
        }
        filled(root.path(), "kubernetes", "4567", |_| Ok(())).unwrap();
        let mut left: Vec<String> =
            fs::read_dir(root.path()).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        left.sort();
        let mut expected = [&kept[..], &["kubernetes-4567"]].concat();
        expected.sort_unstable();
        assert_eq!(left, expected);
    }
}
