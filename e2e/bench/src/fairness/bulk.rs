//! How many Jobs a second a controller creates while nothing is urgent.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use jobset_harness::cluster::ControlPlane;
use jobset_harness::install;
use jobset_harness::progress::progress;

use super::foreign::ForeignJobs;
use super::{JOBS_OF_EACH, JOBSETS};
use crate::program::Program;
use crate::report::{number, rounded};

/// Jobs that exist before the measurement begins: the burst of the client's rate limit, and the leader election, are over.
const WARM_UP: usize = 1_000;

/// Measures the Jobs a second of this controller on a control plane of its own, over the creation of so many Jobs.
pub(super) async fn measure(controller: &Path, jobs: usize) -> Result<f64> {
    let plane = ControlPlane::start().await?;
    install::crd(&plane).await?;
    let listen = ["--health-listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--metrics-secure=false"];
    let mut program = Program::start("jobset-controller", controller, listen, &[], plane.kubeconfig(), &plane)?;
    let rate = program.while_running(async {
        let foreign = ForeignJobs::create(&plane, "foreign", JOBSETS, JOBS_OF_EACH).await?;
        let (first, began) = (foreign.exist(WARM_UP).await?, Instant::now());
        let last = foreign.exist(first + jobs).await?;
        Ok(number(last - first) / began.elapsed().as_secs_f64())
    });
    let rate = rounded(rate.await?, 1e1);
    progress(&format!("{rate} Jobs a second"));
    drop(program);
    plane.stop().await?;
    Ok(rate)
}
