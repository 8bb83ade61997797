//! The picture of the page of metrics: the controller's metrics of a few failures, drawn from the answers of a Prometheus.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use jobset_api::conditions;
use jobset_harness::chart::Chart;
use jobset_harness::cluster::Cluster;
use jobset_harness::group::{Group, LIMIT};
use jobset_harness::install::{self, install};
use jobset_harness::journal::now;
use jobset_harness::paths;
use jobset_harness::programs::rust_binaries;
use jobset_harness::progress::progress;
use jobset_harness::prometheus::{Prometheus, Series};
use jobset_harness::wait::{self, Check};
use jobset_harness::workload::{RECREATE, STORY_1, SUPERVISED};

/// Colors that people who do not see red and green can tell apart.
const COLORS: [&str; 4] = ["#0072B2", "#E69F00", "#D55E00", "#56B4E9"];
const FAILURES: i32 = 5;
/// From a restart to the next failure.
const PAUSE: Duration = Duration::from_secs(8);
/// Seconds between two points of a curve.
const STEP: f64 = 1.0;
/// The plot area of each panel, in pixels: width, and the vertical positions of its bottom and top.
const WIDTH: f64 = 480.0;
const BOTTOM: f64 = 370.0;
const TOP: f64 = 50.0;
/// Values between 0 and the top that have a line.
const LINES: f64 = 5.0;

const RESTARTS: &str = "sum by (strategy) (jobset_restarts_total)";
const RECOVERED: &str = r#"sum(jobset_restart_duration_seconds_count{result="recovered"})"#;
const PHASES: &str = "sum by (phase) (jobset_restart_phase_seconds_sum)";

const ORDER: [&str; 4] = ["detect", "register", "lift", "recreate"];

/// Mean seconds of each of [`ORDER`].
type Means = [f64; 4];

/// Lets groups fail on a cluster of its own while Prometheus scrapes the controller, and draws the metrics into `file`,
/// by default `docs/src/images/restart-metrics.svg`.
pub async fn draw(file: Option<PathBuf>) -> Result<()> {
    let file = file.unwrap_or_else(|| paths::workspace().join("docs/src/images/restart-metrics.svg"));
    let cluster = Cluster::start(2).await?;
    install(&cluster, &rust_binaries().await?).await?;
    let prometheus = Prometheus::start(&cluster, install::NAMESPACE, &Chart::alerts()).await?;
    let begun = now();
    let mut means = Vec::new();
    for (namespace, manifest) in [("sidecars", STORY_1), ("supervisors", SUPERVISED), ("recreated", RECREATE)] {
        progress(&format!("{FAILURES} failures of {namespace}"));
        let (recovered, before) = (total(&prometheus, RECOVERED).await?, spent(&prometheus).await?);
        let group = Group::apply(&cluster, namespace, manifest, |workload| workload.with_max_restarts(100)).await?;
        fail(&group).await?;
        let expected = recovered + f64::from(FAILURES);
        wait::until_met(LIMIT, format!("Prometheus to have {expected} restarts"), || async {
            let known = total(&prometheus, RECOVERED).await?;
            Ok(if known >= expected { Check::Met(()) } else { Check::Unmet(format!("{known}")) })
        })
        .await?;
        let after = spent(&prometheus).await?;
        let mean = |phase: usize| (after[phase] - before[phase]) / f64::from(FAILURES);
        means.push((namespace, std::array::from_fn(mean)));
        group.remove().await?;
    }
    let restarts = prometheus.query_range(RESTARTS, (begun, now()), STEP).await?;
    std::fs::write(&file, svg(&restarts, begun, &means)).with_context(|| format!("cannot write {}", file.display()))?;
    println!("written: {}", file.display());
    cluster.stop().await
}

/// Lets a worker of the group fail again and again, each time after all Jobs are ready.
async fn fail(group: &Group) -> Result<()> {
    for restarts in 0..=FAILURES {
        wait::until_met(LIMIT, format!("{} to run after {restarts} restarts", group.namespace), || async {
            let status = group.status().await?;
            let ready = status.jobs_ready.split_once('/').is_some_and(|(ready, all)| ready == all && all != "0");
            let restarting = conditions::is_true(&status.conditions, conditions::RESTARTING);
            let runs = ready && !restarting && status.group_restarts == restarts;
            Ok(if runs { Check::Met(()) } else { Check::Unmet(format!("{status:?}")) })
        })
        .await?;
        if restarts < FAILURES {
            tokio::time::sleep(PAUSE).await;
            let workers = group.workers().await?;
            group.exit(workers.values().next().context("no worker")?, 1).await?;
        }
    }
    Ok(())
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

fn label<'a>(labels: &'a BTreeMap<String, String>, name: &str) -> &'a str {
    labels.get(name).map_or("", String::as_str)
}

