//! What the review of a large JobSet costs the admission service, and how long it takes.
//!
//! The service is the build of its image, a process of its own with its own certificate, as it is deployed; it is
//! registered with a control plane without kubelets. The JobSet ([`jobset`]) goes through that API server first, which
//! adds managedFields and defaults. So does a Pod ([`pod`]) whose JobSet avoids nodes. Then this process sends the same AdmissionReviews ([`review`]) over a few connections
//! that stay open, as those of API servers do ([`load`]), and checks every answer.

mod jobset;
mod load;
mod pod;
mod report;
mod review;
mod service;

use std::num::ParseIntError;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use jobset_harness::cluster::ControlPlane;
use jobset_harness::progress::progress;
use jobset_harness::{admission, install, programs};

use crate::meter::{CpuSeconds, Meter, peak_rss_kib};
use crate::report::{Report, number, rounded};
use crate::{at_least_one, results};
use load::Target;
use report::{BesideFigures, ReviewFigures, WebhookFigures};
use review::{Review, ReviewedWebhook};
use service::Service;

/// Reviews in a second at which latency is measured.
const RATE: u32 = 500;
/// Heavy reviews of another namespace that are in progress while latency is measured.
const HEAVY: usize = 200;
/// Reviews before each measurement, at most.
const WARM_UP: usize = 100;

/// Measures reviews of a JobSet of 42 kB, and of a Pod whose JobSet avoids nodes, by the admission service: CPU time, latency at 500 per
/// second and beside 200 heavy reviews of another namespace, and memory.
///
/// The service is the build of its image, registered with a real control plane; the reviews are sent over a few HTTP/2
/// connections that stay open. Prints a table, and writes webhook.json into the results folder.
#[derive(Clone, Debug, Parser)]
#[command(name = "bench-webhook")]
pub struct WebhookOptions {
    /// Reviews from which the CPU time of one is found, of each webhook.
    #[arg(long, value_name = "N", default_value = "5000", value_parser = at_least_one())]
    pub reviews: usize,
    /// How long 500 reviews per second are sent, to each webhook.
    #[arg(long = "seconds", value_name = "S", default_value = "20", value_parser = in_seconds)]
    pub paced: Duration,
    /// The program jobset-webhook to measure. Default: build that of the image.
    #[arg(long, value_name = "PATH")]
    pub webhook: Option<PathBuf>,
    /// Folder of the result.
    #[arg(long, value_name = "DIR", default_value_os_t = results())]
    pub results: PathBuf,
}

fn in_seconds(text: &str) -> Result<Duration, ParseIntError> {
    text.parse().map(|seconds: std::num::NonZeroU16| Duration::from_secs(seconds.get().into()))
}

/// Measures, and writes and prints the result.
pub async fn run(options: &WebhookOptions) -> Result<()> {
    std::fs::create_dir_all(&options.results)
        .with_context(|| format!("cannot create {}", options.results.display()))?;
    let program = match &options.webhook {
        Some(program) => program.clone(),
        None => programs::shipped_webhook().await?,
    };
    let plane = ControlPlane::start().await?;
    install::crd(&plane).await?;
    admission::permit(&plane).await?;
    let jobset = jobset::jobset();
    // As the mutating webhook gets it: no webhook is registered yet.
    let sent = service::dry_run(&plane, &jobset).await?;
    let mut service = Service::start(&program, &plane).await?;
    admission::register(&plane, service.address).await?;
    service.ready().await?;
    let stored = service::dry_run(&plane, &jobset).await?;
    let avoiding = service::avoiding(&plane, &jobset).await?;
    let of_avoiding = service::pod_dry_run(&plane, &pod::pod(&avoiding)).await?;
    let pid = service.program.pid();
    let clients = service.clients()?;
    progress(&format!("{} is ready, process {pid}", program.display()));

    let meter = Meter::new(&[("service", pid)])?;
    let target = |webhook, object| Target::new(clients.clone(), Review::new(webhook, object));
    let heavy = Target::new(service.clients()?, Review::new(ReviewedWebhook::Validate, &jobset::heavy()));
    let measured = service.program.while_running(async {
        anyhow::Ok(WebhookFigures {
            mutate: figures(options, &meter, target(ReviewedWebhook::Mutate, &sent)).await?,
            validate: figures(options, &meter, target(ReviewedWebhook::Validate, &stored)).await?,
            pod: figures(options, &meter, target(ReviewedWebhook::Pod, &of_avoiding)).await?,
            peak_rss_kib: peak_rss_kib(pid)?,
            beside_heavy: beside_heavy(options, target(ReviewedWebhook::Validate, &stored), &heavy).await?,
            jobset_bytes: jobset.to_string().len(),
        })
    });
    let report = Report::new(measured.await?, &program);
    drop(service);
    plane.stop().await?;
    let path = report.write(&options.results, "webhook.json")?;
    println!("\n{}\nwritten: {}", report::summary(&report), path.display());
    Ok(())
}

async fn figures(options: &WebhookOptions, meter: &Meter, target: Target) -> Result<ReviewFigures> {
    load::in_turn(&target, WARM_UP.min(options.reviews)).await?;
    let start = meter.read()?;
    load::in_turn(&target, options.reviews).await?;
    let in_turn = meter.read()?.since(&start);
    let start = meter.read()?;
    let latencies = load::paced(&target, RATE, options.paced).await?;
    let paced = meter.read()?.since(&start);
    let reviews = latencies.len();
    let [p50_ms_at_500, p99_ms_at_500, max_ms_at_500] = load::percentiles(latencies);
    let figures = ReviewFigures {
        cpu_ms_per_review: cpu_ms(&in_turn, options.reviews),
        reviews_per_second: rounded(number(options.reviews) / in_turn.of("elapsed"), 1.0),
        review_bytes: target.review.body.len(),
        p50_ms_at_500,
        p99_ms_at_500,
        max_ms_at_500,
        cpu_ms_per_review_at_500: cpu_ms(&paced, reviews),
        others_cpu_share_at_500: rounded(paced.others() / paced.of("elapsed"), 1e2),
    };
    let (name, cpu) = (target.review.webhook.name(), figures.cpu_ms_per_review);
    progress(&format!("{name}: {cpu:.3} ms of CPU for a review, p99 {p99_ms_at_500:.2} ms at {RATE} per second"));
    Ok(figures)
}

/// Latency of one validation after the other beside heavy ones.
async fn beside_heavy(options: &WebhookOptions, target: Target, heavy: &Target) -> Result<BesideFigures> {
    let latencies = load::beside(&target, heavy, HEAVY, options.paced).await?;
    let reviews = latencies.len();
    let [p50_ms, p99_ms, max_ms] = load::percentiles(latencies);
    progress(&format!("beside {HEAVY} heavy reviews: {max_ms:.0} ms at most"));
    Ok(BesideFigures { reviews, p50_ms, p99_ms, max_ms })
}

fn cpu_ms(used: &CpuSeconds, reviews: usize) -> f64 {
    rounded(used.of("service") * 1e3 / number(reviews), 1e3)
}
