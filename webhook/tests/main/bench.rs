//! The benchmark runs, and measures this very service.

use std::time::Duration;

use anyhow::Result;
use jobset_bench::webhook::{WebhookOptions, run};
use serde_json::Value;

#[tokio::test(flavor = "multi_thread")]
async fn the_benchmark_of_reviews_writes_its_figures() -> Result<()> {
    let results = tempfile::tempdir()?;
    let options = WebhookOptions {
        reviews: 20,
        paced: Duration::from_millis(40),
        webhook: Some(env!("CARGO_BIN_EXE_jobset-webhook").into()),
        results: results.path().to_owned(),
    };
    run(&options).await?;
    let written: Value = serde_json::from_str(&std::fs::read_to_string(results.path().join("webhook.json"))?)?;
    for figure in [
        "/mutate/cpu_ms_per_review",
        "/validate/p99_ms_at_500",
        "/pod/cpu_ms_per_review",
        "/beside_heavy/max_ms",
        "/peak_rss_kib",
    ] {
        assert!(written.pointer(figure).and_then(Value::as_f64).is_some_and(|it| it > 0.0), "{figure} in {written}");
    }
    Ok(())
}
