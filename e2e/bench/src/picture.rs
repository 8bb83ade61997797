//! The README's picture: what a Prometheus that scraped the controller tells of a few failures, drawn from its answers.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use jobset_api::conditions;
use plotters::coord::Shift;
use plotters::prelude::*;

use jobset_harness::chart::Chart;
use jobset_harness::cluster::Cluster;
use jobset_harness::group::{Group, LIMIT};
use jobset_harness::install::{self, install};
use jobset_harness::journal::now;
use jobset_harness::programs::rust_binaries;
use jobset_harness::progress::progress;
use jobset_harness::prometheus::{Prometheus, Series};
use jobset_harness::wait::{self, Check};
use jobset_harness::workload::{RECREATE, STORY_1, SUPERVISED};

/// Width and height in pixels.
const SIZE: (u32, u32) = (1100, 420);
/// To be told apart by those who do not see red and green alike.
const COLORS: [RGBColor; 4] =
    [RGBColor(0, 114, 178), RGBColor(230, 159, 0), RGBColor(213, 94, 0), RGBColor(86, 180, 233)];
/// Failures of each group.
const FAILURES: i32 = 5;
/// From a restart to the next failure.
const PAUSE: Duration = Duration::from_secs(8);
/// Seconds between two points of a curve.
const STEP: f64 = 1.0;

const RESTARTS: &str = "sum by (strategy) (jobset_restarts_total)";
const RECOVERED: &str = r#"sum(jobset_restart_duration_seconds_count{result="recovered"})"#;
const PHASES: &str = "sum by (phase) (jobset_restart_phase_seconds_sum)";

/// Phases of a restart, in their order.
const ORDER: [&str; 4] = ["detect", "register", "lift", "recreate"];

/// Mean seconds of each of [`ORDER`].
type Means = [f64; 4];

/// Lets groups fail while a Prometheus looks on, and draws what it answers into `file`.
///
/// # Errors
/// If a group does not come back, or Prometheus has nothing to tell.
pub async fn draw(cluster: &Cluster, file: &Path) -> Result<()> {
    install(cluster, &rust_binaries().await?).await?;
    let prometheus = Prometheus::start(cluster, install::NAMESPACE, &Chart::folder().join("files/alerts.yaml")).await?;
    let begun = now();
    let mut means = Vec::new();
    for (namespace, manifest) in [("sidecars", STORY_1), ("supervisors", SUPERVISED), ("recreated", RECREATE)] {
        progress(&format!("{FAILURES} failures of {namespace}"));
        let before = (total(&prometheus, RECOVERED).await?, spent(&prometheus).await?);
        let group = Group::apply(cluster, namespace, manifest, |workload| workload.with_max_restarts(100)).await?;
        fail(&group).await?;
        scraped(&prometheus, before.0 + f64::from(FAILURES)).await?;
        let after = spent(&prometheus).await?;
        let mean = |phase: usize| (after[phase] - before.1[phase]) / f64::from(FAILURES);
        means.push((namespace, std::array::from_fn(mean)));
        group.remove().await?;
    }
    let restarts = prometheus.query_range(RESTARTS, (begun, now()), STEP).await?;
    let area = SVGBackend::new(file, SIZE).into_drawing_area();
    let drawn = (|| {
        area.fill(&WHITE).map_err(text)?;
        let panels = area.split_evenly((1, 2));
        curves(&panels[0], &restarts, begun)?;
        bars(&panels[1], &means)?;
        area.present().map_err(text)
    })();
    drawn.with_context(|| format!("cannot draw {}", file.display()))
}

async fn fail(group: &Group) -> Result<()> {
    for restarts in 0..=FAILURES {
        runs_after(group, restarts).await?;
        if restarts < FAILURES {
            tokio::time::sleep(PAUSE).await;
            let workers = group.workers().await?;
            group.exit(workers.values().next().context("no worker")?, 1).await?;
        }
    }
    Ok(())
}

/// Waits until all Jobs are ready after so many restarts.
async fn runs_after(group: &Group, restarts: i32) -> Result<()> {
    wait::until_met(LIMIT, format!("{} to run after {restarts} restarts", group.namespace), || async {
        let status = group.status().await?;
        let ready = status.jobs_ready.split_once('/').is_some_and(|(ready, all)| ready == all && all != "0");
        let restarting = conditions::is_true(&status.conditions, conditions::RESTARTING);
        let runs = ready && !restarting && status.group_restarts == restarts;
        Ok(if runs { Check::Met(()) } else { Check::Unmet(format!("{status:?}")) })
    })
    .await
}

