//! The benchmark itself: that it still measures what it says, with a few agents. Its figures mean nothing here.

use std::path::PathBuf;

use anyhow::{Context, Result};
use jobset_bench::{Options, WatchMode, Way};
use jobset_harness::programs;
use serde_json::Value;

/// Pods of each JobSet.
const AGENTS: usize = 6;

#[tokio::test]
async fn a_benchmark_of_few_agents_reports_each_case() -> Result<()> {
    let results = tempfile::tempdir()?;
    let relay = tokio::task::spawn_blocking(|| programs::beside("jobset-relay")).await??;
    let options = Options {
        agents: vec![AGENTS],
        restarts: Some(2),
        ways: vec![Way::Watch, Way::Stream],
        watches: vec![WatchMode::New, WatchMode::Kept],
        recreate: true,
        controller: Some(PathBuf::from(env!("CARGO_BIN_EXE_jobset-controller"))),
        relay: Some(relay),
        // Fewer than there are, so that some wait.
        connecting: 2,
        annotation_seconds: 1,
        settle: false,
        foreign_pods: 3,
        results: results.path().to_path_buf(),
    };
    jobset_bench::run(&options).await?;

    for (case, reports, watches) in [("", 1, 1), ("-kept", 1, 0), ("-recreate", 0, 0)] {
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
        assert!(stream["relay_bytes_per_agent"].is_f64() && stream["minute"]["relay"].is_f64(), "{case}: {report}");
        for restart in report["restarts"].as_array().into_iter().flatten() {
            assert_eq!((&restart["jobset_writes"], &restart["failed_reports"]), (&2.into(), &0.into()), "{restart}");
        }
    }
    Ok(())
}
