//! The cost of a restart against the number of agents, as a picture.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use plotters::coord::Shift;
use plotters::prelude::*;
use serde::Deserialize;

use super::case::{Load, Strategy, WatchMode};
use super::report::number;
use super::table::name;
use jobset_harness::median::median;

/// Width and height in pixels.
const SIZE: (u32, u32) = (1100, 500);
/// One for each case, to be told apart by those who do not see red and green alike.
const COLORS: [RGBColor; 5] =
    [RGBColor(0, 0, 0), RGBColor(0, 114, 178), RGBColor(86, 180, 233), RGBColor(213, 94, 0), RGBColor(230, 159, 0)];
/// What cannot be shown on a logarithmic axis: the kernel counts CPU time in hundredths of a second.
const LEAST: f64 = 0.005;

/// The part of a result that is drawn.
#[derive(Clone, Debug, Deserialize)]
struct Drawn {
    agents: u32,
    load: Option<Load>,
    watch: Option<WatchMode>,
    restarts: Vec<Cost>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Cost {
    seconds: f64,
    controller_cpu_seconds: f64,
}

/// For each case, by its name, agents and the median of a figure.
type Series = BTreeMap<&'static str, Vec<(f64, f64)>>;

/// Draws all results of this folder, whenever they were measured, into its `restart.svg`.
///
/// # Errors
/// If a result cannot be read, or the picture not be written.
pub(super) fn draw(folder: &Path) -> Result<()> {
    let results = read(folder)?;
    let path = folder.join("restart.svg");
    let area = SVGBackend::new(&path, SIZE).into_drawing_area();
    let drawn = (|| {
        area.fill(&WHITE).map_err(text)?;
        let panels = area.split_evenly((1, 2));
        panel(&panels[0], "seconds of one restart", &series(&results, |cost| cost.seconds))?;
        panel(&panels[1], "CPU seconds of the controller", &series(&results, |cost| cost.controller_cpu_seconds))?;
        area.present().map_err(text)
    })();
    drawn.with_context(|| format!("cannot draw {}", path.display()))
}

fn read(folder: &Path) -> Result<Vec<Drawn>> {
    let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut results = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        let is_json = path.extension().is_some_and(|extension| extension == "json");
        if is_json && path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with("restart-")) {
            let json = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            let result =
                serde_json::from_slice(&json).with_context(|| format!("{} is not a result", path.display()))?;
            results.push(result);
        }
    }
    Ok(results)
}

fn series(results: &[Drawn], figure: fn(&Cost) -> f64) -> Series {
    let mut series = Series::new();
    for result in results {
        let strategy = match (result.load, result.watch) {
            (Some(load), Some(watch)) => Strategy::InPlace { load, watch },
            _ => Strategy::Recreate,
        };
        let cost = median(result.restarts.iter().map(figure));
        if cost.is_finite() {
            series.entry(name(strategy)).or_default().push((number(result.agents), cost.max(LEAST)));
        }
    }
    for points in series.values_mut() {
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    series
}

/// The least and the largest, with room around them on a logarithmic axis.
fn bounds(values: impl Iterator<Item = f64>) -> std::ops::Range<f64> {
    let (least, largest) =
        values.fold((f64::INFINITY, 0.0_f64), |(least, largest), value| (least.min(value), largest.max(value)));
    if least > largest { 1.0..10.0 } else { least / 1.5..largest * 1.5 }
}

fn panel(area: &DrawingArea<SVGBackend<'_>, Shift>, caption: &str, series: &Series) -> Result<()> {
    let points = || series.values().flatten().copied();
    let mut chart = ChartBuilder::on(area)
        .margin(20)
        .caption(caption, ("sans-serif", 18))
        .x_label_area_size(40)
        .y_label_area_size(60)
        .build_cartesian_2d(
            bounds(points().map(|point| point.0)).log_scale(),
            bounds(points().map(|point| point.1)).log_scale(),
        )
        .map_err(text)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_desc("agents")
        .x_labels(5)
        .x_label_formatter(&|agents| format!("{agents:.0}"))
        .y_label_formatter(&|seconds| format!("{seconds}"))
        .draw()
        .map_err(text)?;
    for ((name, points), color) in series.iter().zip(COLORS) {
        let line = LineSeries::new(points.iter().copied(), color.stroke_width(2)).point_size(4);
        let key = move |(x, y)| PathElement::new([(x, y), (x + 16, y)], color.stroke_width(2));
        chart.draw_series(line).map_err(text)?.label(*name).legend(key);
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .border_style(BLACK)
        .draw()
        .map_err(text)?;
    Ok(())
}

/// The errors of the drawing library borrow what they draw on.
#[expect(clippy::needless_pass_by_value, reason = "an adapter for map_err")]
fn text<E: std::error::Error + Send + Sync>(error: DrawingAreaErrorKind<E>) -> anyhow::Error {
    anyhow!("{error}")
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::{in_place, report};
    use super::*;

    #[test]
    fn results_of_a_folder_become_one_picture() {
        let folder = tempfile::tempdir().unwrap();
        let reports = [
            report(1000, in_place(Load::Bare), &[4.0, 2.0, 3.0]),
            report(100, in_place(Load::Bare), &[1.0]),
            report(100, Strategy::Recreate, &[5.0]),
        ];
        for report in &reports {
            report.write(folder.path()).unwrap();
        }
        std::fs::write(folder.path().join("agents.log"), "not a result").unwrap();

        let drawn = series(&read(folder.path()).unwrap(), |cost| cost.seconds);
        assert_eq!(drawn["in place, bare"], [(100.0, 1.0), (1000.0, 3.0)]);
        assert_eq!(drawn["Recreate"], [(100.0, 5.0)]);

        draw(folder.path()).unwrap();
        let picture = std::fs::read_to_string(folder.path().join("restart.svg")).unwrap();
        assert!(picture.contains("seconds of one restart") && picture.contains("Recreate"), "{picture}");
    }
}