/// The value of an expression without labels; 0 before there is any.
async fn total(prometheus: &Prometheus, expression: &str) -> Result<f64> {
    Ok(prometheus.query(expression).await?.first().map_or(0.0, |(_, value)| *value))
}

/// Seconds that all restarts so far have spent in each phase.
async fn spent(prometheus: &Prometheus) -> Result<Means> {
    let phases = prometheus.query(PHASES).await?;
    let of = |phase: &str| phases.iter().find(|(labels, _)| label(labels, "phase") == phase).map_or(0.0, |it| it.1);
    Ok(ORDER.map(of))
}

/// Waits until Prometheus has heard of so many restarts that are over.
async fn scraped(prometheus: &Prometheus, wanted: f64) -> Result<()> {
    wait::until_met(LIMIT, format!("Prometheus to know of {wanted} restarts"), || async {
        let known = total(prometheus, RECOVERED).await?;
        Ok(if known >= wanted { Check::Met(()) } else { Check::Unmet(format!("{known}")) })
    })
    .await
}

fn label<'a>(labels: &'a BTreeMap<String, String>, name: &str) -> &'a str {
    labels.get(name).map_or("", String::as_str)
}

/// Restarts since the beginning.
fn curves(area: &DrawingArea<SVGBackend<'_>, Shift>, series: &[Series], begun: f64) -> Result<()> {
    let last = series.iter().flat_map(|(_, points)| points).map(|(at, _)| at - begun).fold(1.0, f64::max);
    let most = series.iter().flat_map(|(_, points)| points).map(|(_, value)| *value).fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption("jobset_restarts_total, by strategy", ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(34)
        .y_label_area_size(38)
        .build_cartesian_2d(0.0..last, 0.0..most + 1.0)
        .map_err(text)?;
    chart.configure_mesh().x_desc("seconds").max_light_lines(1).draw().map_err(text)?;
    for ((labels, points), color) in series.iter().zip(COLORS) {
        let steps = points.iter().map(|(at, value)| (at - begun, *value));
        let line = LineSeries::new(steps, color.stroke_width(2));
        let drawn = chart.draw_series(line).map_err(text)?;
        drawn.label(label(labels, "strategy")).legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color));
    }
    chart.configure_series_labels().position(SeriesLabelPosition::UpperLeft).draw().map_err(text)
}

/// Mean seconds of each phase, one upon the other, by group.
fn bars(area: &DrawingArea<SVGBackend<'_>, Shift>, groups: &[(&str, Means)]) -> Result<()> {
    let places: Vec<(f64, &str)> = (0_u32..).map(f64::from).zip(groups.iter().map(|(name, _)| *name)).collect();
    let width = places.last().map_or(1.0, |(place, _)| place + 1.0);
    let most = groups.iter().map(|(_, means)| means.iter().sum()).fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(area)
        .caption("mean of jobset_restart_phase_seconds, by group", ("sans-serif", 16))
        .margin(12)
        .x_label_area_size(34)
        .y_label_area_size(38)
        .build_cartesian_2d(0.0..width, 0.0..most * 1.5)
        .map_err(text)?;
    let name = |x: &f64| {
        let middle = places.iter().find(|(place, _)| (x - place - 0.5).abs() < 0.1);
        middle.map_or_else(String::new, |(_, group)| (*group).to_owned())
    };
    chart
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(groups.len() * 2 + 1)
        .x_label_formatter(&name)
        .y_desc("seconds")
        .max_light_lines(1)
        .draw()
        .map_err(text)?;
    for ((index, phase), color) in ORDER.into_iter().enumerate().zip(COLORS) {
        let rectangle = |((place, _), (_, means)): (&(f64, &str), &(&str, Means))| {
            let below: f64 = means[..index].iter().sum();
            Rectangle::new([(place + 0.25, below), (place + 0.75, below + means[index])], color.filled())
        };
        let rectangles: Vec<_> = places.iter().zip(groups).map(rectangle).collect();
        let drawn = chart.draw_series(rectangles).map_err(text)?;
        drawn.label(phase).legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 12, y + 5)], color.filled()));
    }
    chart.configure_series_labels().position(SeriesLabelPosition::UpperLeft).border_style(BLACK).draw().map_err(text)
}

fn text(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("{error}")
}
