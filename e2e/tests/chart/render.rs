//! What the chart renders to, and that `deploy/kustomize` is just that.

use std::path::PathBuf;

use anyhow::{Context, Result};
use jobset_e2e::chart::{Chart, Objects, kustomization, objects};
use jobset_e2e::programs::{Helm, sources};
use jobset_e2e::{ControlPlane, install, paths};
use rstest::rstest;
use serde_json::Value;
use tokio::fs;

const NAMESPACE: &str = "jobset-system";

/// The release of cert-manager whose schemas its objects have to be of.
const CERT_MANAGER: &str = "v1.19.1";

/// Files of `deploy/kustomize`, each the template of that name with the chart's own values.
const FILES: [&str; 11] = [
    "agent",
    "agent-policy",
    "placement",
    "controller-rbac",
    "controller",
    "webhook-rbac",
    "webhook",
    "webhook-configurations",
    "priority-and-fairness",
    "network-policy",
    "metrics",
];

/// Everything for the Prometheus operator and for Grafana.
const MONITORING: [&str; 6] = [
    "--set",
    "metrics.serviceMonitor.enabled=true",
    "--set",
    "metrics.rules.enabled=true",
    "--set",
    "metrics.dashboard.enabled=true",
];

/// `make manifests` writes the files anew.
#[rstest]
#[case::helm_3(Helm::V3)]
#[case::helm_4(Helm::V4)]
#[tokio::test]
async fn the_kustomizations_are_what_the_chart_renders(#[case] version: Helm) -> Result<()> {
    let chart = Chart::new(version).await?;
    let mut stale = Vec::new();
    let kustomize = paths::workspace().join("deploy/kustomize");
    let mut files: Vec<(PathBuf, String)> = Vec::new();
    for name in FILES {
        files.push((kustomize.join(format!("{name}.yaml")), rendered(&chart, name, &[]).await?));
    }
    let monitoring = paths::workspace().join("deploy/monitoring/monitoring.yaml");
    files.push((monitoring, rendered(&chart, "monitoring", &MONITORING).await?));
    let crd = fs::read_to_string(paths::workspace().join("deploy/crds/jobset.x-k8s.io_jobsets.yaml")).await?;
    files.push((Chart::folder().join("files/jobset.x-k8s.io_jobsets.yaml"), crd));
    for (file, wanted) in files {
        if std::env::var_os("UPDATE_MANIFESTS").is_some() {
            fs::write(&file, &wanted).await.with_context(|| format!("cannot write {}", file.display()))?;
        } else if fs::read_to_string(&file).await.ok().as_ref() != Some(&wanted) {
            stale.push(file);
        }
    }
    assert!(stale.is_empty(), "these are not what the chart renders: run make manifests\n{stale:#?}");
    Ok(())
}

/// One template, as a file that says where it comes from.
async fn rendered(chart: &Chart, name: &str, args: &[&str]) -> Result<String> {
    let template = format!("templates/{name}.yaml");
    let text = chart.template(NAMESPACE, &[&["--show-only", &template], args].concat()).await?;
    let lines = text.lines().filter(|line| !line.starts_with("# Source: ") && !line.trim().is_empty());
    let mut text = format!("# Rendered from deploy/chart/{template} by `make manifests`. Do not edit.\n");
    for line in lines.skip_while(|line| *line == "---") {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    Ok(text)
}

#[rstest]
#[case::own_certificates("kustomize", &[])]
#[case::cert_manager("cert-manager", &["--set", "certificates.source=cert-manager"])]
#[tokio::test]
async fn chart_and_kustomization_are_the_same_objects(#[case] folder: &str, #[case] args: &[&str]) -> Result<()> {
    let plane = ControlPlane::start().await?;
    let mut kustomized = kustomization(&plane, folder).await?;
    let namespace = kustomized.remove(&("Namespace".to_owned(), String::new(), NAMESPACE.to_owned()));
    let namespace = namespace.context("the kustomization makes the namespace; Helm has --create-namespace")?;
    assert_eq!(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "restricted");
    let mut charted = objects(&Chart::new(Helm::V4).await?.template(NAMESPACE, args).await?)?;
    let crd = charted.get_mut(&crd()).context("the chart has the CRD")?;
    let annotations = crd["metadata"].as_object_mut().and_then(|metadata| metadata.remove("annotations"));
    assert_eq!(
        annotations,
        Some(serde_json::json!({"helm.sh/resource-policy": "keep"})),
        "all JobSets would go with it"
    );
    assert_same(&charted, &kustomized);
    // The API server takes each of them as it is, those of cert-manager by cert-manager's own CRDs.
    for crd in ["issuers", "certificates"] {
        let crds = sources("github.com/cert-manager/cert-manager", CERT_MANAGER)?.join("deploy/crds");
        let file = crds.join(format!("cert-manager.io_{crd}.yaml"));
        install::kubectl(&plane, &["apply", "--server-side", "-f", &file.to_string_lossy()]).await?;
        let crd = format!("crd/{crd}.cert-manager.io");
        install::kubectl(&plane, &["wait", "--for=condition=Established", "--timeout=1m", &crd]).await?;
    }
    install::kubectl(&plane, &["create", "namespace", NAMESPACE]).await?;
    let folder = paths::workspace().join("deploy").join(folder);
    let apply = ["apply", "--server-side", "--dry-run=server", "--validate=strict", "-k", &folder.to_string_lossy()];
    install::kubectl(&plane, &apply).await?;
    plane.stop().await
}

fn crd() -> (String, String, String) {
    ("CustomResourceDefinition".to_owned(), String::new(), "jobsets.jobset.x-k8s.io".to_owned())
}

fn assert_same(charted: &Objects, kustomized: &Objects) {
    let names = |objects: &Objects| objects.keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(charted), names(kustomized));
    for (key, object) in charted {
        let other = &kustomized[key];
        assert_eq!(object, other, "{key:?}");
    }
}

