//! Issues the certificate of the JobSet admission service.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use jobset_certs::Program;
use jobset_certs::args::Args;
use kube::{Client, Config};

/// Default filter of the log.
const LOGGED: &str = "info";
/// Target of the API server's client. It logs the whole text of an answer that it cannot read; the answer could be the Secret
/// with the keys.
const NEVER_LOGGED: &str = "kube_client::client";

fn main() -> ExitCode {
    jobset_program::run("jobset-certs", Some(1), async {
        let args = Args::parse();
        jobset_program::log::init(args.log_format, LOGGED, Some(NEVER_LOGGED))?;
        let program = Program::open(&args)?;
        let config = Config::infer().await.context("no API server is configured: set KUBECONFIG")?;
        let client = Client::try_from(config).context("cannot make a client of the API server")?;
        program.run(client, jobset_program::stop_on_signals()?).await
    })
}
