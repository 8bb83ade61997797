//! The page of `ui` in a real browser: Debian's Chromium, with 5,000 Pods on a real API server without kubelets.
//!
//! `make test-ui` runs it. `make bench-ui` also writes the figures to `target/bench/ui.json`, and `make screenshots` the pictures
//! of the docs.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jobset_harness::paths;
use jobset_harness::programs::run;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tokio::task::block_in_place;

use crate::bench::{CONCURRENCY, JOBS, PODS, fill};
use crate::events::RESTART;
use crate::fixture::Space;
use crate::ui::Ui;

/// The script of the browser, which runs in Node.js.
struct Script {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Script {
    fn start(address: &str) -> Result<Self> {
        let (sources, folder) = (paths::workspace().join("cli/tests/browser"), paths::target().join("browser"));
        fs::create_dir_all(&folder)?;
        for source in ["package.json", "package-lock.json", "page.mjs", "steps.mjs", "ui.mjs"] {
            fs::copy(sources.join(source), folder.join(source)).with_context(|| format!("cannot copy {source}"))?;
        }
        run(Command::new("npm").args(["ci", "--no-audit", "--no-fund"]).current_dir(&folder))
            .context("it needs Node.js with npm")?;
        let mut command = Command::new("node");
        command.args(["ui.mjs", address, &PODS.to_string()]).current_dir(&folder);
        if std::env::var_os("SCREENSHOTS").is_some() {
            command.arg(paths::workspace().join("docs/src/images"));
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let input = child.stdin.take().context("no input")?;
        let output = BufReader::new(child.stdout.take().context("no output")?);
        Ok(Self { child, input, output })
    }

    /// Waits until the script has seen what it expects, and returns what it tells.
    fn reaches(&mut self, step: &str) -> Result<Value> {
        let mut line = String::new();
        if block_in_place(|| self.output.read_line(&mut line))? == 0 {
            bail!("the script ended before {step}; it says above why");
        }
        let told: Value = serde_json::from_str(&line).with_context(|| line.clone())?;
        assert_eq!(told["step"], step);
        Ok(told)
    }

    fn go_on(&mut self) -> Result<()> {
        Ok(writeln!(self.input)?)
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Milliseconds since 1970, as browsers count.
fn now() -> Result<f64> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64() * 1000.0)
}

/// A field of `/proc/PID/status`, in MB.
fn memory(pid: u32, field: &str) -> Result<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)).context("no such field")?;
    let kilobytes: f64 = line.trim_start_matches(':').trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes / 1024.0)
}

/// The status in which the group restarts from an epoch, as the controller writes it.
fn restarting_status(epoch: i32) -> Value {
    let message = format!("in place, from epoch {epoch} to {}: Pod bench-workers-0-0 on node node-0 failed", epoch + 1);
    json!({"deprecatedEpoch": epoch, "groupRestarts": epoch, "conditions": [restarting("True", &message)],
           "replicatedJobsStatus": [{"name": "workers", "ready": 0}]})
}

/// The status in which all workers run in an epoch, and none makes progress.
fn running_status(epoch: i32) -> Value {
    let stalled = condition("ProgressStalled", "True", "ProgressStalled", "no worker has made progress");
    json!({"syncedEpoch": epoch, "conditions": [restarting("False", "all Jobs are ready"), stalled],
           "replicatedJobsStatus": [{"name": "workers", "ready": JOBS}],
           "ledger": {"bucket": "Finished", "since": "2026-01-01T00:00:00.000000Z",
                      "milliseconds": {"running": 9_000_000, "stalled": 1_000_000}}})
}

fn restarting(status: &str, message: &str) -> Value {
    condition("RestartingJobSet", status, "InPlaceRestart", message)
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({"type": kind, "status": status, "reason": reason, "message": message,
           "lastTransitionTime": Timestamp::from_second(Timestamp::now().as_second()).unwrap_or_default().to_string()})
}

async fn set_status(space: &Space, status: Value) -> Result<f64> {
    let patch = Patch::Merge(json!({"status": status}));
    let start = now()?;
    space.jobsets().patch_status("bench", &PatchParams::default(), &patch).await?;
    Ok(start)
}