#[rstest]
#[case::unknown_value("controller.replica=3", "replica")]
#[case::no_replicas("webhook.replicas=0", "replicas")]
#[case::unknown_gate("featureGates.InPlace=true", "InPlace")]
#[case::no_duration("controller.leaderElection.leaseDuration=15", "leaseDuration")]
#[case::unknown_source("certificates.source=vault", "source")]
#[case::no_secret("certificates.source=mounted", "certificates.mounted.secretName must name the Secret")]
#[tokio::test]
async fn values_that_make_no_sense_are_refused_by_name(#[case] value: &str, #[case] named: &str) -> Result<()> {
    let chart = Chart::new(Helm::V4).await?;
    let refused = chart.template(NAMESPACE, &["--set", value]).await.unwrap_err().to_string();
    assert!(refused.contains(named), "{refused}");
    Ok(())
}

#[rstest]
#[case::mounted(&["certificates.source=mounted", "certificates.mounted.secretName=mine", "certificates.mounted.caBundle=Q0E="])]
#[case::issuer(&["certificates.source=cert-manager", "certificates.certManager.issuerRef.kind=ClusterIssuer", "certificates.certManager.issuerRef.name=mine"])]
#[case::everything_else(&[
    "image.registry=registry.example.com/batch", "image.tag=", "image.pullSecrets[0].name=mine", "crds.install=false",
    "featureGates.InPlaceRestart=false", "log.format=json", "log.filter=debug", "controller.replicas=3",
    "controller.image.digest=sha256:0123456789012345678901234567890123456789012345678901234567890123",
    "controller.namespace=ours", "controller.forceDeleteUnreachableAfter=5m", "controller.metrics.perJobSet=true",
    "controller.podDisruptionBudget.enabled=false", "controller.priorityClassName=high", "controller.nodeSelector.pool=system",
    "controller.tolerations[0].key=system", "controller.podLabels.team=batch", "controller.podAnnotations.a=b",
    "controller.extraArgs[0]=--health-listen=0.0.0.0:8081", "webhook.podDisruptionBudget.enabled=false",
    "webhook.priorityClassName=", "webhook.nodeSelector.pool=system", "webhook.extraArgs[0]=--leader-wait=0s",
    "priorityAndFairness.enabled=false", "networkPolicy.enabled=false",
])]
#[tokio::test]
async fn every_value_has_its_effect(#[case] values: &[&str]) -> Result<()> {
    let chart = Chart::new(Helm::V4).await?;
    let args: Vec<&str> = values.iter().flat_map(|value| ["--set", value]).collect();
    let objects = objects(&chart.template("batch", &[&args[..], &MONITORING].concat()).await?)?;
    let mut settings = insta::Settings::clone_current();
    settings.set_omit_expression(true);
    settings
        .set_snapshot_suffix(std::thread::current().name().unwrap_or_default().rsplit("::").next().unwrap_or_default());
    let shown = ["Deployment", "Certificate", "MutatingWebhookConfiguration"];
    let shown: Vec<&Value> =
        objects.iter().filter(|((kind, ..), _)| shown.contains(&&**kind)).map(|(_, object)| object).collect();
    settings.bind(|| insta::assert_yaml_snapshot!("values", (objects.keys().collect::<Vec<_>>(), shown)));
    Ok(())
}
