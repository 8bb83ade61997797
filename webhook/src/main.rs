//! The JobSet admission service.

use std::process::ExitCode;

use anyhow::Context as _;
use jobset_webhook::args::{Args, LogFormat};
use tracing::warn;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, fmt};

/// The client of the API server, which logs the whole text of an answer that it cannot read: were it the Secret, with
/// the keys.
const ANSWERS: &str = "kube_client::client";

/// Most threads that answer reviews: each keeps memory of its own, and four answer thousands in a second. Fewer where the
/// CPU limit of the container allows no more.
const MAX_THREADS: usize = 4;

fn main() -> ExitCode {
    let started = Args::of_command_line().map_err(Into::into).and_then(|args| start(&args));
    match started {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("jobset-webhook: {}", format!("{error:#}").replace('\n', " "));
            ExitCode::FAILURE
        }
    }
}

fn start(args: &Args) -> anyhow::Result<()> {
    let filter = EnvFilter::builder().with_default_directive(tracing::Level::INFO.into());
    let filter = filter.from_env().context("RUST_LOG is not a filter")?;
    let log = fmt::layer().with_writer(std::io::stderr);
    let log = match args.log.log_format {
        LogFormat::Text => log.boxed(),
        LogFormat::Json => log.json().boxed(),
    };
    let keeps_secrets = filter_fn(|it| it.is_span() || it.target() != ANSWERS);
    tracing_subscriber::registry().with(log.with_filter(filter)).with(keeps_secrets).init();
    if !args.ignored.is_empty() {
        warn!(ignored = args.ignored.join(", "), "flags and fields of the Go JobSet that have no meaning here");
    }
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build();
    let runtime = runtime.context("cannot start threads")?;
    Ok(runtime.block_on(jobset_webhook::run::run(args))?)
}