/// All Pods of these completion indexes report the epoch 4. Returns when the last one has.
async fn report(space: &Space, indexes: std::ops::Range<usize>) -> Result<f64> {
    let api: Api<Pod> = space.pods();
    let patch = json!({"metadata": {"annotations": {"jobset.sigs.k8s.io/epoch": "4"}}});
    let report = async |(job, index): (usize, usize)| {
        let name = format!("bench-workers-{job}-{index}");
        api.patch_metadata(&name, &PatchParams::default(), &Patch::Merge(&patch)).await.map(|_| ())
    };
    let pods = (0..JOBS).flat_map(|job| indexes.clone().map(move |index| (job, index)));
    stream::iter(pods).map(Ok).try_for_each_concurrent(CONCURRENCY, report).await?;
    now()
}

/// The figures of a painting of all Pods that a change of the JobSet at this time has caused.
fn figures(painting: &Value, changed: f64) -> Value {
    let at = painting["at"].as_f64().unwrap_or(f64::NAN);
    json!({"fromEventMs": painting["milliseconds"], "fromChangeMs": at - changed, "cells": painting["changes"]})
}

#[test]
fn goodput_of_page_has_texts_of_command() -> Result<()> {
    let script = paths::workspace().join("cli/tests/browser/goodput.mjs");
    run(Command::new("node").arg(script)).context("it needs Node.js")?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs Chromium, and creates 5,000 Pods, which takes a minute"]
async fn page_of_5000_pods_in_chromium() -> Result<()> {
    let space = Space::without_controllers("browser").await?;
    let uid = fill(&space, None).await?;
    let failed = Timestamp::from_microsecond(Timestamp::now().as_microsecond())?;
    for step in RESTART {
        space.event(("bench", &uid), failed, step).await?;
    }
    let size = serde_json::to_vec(&space.pods().get("bench-workers-0-0").await?)?.len();
    let ui = block_in_place(|| Ui::start(&space, &["bench"]))?;
    let started = Instant::now();
    let mut script = block_in_place(|| Script::start(&ui.address))?;
    let first = script.reaches("running")?;

    let changed = set_status(&space, restarting_status(3)).await?;
    script.go_on()?;
    let restarting = figures(&script.reaches("restarting")?["painting"], changed);

    let half = PODS / JOBS / 2;
    report(&space, 0..half).await?;
    script.go_on()?;
    script.reaches("half")?;
    let begun = now()?;
    let last = report(&space, half..PODS / JOBS).await?;
    script.go_on()?;
    let waiting = script.reaches("waiting")?;
    let paintings = waiting["paintings"].as_array().context("no paintings")?;
    let of = |field: &'static str| paintings.iter().filter_map(move |it| it[field].as_f64());
    let painted = of("at").fold(0.0, f64::max);
    let reports = json!({
        "pods": PODS / 2, "writesMs": last - begun, "paintings": paintings.len(),
        "slowestFromEventMs": of("milliseconds").fold(0.0, f64::max), "lastFromWriteMs": painted - last,
    });
    let memory_of_5000 = memory(ui.pid(), "VmRSS")?;

    let changed = set_status(&space, running_status(4)).await?;
    script.go_on()?;
    let lifted = figures(&script.reaches("lifted")?["painting"], changed);
    let changed = set_status(&space, restarting_status(4)).await?;
    script.go_on()?;
    let restarted = figures(&script.reaches("restarted")?["painting"], changed);
    script.go_on()?;
    let requests = script.reaches("last")?["requests"].clone();

    let figures = json!({
        "pods": PODS, "podBytes": size,
        "firstPaintMs": first["paint"], "firstGridFromEventMs": first["snapshot"]["milliseconds"],
        "changesOfAllPods": [restarting, lifted, restarted],
        "reports": reports,
        "serverMemoryMb": {"resident": memory_of_5000, "peak": memory(ui.pid(), "VmHWM")?},
        "requests": requests, "seconds": started.elapsed().as_secs_f64(),
    });
    println!("{figures:#}");
    if std::env::var_os("BENCH").is_some() {
        let file = paths::target().join("bench/ui.json");
        fs::create_dir_all(file.parent().context("no folder")?)?;
        fs::write(&file, format!("{figures:#}\n"))?;
        println!("{}", file.display());
    }
    drop(ui);
    script.go_on()?;
    let ended = block_in_place(|| script.child.wait())?;
    assert!(ended.success(), "the page did not tell that the server has ended");
    Ok(())
}
