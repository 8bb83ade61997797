//! `make picture`: draws the README's picture from what a Prometheus saw of a few failures.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use jobset_bench::picture;
use jobset_harness::interrupt::unless_interrupted;
use jobset_harness::{Cluster, paths};

/// Lets groups fail on a cluster of two nodes while a Prometheus scrapes the controller, and draws what it tells.
#[derive(Parser)]
struct Args {
    /// The picture. Default: deploy/restarts.svg.
    #[arg(long)]
    file: Option<PathBuf>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let args = Args::parse();
    match unless_interrupted(Box::pin(draw(args))).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("picture: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn draw(args: Args) -> Result<()> {
    let file = args.file.unwrap_or_else(|| paths::workspace().join("deploy/restarts.svg"));
    let cluster = Cluster::start(2).await?;
    picture::draw(&cluster, &file).await?;
    println!("written: {}", file.display());
    cluster.stop().await
}