/// The picture: on the left restarts since the beginning, on the right mean seconds of each phase, stacked, by group.
fn svg(restarts: &[Series], begun: f64, groups: &[(&str, Means)]) -> String {
    let points = || restarts.iter().flat_map(|(_, points)| points);
    let last = points().map(|(at, _)| at - begun).fold(1.0, f64::max);
    let (curves_left, bars_left) = (50.0, 600.0);
    let strategies: Vec<&str> = restarts.iter().map(|(labels, _)| label(labels, "strategy")).collect();
    let most = points().map(|(_, value)| *value).fold(1.0, f64::max);
    let (mut svg, unit) = panel(curves_left, "jobset_restarts_total, by strategy", &strategies, most);
    for ((_, points), color) in restarts.iter().zip(COLORS) {
        let point = |(at, value): &(f64, f64)| {
            format!("{:.0},{:.0} ", curves_left + (at - begun) / last * WIDTH, BOTTOM - value * unit)
        };
        let points: String = points.iter().map(point).collect();
        let _ = writeln!(svg, r#"<polyline fill="none" stroke="{color}" stroke-width="2" points="{points}"/>"#);
    }
    svg += &text(curves_left + WIDTH, BOTTOM + 20.0, "end", &format!("{last:.0} seconds"));

    let most = groups.iter().map(|(_, means)| means.iter().sum()).fold(1.0, f64::max);
    let (bars, unit) = panel(bars_left, "mean seconds of jobset_restart_phase_seconds, by group", &ORDER, most);
    svg += &bars;
    let width = WIDTH / f64::from(u32::try_from(groups.len()).unwrap_or(u32::MAX));
    for (place, (group, means)) in (0_u32..).zip(groups) {
        let (left, mut top) = (bars_left + width * f64::from(place), BOTTOM);
        for (mean, color) in means.iter().zip(COLORS) {
            let (x, wide, high) = (left + width / 4.0, width / 2.0, mean * unit);
            top -= high;
            let _ = writeln!(svg, r#"<rect x="{x}" y="{top:.1}" width="{wide}" height="{high:.1}" fill="{color}"/>"#);
        }
        svg += &text(left + width / 2.0, BOTTOM + 20.0, "middle", group);
    }
    let head =
        r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1100 420" font-family="sans-serif" font-size="12">"#;
    format!("{head}\n<rect width=\"1100\" height=\"420\" fill=\"white\"/>\n{svg}</svg>\n")
}

/// A panel without its figures: title, lines with their values, and a legend. Also gives the pixels of one unit.
fn panel(left: f64, title: &str, names: &[&str], most: f64) -> (String, f64) {
    let step = (most * 1.2 / LINES).ceil();
    let unit = (BOTTOM - TOP) / (LINES * step);
    let mut panel = text(left + WIDTH / 2.0, 25.0, "middle", title);
    for value in (0..=5).map(|line| f64::from(line) * step) {
        let (y, right) = (BOTTOM - value * unit, left + WIDTH);
        let _ = writeln!(panel, r##"<path stroke="#ddd" d="M{left} {y}H{right}"/>"##);
        panel += &text(left - 8.0, y + 4.0, "end", &value.to_string());
    }
    for (line, (name, color)) in (0_u32..).zip(names.iter().zip(COLORS)) {
        let (x, y) = (left + 12.0, TOP + 8.0 + 18.0 * f64::from(line));
        let _ = writeln!(panel, r#"<rect x="{x}" y="{y}" width="12" height="10" fill="{color}"/>"#);
        panel += &text(x + 18.0, y + 10.0, "start", name);
    }
    (panel, unit)
}

fn text(x: f64, y: f64, anchor: &str, text: &str) -> String {
    format!("<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_and_curves_are_scaled_to_the_highest_line() {
        let restarts = [([("strategy".to_owned(), "Recreate".to_owned())].into(), vec![(10.0, 0.0), (20.0, 4.0)])];
        let svg = svg(&restarts, 10.0, &[("sidecars", [1.0, 2.0, 0.5, 0.0])]);
        assert!(svg.contains(r#"points="50,370 530,114 ""#), "4 of 5 restarts: {svg}");
        assert!(svg.contains(r#"y="178.0" width="240" height="128.0""#), "2 of 5 seconds above 1: {svg}");
        assert!(svg.contains(">Recreate</text>") && svg.contains(">sidecars</text>"), "{svg}");
    }
}
