//! Tables of measured figures, from what the benchmarks have written: `docs/figures` has a copy of their results.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use jobset_harness::median::median;
use jobset_harness::paths;
use serde_json::Value;

use crate::{Page, pages_folder};

/// What [`record`] copies: results below the target folder.
const RESULTS: [&str; 11] = [
    "demo/summary.json",
    "bench/agent.json",
    "bench/agent-stream.json",
    "bench/webhook.json",
    "bench/ui.json",
    "bench/go-5000.json",
    "bench/restart-5000.json",
    "bench/restart-5000-kept.json",
    "bench/restart-5000-recreate.json",
    "bench/stream-5000.json",
    "bench/stream-5000-kept.json",
];

const PICTURE: &str = "demo/restart.svg";

/// The cases of `make bench` with 5,000 Pods: a name and the file. All are of one run, and are compared with the first.
const CASES: [(&str, &str); 6] = [
    ("Go JobSet, in place", "go-5000.json"),
    ("in place, sidecars", "restart-5000.json"),
    ("in place, supervisors", "restart-5000-kept.json"),
    ("in place, sidecars, agent stream", "stream-5000.json"),
    ("in place, supervisors, agent stream", "stream-5000-kept.json"),
    ("recreation", "restart-5000-recreate.json"),
];

/// Copies the results of the latest runs. A benchmark that has not run since keeps its old ones.
pub fn record(figures: &Path) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(figures)?;
    let images = pages_folder().join("images");
    fs::create_dir_all(&images)?;
    let results = RESULTS.iter().map(|result| (result, figures)).chain([(&PICTURE, images.as_path())]);
    let mut copied = Vec::new();
    for (result, folder) in results {
        let from = paths::target().join(result);
        if from.exists() {
            let to = folder.join(from.file_name().unwrap_or_default());
            fs::copy(&from, &to).with_context(|| format!("cannot copy {}", from.display()))?;
            copied.push(to);
        }
    }
    Ok(copied)
}

/// All tables, from the recorded results in this folder.
pub fn tables(figures: &Path) -> Result<Vec<Page>> {
    let read = |name: &str| -> Result<Option<Value>> {
        let file = figures.join(name);
        if !file.exists() {
            return Ok(None);
        }
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
        serde_json::from_str(&text).map(Some).with_context(|| format!("{} is no JSON", file.display()))
    };
    let page = |name: &str, text: Option<String>| {
        Page::new(format!("figures/{name}.md"), text.unwrap_or_else(|| "*No run is recorded.*\n".to_owned()))
    };
    let has_go = figures.join(CASES[0].1).exists();
    let mut cases = Vec::new();
    for (name, file) in CASES {
        cases.extend(read(file)?.map(|result| (name, result)));
    }
    let over_stream = read("agent-stream.json")?.unwrap_or_default();
    Ok(vec![
        page("restarts", read("summary.json")?.as_ref().map(restarts)),
        page("agent", read("agent.json")?.map(|of_api_server| agent(&of_api_server, &over_stream))),
        page("bench", has_go.then(|| bench(&cases))),
        page("webhook", read("webhook.json")?.as_ref().map(webhook)),
        page("ui", read("ui.json")?.as_ref().map(ui)),
    ])
}

/// The text with the table of each comment `figures: NAME` below it, up to the comment `end of figures`.
pub fn filled(text: &str, tables: &[Page]) -> String {
    let mut filled = String::new();
    let mut in_table = false;
    for line in text.split_inclusive('\n') {
        let name = line.strip_prefix("<!-- figures: ").and_then(|rest| rest.split(' ').next());
        in_table &= !line.starts_with("<!-- end of figures");
        if !in_table {
            filled.push_str(line);
        }
        let of_name = |name: &str| tables.iter().find(|table| table.path.ends_with(format!("{name}.md")));
        if let Some(table) = name.and_then(of_name) {
            let _ = write!(filled, "\n{}\n", table.text);
            in_table = true;
        }
    }
    filled
}

fn restarts(summary: &Value) -> String {
    let mut table = "| strategy | failures | median | longest | Pods that stayed |\n|---|---|---|---|---|\n".to_owned();
    for (name, key) in [("in place", "in_place"), ("recreation", "recreate")] {
        let series = &summary[key];
        let seconds = numbers(&series["seconds"]);
        let (middle, longest) = (median(seconds.iter().copied()), largest(&seconds));
        let _ = writeln!(
            table,
            "| {name} | {} | {middle:.2} s | {longest:.2} s | {} of {} |",
            seconds.len(),
            series["same_uid"],
            series["pods"]
        );
    }
    table
}

