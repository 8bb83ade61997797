//! Where things lie in the checkout. All that is written at run time lies below the cargo target folder.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
pub use jobset_release::paths::{target, workspace};

/// The folder of the state and logs of test clusters, one folder each.
pub fn clusters() -> PathBuf {
    target().join("clusters")
}

/// Removes a folder with its content. It is no error if there is none.
pub fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}
