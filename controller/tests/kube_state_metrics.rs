//! The file for kube-state-metrics: by it, that program says of JobSets what the controller itself says.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use http::{Request, Uri};
use jobset_harness::cluster::ControlPlane;
use jobset_harness::wait::{self, Check};
use jobset_harness::{paths, programs};
use kube::{Client, Config};
use serde_json::json;

use crate::fixture::{Fixture, LIMIT, in_place};
use crate::workload::recreated;

const ADDRESS_PORT: (u16, u16) = (8080, 8081);

/// Names, labels and values of what it shows of JobSets. Labels that only say which kind it is are left out.
type Samples = BTreeSet<(String, BTreeMap<String, String>, String)>;

fn samples(text: &str) -> Samples {
    let sample = |line: &str| {
        let (name, rest) = line.split_once('{')?;
        let (labels, value) = rest.split_once("} ")?;
        let label = |label: &str| {
            let (name, value) = label.split_once('=')?;
            Some((name.to_owned(), value.to_owned()))
        };
        let labels = labels.split(',').filter_map(label).filter(|(name, _)| !name.starts_with("customresource_"));
        Some((name.to_owned(), labels.collect(), value.trim().parse::<f64>().ok()?.to_string()))
    };
    text.lines().filter(|line| line.starts_with("kube_jobset_")).filter_map(sample).collect()
}

/// Starts it with the file of the chart; it ends with the control plane.
async fn start(plane: &ControlPlane) -> Result<Client> {
    let program = tokio::task::spawn_blocking(programs::ensure_kube_state_metrics).await??;
    let server: Uri = plane.ready().server.parse()?;
    let host = server.host().context("the API server's URL has no host")?;
    let config = paths::workspace().join("deploy/chart/files/kube-state-metrics.yaml");
    let args = [
        format!("--kubeconfig={}", plane.kubeconfig().display()),
        format!("--custom-resource-state-config-file={}", config.display()),
        "--custom-resource-state-only".to_owned(),
        format!("--host={host}"),
        format!("--port={}", ADDRESS_PORT.0),
        format!("--telemetry-host={host}"),
        format!("--telemetry-port={}", ADDRESS_PORT.1),
    ];
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    plane.start_program("kube-state-metrics", &program, &args, &[]).await?;
    Ok(Client::try_from(Config::new(format!("http://{host}:{}", ADDRESS_PORT.0).parse()?))?)
}

#[tokio::test]
async fn kube_state_metrics_shows_of_jobsets_what_the_controller_shows() -> Result<()> {
    let fixture = Fixture::start_with(&["--metrics-per-jobset"]).await?;
    let other = start(&fixture.plane).await?;
    fixture.create(in_place("train", 2, 3)).await?;
    let pods = fixture.pods("train", 2, "0").await?;
    for (epoch, then) in [("1", (1, 0, 0, 0)), ("2", (2, 1, 1, 1))] {
        for pod in &pods {
            fixture.report(pod, epoch).await?;
        }
        fixture.in_epoch("train", then).await?;
    }
    fixture.create(recreated("split", &json!({"maxRestarts": 0}), &[("leader", 1), ("workers", 2)])).await?;
    fixture.job("split-workers-1").await?;
    fixture.fail_job("split-workers-1", "BackoffLimitExceeded").await?;
    let compared = || async {
        let own = samples(&fixture.controller.get("metrics", "/metrics").await?);
        let others = samples(&other.request_text(Request::get("/metrics").body(Vec::new())?).await?);
        let value = |name: &str, jobset: &str| {
            let of = |(_, labels, _): &&(String, BTreeMap<_, _>, _)| {
                labels.get("jobset_name") == Some(&format!("{jobset:?}"))
            };
            own.iter().filter(|sample| sample.0 == name).filter(of).map(|sample| sample.2.clone()).collect::<Vec<_>>()
        };
        let story = value("kube_jobset_restarts", "train") == ["1"]
            && value("kube_jobset_failed_replicas", "split").contains(&"1".to_owned());
        if story && own == others {
            return Ok(Check::Met(own));
        }
        let differs: Vec<_> = own.symmetric_difference(&others).collect();
        Ok(Check::Unmet(format!("{} and {} samples; of one alone: {differs:?}", own.len(), others.len())))
    };
    let both = wait::until_met(LIMIT, "both to show the same", compared).await?;
    assert!(both.iter().any(|sample| sample.0 == "kube_jobset_status_condition"), "{both:?}");
    fixture.plane.stop().await
}
