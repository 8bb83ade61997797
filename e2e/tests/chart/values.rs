//! Each value of the chart, changed by itself, changes what is rendered: none is without effect.

use anyhow::{Context, Result, ensure};
use jobset_harness::chart::Chart;
use jobset_harness::programs::Helm;
use serde_json::{Value, json};

/// What is off by itself.
const ALL_ON: &str =
    r#"metrics={"serviceMonitor":{"enabled":true},"rules":{"enabled":true},"dashboard":{"enabled":true}}"#;
const CERT_MANAGER: &str = r#"certificates.source="cert-manager""#;
const MOUNTED: &str = r#"certificates={"source":"mounted","mounted":{"secretName":"before","relaySecretName":"before-relay","controllerSecretName":"before-controller"}}"#;

/// Values by path, with another one that is as good. Those that are not here are changed by their kind.
fn special(path: &str) -> Option<Value> {
    let last = path.rsplit('.').next().unwrap_or(path);
    Some(match (path, last) {
        (
            "metrics.serviceMonitor.enabled" | "metrics.rules.enabled" | "metrics.dashboard.enabled" | "stream.enabled",
            _,
        ) => {
            json!(false)
        }
        ("featureGates", _) => json!({"InPlaceRestart": false}),
        ("log.format", _) => json!("json"),
        ("certificates.source", _) => json!("cert-manager"),
        ("certificates.certManager.issuerRef", _) => json!({"name": "mine", "kind": "ClusterIssuer"}),
        ("certificates.mounted.caBundle", _) => json!("YWFhYQ=="),
        ("controller.leaveCordoned", _) => json!("Now"),
        ("controller.settleNames", _) => json!("1h"),
        ("agent.resources.requests.cpu" | "agent.resources.limits.cpu", _) => json!("20m"),
        ("agent.resources.requests.memory" | "agent.resources.limits.memory", _) => json!("32Mi"),
        (_, "restartSlow" | "budgetNearlySpent" | "controllerErrors") => json!(0.5),
        (_, "webhookSlowForPods" | "webhookOverloaded") => json!(5),
        (_, "pullPolicy") => json!("Always"),
        (_, "pullSecrets") => json!([{"name": "mine"}]),
        (_, "digest") => json!(format!("sha256:{}", "0".repeat(64))),
        (_, "tlsMinVersion") => json!("VersionTLS13"),
        (_, "tolerations") => json!([{"key": "mine", "operator": "Exists"}]),
        (_, "extraArgs") => json!(["--more=1"]),
        (_, "exclusiveTopologyKeys") => json!(["example.com/rack"]),
        (_, "scrapers" | "apiServers") => json!([{"podSelector": {}}]),
        (_, "affinity") => json!({"nodeAffinity": {}}),
        _ => return None,
    })
}

/// Another value of the same kind.
fn changed(path: &str, value: &Value) -> Result<Value> {
    if let Some(special) = special(path) {
        return Ok(special);
    }
    Ok(match value {
        Value::Bool(on) => json!(!on),
        Value::Number(number) => json!(number.as_u64().context("a number")? + 1),
        Value::Array(numbers) => json!([numbers.as_slice(), &[json!(7443)]].concat()),
        Value::Object(_) => json!({"mine": "yes"}),
        Value::String(text) => {
            let digits = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
            let (number, unit) = text.split_at(digits);
            json!(number.parse::<u32>().map_or_else(|_| "mine".to_owned(), |number| format!("{}{unit}", number + 1)))
        }
        Value::Null => json!("mine"),
    })
}

/// All values below this one that have none below them.
fn leaves(path: &str, value: &Value, found: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(fields) if !fields.is_empty() => {
            for (name, value) in fields {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                leaves(&path, value, found);
            }
        }
        _ => found.push((path.to_owned(), value.clone())),
    }
}

#[tokio::test]
async fn value_changed_changes_the_rendered_text() -> Result<()> {
    let chart = Chart::new(Helm::V4).await?;
    let text = std::fs::read_to_string(Chart::folder().join("values.yaml"))?;
    let mut values = Vec::new();
    leaves("", &serde_yaml_ng::from_str(&text)?, &mut values);
    ensure!(values.len() > 60, "{values:?}");
    let mut without = Vec::new();
    let sources = [r#"certificates.source="self""#, CERT_MANAGER, MOUNTED];
    let mut bases = Vec::new();
    for source in sources {
        bases.push(render(&chart, source, &[]).await?);
    }
    for (path, value) in values {
        let source = match () {
            () if path.starts_with("certificates.certManager") => 1,
            () if path.starts_with("certificates.mounted") => 2,
            () => 0,
        };
        let other = format!("{path}={}", changed(&path, &value)?);
        let rendered = render(&chart, sources[source], &["--set-json", &other]).await.with_context(|| other.clone())?;
        if rendered == bases[source] {
            without.push(other);
        }
    }
    ensure!(without.is_empty(), "without effect: {without:?}");
    Ok(())
}

/// With certificates of this source, and more values.
async fn render(chart: &Chart, source: &str, more: &[&str]) -> Result<String> {
    chart.template("jobset-system", &[&["--set-json", ALL_ON, "--set-json", source], more].concat()).await
}
