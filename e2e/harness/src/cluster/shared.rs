//! One cluster of two nodes for all tests of a process: it starts with the first test that asks for it.

use anyhow::{Result, anyhow};
use tokio::sync::OnceCell;

use super::handle::Cluster;

const NODES: usize = 2;

static SHARED: OnceCell<Result<Cluster, String>> = OnceCell::const_new();

/// The cluster of two nodes that the tests of this process share. Each test makes a namespace of its own in it. It ends
/// with the process.
///
/// # Errors
/// When it did not start; every test that asks gets the same error, without another try.
pub async fn shared() -> Result<&'static Cluster> {
    let start = || async { Cluster::start(NODES).await.map_err(|error| format!("{error:#}")) };
    SHARED.get_or_init(start).await.as_ref().map_err(|error| anyhow!("the shared cluster did not start: {error}"))
}