fn agent(agent: &Value, over_stream: &Value) -> String {
    let mut table = "| | restarts | median | longest |\n|---|---|---|---|\n".to_owned();
    for (name, run, key) in [
        ("sidecar", agent, "sidecar"),
        ("sidecar, agent stream", over_stream, "sidecar"),
        ("sidecar, worker ignores SIGTERM", agent, "sidecar_ignoring_sigterm"),
        ("supervisor", agent, "supervisor"),
        ("supervisor, agent stream", over_stream, "supervisor"),
        ("supervisor, worker ignores SIGTERM", agent, "supervisor_ignoring_sigterm"),
        ("recreation", agent, "recreate"),
    ] {
        let seconds = numbers(&run[key]["seconds"]);
        if seconds.is_empty() {
            continue;
        }
        let (middle, longest) = (median(seconds.iter().copied()), largest(&seconds));
        let _ = writeln!(table, "| {name} | {} | {middle:.2} s | {longest:.2} s |", seconds.len());
    }
    let megabytes = number(&agent["peak_rss_kib"]) * 1024.0 / 1e6;
    let binary = number(&agent["binary_bytes"]) / 1e6;
    let _ = writeln!(
        table,
        "\nThe agent's file has {binary:.2} MB. Its memory is {megabytes:.2} MB at most. The kubelets are {}.",
        agent["kubelets"].as_str().unwrap_or_default()
    );
    table
}

fn bench(cases: &[(&str, Value)]) -> String {
    let restart = |case: &Value, pointer: &str| -> f64 {
        let restarts = case["restarts"].as_array().map(Vec::as_slice).unwrap_or_default();
        median(restarts.iter().map(|restart| restart.pointer(pointer).map_or(f64::NAN, number)))
    };
    let go = cases.first().map_or(f64::NAN, |(_, case)| restart(case, "/seconds"));
    let mut table =
        "| 5,000 Pods | restarts | median | of the Go JobSet's | JobSet writes | controller CPU | API server CPU |\n\
                     |---|---|---|---|---|---|---|\n"
            .to_owned();
    for (name, case) in cases {
        let seconds = restart(case, "/seconds");
        let _ = writeln!(
            table,
            "| {name} | {} | {seconds:.2} s | {:.3} | {} | {:.2} s | {:.2} s |",
            case["restarts"].as_array().map_or(0, Vec::len),
            seconds / go,
            restart(case, "/jobset_writes"),
            restart(case, "/cpu/controller"),
            restart(case, "/cpu/api_server"),
        );
    }
    let cpus = cases.first().map_or(Value::Null, |(_, case)| case["cpus"].clone());
    let _ = writeln!(
        table,
        "\nAll of one run on {cpus} CPUs that API server, etcd, controllers, relays and agents share. Without kubelets. CPU is that \
         until the last agent has lifted its barrier."
    );
    let minutes = cases.iter().filter_map(|(_, case)| case.pointer("/stream/minute/api_server"));
    let minutes: Vec<String> = minutes.map(|seconds| format!("{:.0} s", number(seconds))).collect();
    if !minutes.is_empty() {
        let _ = writeln!(
            table,
            "\nOver the stream, the annotations of the Pods follow. With them, the API server uses {} of CPU in the minute from the \
             failure on.",
            minutes.join(" and ")
        );
    }
    table
}

fn webhook(webhook: &Value) -> String {
    let mut table = "| review of a JobSet of 42 kB | CPU | 99 of 100, at 500 a second |\n|---|---|---|\n".to_owned();
    let rows = [("mutate", "mutate"), ("validate", "validate"), ("pod", "a Pod whose JobSet avoids nodes")];
    for (key, name) in rows {
        let figures = &webhook[key];
        // A run of before has none of the Pod.
        if figures.is_null() {
            continue;
        }
        let (cpu, p99) = (number(&figures["cpu_ms_per_review"]), number(&figures["p99_ms_at_500"]));
        let _ = writeln!(table, "| {name} | {cpu:.2} ms | {p99:.2} ms |");
    }
    let megabytes = number(&webhook["peak_rss_kib"]) * 1024.0 / 1e6;
    let _ = writeln!(table, "\nThe memory of the service is {megabytes:.1} MB at most.");
    table
}

fn ui(ui: &Value) -> String {
    let of_each = |change: &Value| number(&change["fromEventMs"]);
    let changes: Vec<f64> = ui["changesOfAllPods"].as_array().into_iter().flatten().map(of_each).collect();
    let reports = &ui["reports"];
    let rows = [
        ("first paint".to_owned(), number(&ui["firstPaintMs"]["first-paint"]), "ms"),
        (format!("a change of all {} Pods, slowest of {}", ui["pods"], changes.len()), largest(&changes), "ms"),
        (
            format!("{} reports, one by one: slowest painting", reports["pods"]),
            number(&reports["slowestFromEventMs"]),
            "ms",
        ),
        ("memory of the server, at most".to_owned(), number(&ui["serverMemoryMb"]["peak"]), "MB"),
    ];
    let row = |(what, value, unit): (String, f64, &str)| format!("| {what} | {value:.0} {unit} |\n");
    "| the page of a JobSet | |\n|---|---|\n".to_owned() + &rows.into_iter().map(row).collect::<String>()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(f64::NAN)
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().into_iter().flatten().map(number).collect()
}

fn largest(numbers: &[f64]) -> f64 {
    numbers.iter().copied().fold(f64::NAN, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_replaces_what_stands_below_its_comment() {
        let tables = [Page::new("figures/bench.md", "| new |\n".to_owned())];
        let text = "a\n<!-- figures: bench -->\nold\n<!-- end of figures -->\nb\n";
        let once = filled(text, &tables);
        assert_eq!(once, "a\n<!-- figures: bench -->\n\n| new |\n\n<!-- end of figures -->\nb\n");
        assert_eq!(filled(&once, &tables), once);
    }
}
