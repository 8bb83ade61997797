//! What the agent takes while its worker writes its step a hundred times a second, to its file and to its output.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jobset_api::labels;
use jobset_harness::cluster::Cluster;
use jobset_harness::group::Group;
use jobset_harness::process;
use jobset_harness::progress::progress;
use jobset_harness::workload::{RECREATE, Workload};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use serde_json::json;

use super::mode::{MeasuredMode, case};
use super::report::{AgentFigures, ProgressFigures};
use crate::meter::{self, Meter};
use crate::report::rounded;

/// Time between two steps of a worker, in milliseconds.
const STEP_MILLISECONDS: &str = "10";
/// Lines of output for each step, in the modes that have any.
const LINES_PER_STEP: &str = "10";
const PATTERN: &str = "^step ([0-9]+)";
/// For how long agents are measured. The kernel counts CPU time in hundredths of a second.
const MEASURED: Duration = Duration::from_mins(1);

/// How workers tell of their steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Telling {
    /// By the file alone.
    File,
    /// By the file, beside much output.
    FileBesideOutput,
    /// By that output, and by the file.
    Output,
}

/// Kinds of agents and of what their workers do.
const MODES: [(&str, MeasuredMode, Telling); 4] = [
    ("progress-sidecar", MeasuredMode::Sidecar, Telling::File),
    ("progress-supervisor", MeasuredMode::Supervisor, Telling::File),
    ("progress-output", MeasuredMode::Supervisor, Telling::FileBesideOutput),
    ("progress-pattern", MeasuredMode::Supervisor, Telling::Output),
];

/// Measures the agents of four workers beside one another, of each kind; the busiest and the largest one.
pub(super) async fn measure(cluster: &Cluster, figures: &mut AgentFigures) -> Result<()> {
    for (name, mode, telling) in MODES {
        let tells = |workload| stepping(case(name, mode).of(workload), telling);
        let group = Group::apply(cluster, name, RECREATE, tells).await?;
        group.runs_in_epoch(1).await?;
        let of_mode = match telling {
            Telling::File => &mut figures.progress,
            Telling::FileBesideOutput => &mut figures.output,
            Telling::Output => &mut figures.pattern,
        };
        let of_mode = of_mode.get_or_insert_default();
        add(&group, of_mode).await?;
        progress(&format!("{name}: {} % of a core, {} KiB at most", of_mode.cpu_percent, of_mode.rss_kib));
        group.remove().await?;
    }
    Ok(())
}

/// Has the workers tell their agents of their steps.
fn stepping(workload: Workload, telling: Telling) -> Workload {
    let mut workload = workload.with_env("STEP_MILLISECONDS", STEP_MILLISECONDS);
    if telling != Telling::File {
        workload = workload.with_env("LINES_PER_STEP", LINES_PER_STEP);
    }
    if telling == Telling::Output {
        workload = workload.with_env("JOBSET_PROGRESS_PATTERN", PATTERN);
    }
    workload.0["metadata"]["annotations"][labels::STALL_AFTER] = json!("1m");
    workload
}

/// Adds the CPU time and the memory of the agents of a group.
async fn add(group: &Group, figures: &mut ProgressFigures) -> Result<()> {
    let agents = process::find("jobset-agent", &[("NAMESPACE", &group.namespace)])?;
    ensure!(agents.len() == group.workers, "{} agents run for {} workers", agents.len(), group.workers);
    let mut meters = Vec::new();
    for agent in &agents {
        let pid = u32::try_from(agent.pid.as_raw_nonzero().get())?;
        let meter = Meter::new(&[("agent", pid)])?;
        meters.push((pid, meter.read()?, meter));
    }
    tokio::time::sleep(MEASURED).await;
    for (pid, before, meter) in meters {
        let used = meter.read()?.since(&before);
        let percent = rounded(100.0 * used.of("agent") / used.of("elapsed"), 1e2);
        figures.cpu_percent = figures.cpu_percent.max(percent);
        figures.rss_kib = figures.rss_kib.max(meter::status(pid)?.vmrss.context("the agent has no VmRSS")?);
    }
    // Agents have read what workers write.
    let told = group.live_pods().await?.iter().filter(|pod| has_told(pod)).count();
    ensure!(told == group.workers, "{told} of {} workers have told of their steps", group.workers);
    Ok(())
}

fn has_told(pod: &Pod) -> bool {
    pod.annotations().contains_key(labels::PROGRESS)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn workers_of_injected_agents_step() {
        for (name, mode, telling) in MODES {
            let workload = Workload::new(RECREATE, "ns", Path::new("/journals")).unwrap();
            let jobset = stepping(case(name, mode).of(workload), telling).0;
            let annotations = &jobset["metadata"]["annotations"];
            assert_eq!(annotations[labels::INJECT_AGENT], format!("{mode:?}"));
            assert_eq!(annotations[labels::STALL_AFTER], "1m");
            let worker = &jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0];
            let has = |name: &str, value: &str| {
                worker["env"].as_array().unwrap().contains(&json!({"name": name, "value": value}))
            };
            assert!(has("STEP_MILLISECONDS", STEP_MILLISECONDS), "{worker}");
            assert_eq!(has("LINES_PER_STEP", LINES_PER_STEP), telling != Telling::File, "{worker}");
            assert_eq!(has("JOBSET_PROGRESS_PATTERN", PATTERN), telling == Telling::Output, "{worker}");
        }
    }
}
