//! The end of a program by SIGINT or SIGTERM, together with what it holds.

use anyhow::{Context, Result, bail};
use tokio::signal::unix::{SignalKind, signal};

/// Awaits `work`, unless a signal ends the program before. What `work` holds, for instance a cluster, is then taken down.
///
/// # Errors
/// That of `work`, or that it was interrupted.
pub async fn unless_interrupted<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let mut terminate = signal(SignalKind::terminate()).context("cannot listen for SIGTERM")?;
    tokio::select! {
        outcome = work => return outcome,
        interrupted = tokio::signal::ctrl_c() => interrupted.context("cannot listen for SIGINT")?,
        _ = terminate.recv() => {}
    }
    bail!("interrupted; a cluster of its own ends with it")
}
