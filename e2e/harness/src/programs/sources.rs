//! Sources of Go modules, as the module proxy has them: manifests that others publish.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::paths;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Download {
    dir: Option<PathBuf>,
    error: Option<String>,
}

pub fn sources(module: &str, version: &str) -> Result<PathBuf> {
    let folder = paths::target().join("sources");
    fs::create_dir_all(&folder)?;
    // Outside of any module, so that no go.mod says which versions may be read.
    let name = format!("{module}@{version}");
    let output = Command::new("go")
        .args(["mod", "download", "-json", &name])
        .current_dir(&folder)
        .env("GOWORK", "off")
        .env("GO111MODULE", "on")
        .env("GOFLAGS", "-mod=mod")
        .stdin(Stdio::null())
        .output()
        .context("cannot run go")?;
    let module: Download = serde_json::from_slice(&output.stdout).with_context(|| {
        format!("go mod download {name}: {}", String::from_utf8_lossy(&output.stderr).trim().to_owned())
    })?;
    match (module.dir, module.error) {
        (Some(dir), _) => Ok(dir),
        (None, error) => bail!("go mod download {name}: {}", error.unwrap_or_default()),
    }
}
