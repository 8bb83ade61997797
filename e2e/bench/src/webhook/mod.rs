//! The benchmark of admission: what the review of a large JobSet costs the admission service, and how long it takes.
//!
//! The service is the build of its image, a process of its own with its own certificate, as it is deployed; a control plane
//! without kubelets has it registered. The JobSet ([`jobset`]) goes through that API server once, so that the service
//! answers what it answers there; then the same AdmissionReviews ([`review`]) are sent by this process, over a few
//! connections that stay open, as API servers keep theirs ([`load`]). Every answer is checked.
//!
//! The load generator shares the machine's CPUs with the service, and with an API server that has nothing to do.

mod jobset;
mod load;
mod report;
mod review;
mod service;
mod usage;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use load::Target;
use report::{Costs, Figures, Report};
use review::{Review, Webhook};
use service::Service;
use usage::Usage;

use super::meter;
use super::report::{number, rounded};
use jobset_harness::cluster::ControlPlane;
use jobset_harness::progress::progress;
use jobset_harness::{admission, install, programs};

/// Reviews in a second at which latency is measured.
const RATE: u32 = 500;
/// Reviews before each measurement, at most.
const WARM_UP: usize = 100;

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// Reviews from which the CPU time of one is found, of each webhook.
    pub reviews: usize,
    /// How long 500 reviews per second are sent, to each webhook.
    pub paced: Duration,
    /// The program; `None`: build that of the image.
    pub webhook: Option<PathBuf>,
    /// Folder of the result.
    pub results: PathBuf,
}

/// Measures, and writes and prints the result.
///
/// # Errors
/// If something does not come up, or an answer is not the right one.
pub async fn run(options: &Options) -> Result<()> {
    std::fs::create_dir_all(&options.results)
        .with_context(|| format!("cannot create {}", options.results.display()))?;
    let program = match &options.webhook {
        Some(program) => program.clone(),
        None => programs::shipped_webhook().await?,
    };
    let plane = ControlPlane::start().await?;
    install::crd(&plane).await?;
    admission::permit(&plane).await?;
    let (plain, in_place) = (jobset::plain(), jobset::in_place()?);
    // As the mutating webhook gets them: nobody is registered yet.
    let sent = [service::dry_run(&plane, &plain).await?, service::dry_run(&plane, &in_place).await?];
    let mut service = Service::start(&program, &plane).await?;
    admission::register(&plane, service.address()).await?;
    service.ready().await?;
    let stored = [service::dry_run(&plane, &plain).await?, service::dry_run(&plane, &in_place).await?];
    let pid = service.pid();
    let clients = service.clients(&plane).await?;
    progress(&format!("{} is ready, process {pid}", program.display()));

    let target = |webhook, case: usize| Target::new(clients.clone(), Review::new(webhook, &sent[case], &stored[case]));
    let measured = service.while_running(async {
        let mutate = figures(options, pid, target(Webhook::Mutate, 0)).await?;
        let validate = figures(options, pid, target(Webhook::Validate, 0)).await?;
        let peak_rss_kib = meter::peak_rss_kib(pid)?;
        let in_place_mutate = costs(options, pid, &target(Webhook::Mutate, 1)).await?;
        let in_place_validate = costs(options, pid, &target(Webhook::Validate, 1)).await?;
        anyhow::Ok(Report {
            mutate,
            validate,
            peak_rss_kib,
            jobset_bytes: plain.to_string().len(),
            in_place: report::InPlace {
                mutate: in_place_mutate,
                validate: in_place_validate,
                peak_rss_kib: meter::peak_rss_kib(pid)?,
                jobset_bytes: in_place.to_string().len(),
            },
            reviews: options.reviews,
            paced_seconds: options.paced.as_secs_f64(),
            connections: clients.len(),
            cpus: std::thread::available_parallelism().map_or(1, Into::into),
        })
    });
    let report = measured.await?;
    drop(service);
    plane.stop().await?;
    let path = report.write(&options.results)?;
    println!("\n{}\nwritten: {}", report.table(), path.display());
    Ok(())
}

/// Cost and latency of the reviews of one webhook.
async fn figures(options: &Options, pid: u32, target: Target) -> Result<Figures> {
    let costs = costs(options, pid, &target).await?;
    let start = Usage::read(pid)?;
    let latencies = load::paced(&target, RATE, options.paced).await?;
    let used = Usage::read(pid)?.since(&start);
    let figures = Figures {
        costs,
        p50_ms_at_500: milliseconds(load::percentile(&latencies, 0.50)),
        p99_ms_at_500: milliseconds(load::percentile(&latencies, 0.99)),
        max_ms_at_500: milliseconds(load::percentile(&latencies, 1.0)),
        cpu_ms_per_review_at_500: rounded(used.service.as_secs_f64() * 1e3 / number(latencies.len()), 1e3),
        others_cpu_share_at_500: rounded(used.others_share(), 1e2),
    };
    progress(&format!(
        "{}: {} reviews at {RATE} per second, p99 {:.2} ms",
        target.review.webhook.name(),
        latencies.len(),
        figures.p99_ms_at_500
    ));
    Ok(figures)
}

/// Cost of the reviews of one webhook.
async fn costs(options: &Options, pid: u32, target: &Target) -> Result<Costs> {
    load::in_turn(target, WARM_UP.min(options.reviews)).await?;
    let start = Usage::read(pid)?;
    load::in_turn(target, options.reviews).await?;
    let used = Usage::read(pid)?.since(&start);
    let costs = Costs {
        cpu_ms_per_review: rounded(used.service.as_secs_f64() * 1e3 / number(options.reviews), 1e3),
        reviews_per_second: rounded(number(options.reviews) / used.elapsed.as_secs_f64(), 1.0),
        review_bytes: target.review.body.len(),
        answer_bytes: target.review.answer_bytes(),
        others_cpu_share: rounded(used.others_share(), 1e2),
    };
    progress(&format!(
        "{}: {} reviews of {} bytes in {:.1} s, {:.3} ms of CPU each",
        target.review.webhook.name(),
        options.reviews,
        costs.review_bytes,
        used.elapsed.as_secs_f64(),
        costs.cpu_ms_per_review
    ));
    Ok(costs)
}

fn milliseconds(time: Duration) -> f64 {
    rounded(time.as_secs_f64() * 1e3, 1e3)
}
