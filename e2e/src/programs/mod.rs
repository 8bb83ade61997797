//! The programs that a test cluster runs: the Go programs of `e2e/cluster` and this workspace's own binaries.

mod go;
mod own;

pub use go::{GoPrograms, Set, ensure};
pub use own::{RustBinaries, deployed_webhook, release_controller, rust_binaries};
