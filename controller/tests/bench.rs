//! The benchmark itself: that it still measures what it says, with a few agents. Its figures mean nothing here.

use std::path::PathBuf;

use anyhow::{Context, Result};
use jobset_bench::{Load, Options, WatchMode, Way};
use jobset_harness::programs;
use serde_json::Value;

/// Pods of each JobSet.
const AGENTS: usize = 6;
/// Agents of the stream that are processes.
const REAL_AGENTS: usize = 2;

#[tokio::test]
async fn a_benchmark_of_few_agents_reports_each_case() -> Result<()> {
    let results = tempfile::tempdir()?;
    let [relay, agent] = tokio::task::spawn_blocking(|| {
        let beside = |program| programs::beside(program);
        anyhow::Ok([beside("jobset-relay")?, beside("jobset-agent")?])
    })
    .await??;
    let options = Options {
        agents: vec![AGENTS],
        restarts: Some(2),
        ways: vec![Way::Watch, Way::Stream],
        loads: vec![Load::Bare, Load::Full],
        watches: vec![WatchMode::New, WatchMode::Kept],
        recreate: true,
        controller: Some(PathBuf::from(env!("CARGO_BIN_EXE_jobset-controller"))),
        relay: Some(relay),
        agent: Some(agent),
        real_agents: REAL_AGENTS,
        // Fewer than there are, so that some wait.
        connecting: 2,
        annotation_seconds: 1,
        settle: false,
        foreign_pods: 3,
        pod_events: 50,
        results: results.path().to_path_buf(),
    };
    jobset_bench::run(&options).await?;

    for (case, reports, watches) in [("", 1, 1), ("-kept", 1, 0), ("-full", 1, 1), ("-recreate", 0, 0)] {
        let file = results.path().join(format!("restart-{AGENTS}{case}.json"));
        let text = std::fs::read_to_string(&file).with_context(|| format!("no {}", file.display()))?;
        let report: Value = serde_json::from_str(&text)?;
        assert_eq!(report["agents"], AGENTS, "{case}");
        assert!(report["build"].is_string(), "{case}: {report}");
        assert!(report["controller_peak_rss_kib"].as_u64().is_some_and(|kib| kib > 1000), "{case}: {report}");
        let restarts = report["restarts"].as_array().context("no restarts")?;
        assert_eq!(restarts.len(), 2, "{case}");
        for restart in restarts {
            let figure = |key: &str| restart[key].as_f64().unwrap_or_default();
            let requests = |name: &str| restart["requests"][name].as_u64().unwrap_or_default();
            let phases: f64 =
                restart["phases"].as_object().into_iter().flatten().filter_map(|(_, took)| took.as_f64()).sum();
            assert!(figure("seconds") > 0.0 && (phases - figure("seconds")).abs() < 0.01, "{case}: {restart}");
            assert!(figure("jobset_writes") >= 2.0, "{case}: {restart}");
            let all = AGENTS as u64;
            assert!(requests("PATCH pods") >= reports * all, "each agent reports; {case}: {restart}");
            assert!(requests("WATCH jobsets") >= watches * all, "each watch has ended; {case}: {restart}");
            assert_eq!(restart["failed_reports"], 0, "{case}");
        }
    }
    for case in ["stream-6.json", "stream-6-kept.json"] {
        let report: Value = serde_json::from_str(&std::fs::read_to_string(results.path().join(case))?)?;
        assert_eq!(
            (&report["way"], report["restarts"].as_array().map(Vec::len)),
            (&"stream".into(), Some(2)),
            "{case}"
        );
        let stream = &report["stream"];
        assert_eq!(stream["real_agents"], REAL_AGENTS, "{case}: {report}");
        assert!(stream["relay_bytes_per_agent"].is_f64() && stream["minute"]["relay"].is_f64(), "{case}: {report}");
        for restart in report["restarts"].as_array().into_iter().flatten() {
            assert_eq!((&restart["jobset_writes"], &restart["failed_reports"]), (&2.into(), &0.into()), "{restart}");
            assert!(restart["real_agents_seconds"].as_f64().is_some_and(|seconds| seconds > 0.0), "{restart}");
        }
    }
    let report = |file: &str| anyhow::Ok(serde_json::from_str(&std::fs::read_to_string(results.path().join(file))?)?);
    let (bare, full): (Value, Value) = (report("restart-6.json")?, report("restart-6-full.json")?);
    let requests = |case: &Value| case["restarts"][0]["api_requests"].as_u64();
    assert!(requests(&full) > requests(&bare), "{full} {bare}");
    assert!(full["restarts"][0]["requests"]["PATCH pods/status"].as_u64() >= Some(4 * AGENTS as u64), "{full}");
    Ok(())
}
