//! `make chaos`, short: each fault once, on a cluster of its own, since some of them concern all that run there.

use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum as _;
use jobset_chaos::{Fault, Mode, NODES, Options};
use jobset_harness::Cluster;

use crate::seat::take_seat;

/// Always the same faults in the same order. `make chaos` takes others each time.
const SEED: u64 = 467;
/// Left to `make chaos`: agents wait for silence, kubelets for volumes.
const TAKES_LONG: [Fault; 4] = [Fault::StreamBlocked, Fault::RelayStopped, Fault::TokenRotated, Fault::CaRotated];

#[tokio::test]
async fn each_fault_ends_in_one_epoch_with_an_exact_budget() -> Result<()> {
    take_seat().await?;
    let cluster = Cluster::start(NODES).await?;
    let faults = Fault::value_variants().iter().copied().filter(|fault| !TAKES_LONG.contains(fault)).collect();
    let options = Options { seed: SEED, faults, modes: Mode::ALL.to_vec(), stream: true, lasts: Duration::ZERO };
    let report = jobset_chaos::run(&cluster, &options).await?;
    println!("{}", report.table());
    assert_eq!(report.violations(), Vec::<String>::new());
    cluster.stop().await
}
