//! What the chart renders to, and that `deploy/kustomize` is just that.

use std::path::PathBuf;

use anyhow::{Context, Result};
use jobset_harness::chart::{Chart, Objects, kustomization, objects};
use jobset_harness::programs::{Helm, sources};
use jobset_harness::{ControlPlane, install, paths};
use rstest::rstest;
use serde_json::Value;
use tokio::fs;

use crate::seat::take_seat;

pub(super) const NAMESPACE: &str = "jobset-system";

/// The release of cert-manager whose schemas its objects have to be of.
const CERT_MANAGER: &str = "v1.19.1";

/// Files of `deploy/kustomize`, each the template of that name with the chart's own values.
const FILES: [&str; 15] = [
    "common/agent",
    "common/agent-policy",
    "common/controller-policy",
    "common/placement",
    "common/user-rbac",
    "common/controller-rbac",
    "common/controller",
    "common/webhook-rbac",
    "common/webhook",
    "common/webhook-configurations",
    "common/priority-and-fairness",
    "common/network-policy",
    "common/metrics",
    "common/relay",
    "certs",
];

/// Everything for the Prometheus operator and for Grafana.
pub(super) const MONITORING: [&str; 2] =
    ["--set", "metrics.serviceMonitor.enabled=true,metrics.rules.enabled=true,metrics.dashboard.enabled=true"];

/// The objects that the chart installs, without those of `helm test`.
pub(super) async fn render(namespace: &str, args: &[&str]) -> Result<Objects> {
    let args = [&["--skip-tests"][..], args].concat();
    objects(&Chart::new(Helm::V4).await?.template(namespace, &args).await?)
}

/// `make manifests` writes the files.
#[rstest]
#[case::helm_3(Helm::V3)]
#[case::helm_4(Helm::V4)]
#[tokio::test]
async fn kustomizations_are_what_the_chart_renders(#[case] version: Helm) -> Result<()> {
    let chart = Chart::new(version).await?;
    let mut stale = Vec::new();
    let kustomize = paths::workspace().join("deploy/kustomize");
    let mut files: Vec<(PathBuf, String)> = Vec::new();
    for name in FILES {
        let template = name.trim_start_matches("common/");
        files.push((kustomize.join(format!("{name}.yaml")), rendered(&chart, template, &[]).await?));
    }
    let monitoring = paths::workspace().join("deploy/monitoring/monitoring.yaml");
    files.push((monitoring, rendered(&chart, "monitoring", &MONITORING).await?));
    files.push((Chart::alerts(), alerts(&chart, &[]).await?));
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

/// The alerts as Prometheus reads them without its operator.
pub(super) async fn alerts(chart: &Chart, args: &[&str]) -> Result<String> {
    let rules = ["--show-only", "templates/monitoring.yaml", "--set", "metrics.rules.enabled=true"];
    let text = chart.template(NAMESPACE, &[&rules, args].concat()).await?;
    let (_, rules) = text.split_once("\nspec:\n").context("no PrometheusRule")?;
    let mut text = "# Rendered from deploy/chart/files/alerts.yaml by `make manifests`. Do not edit.\n".to_owned();
    for line in rules.lines().filter(|line| !line.trim().is_empty()) {
        text.push_str(line.strip_prefix("  ").context("not below spec")?);
        text.push('\n');
    }
    Ok(text)
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
#[case::own_certificates("kustomize", "self")]
#[case::cert_manager("cert-manager", "cert-manager")]
#[tokio::test]
async fn chart_and_kustomization_are_the_same_objects(#[case] folder: &str, #[case] source: &str) -> Result<()> {
    take_seat().await?;
    let plane = ControlPlane::start().await?;
    let source = format!("certificates.source={source}");
    let mut kustomized = kustomization(&plane, folder).await?;
    let namespace = kustomized.remove(&("Namespace".to_owned(), String::new(), NAMESPACE.to_owned()));
    let namespace = namespace.context("the kustomization makes the namespace; Helm has --create-namespace")?;
    assert_eq!(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "restricted");
    let mut charted = render(NAMESPACE, &["--set", &source]).await?;
    let crd = charted.get_mut(&crd()).context("the chart has the CRD")?;
    let annotations = crd["metadata"].as_object_mut().and_then(|metadata| metadata.remove("annotations"));
    assert_eq!(
        annotations,
        Some(serde_json::json!({"helm.sh/resource-policy": "keep"})),
        "all JobSets would go with it"
    );
    assert_same(&charted, &kustomized);

    let above = tempfile::tempdir_in(paths::target())?;
    let text = format!("resources: [../../deploy/{folder}]\ncomponents: [../../deploy/without-stream]\n");
    fs::write(above.path().join("kustomization.yaml"), text).await?;
    let mut kustomized = kustomization(&plane, &above.path().to_string_lossy()).await?;
    let mut charted = render(NAMESPACE, &["--set", &source, "--set", "stream.enabled=false"]).await?;
    kustomized.remove(&("Namespace".to_owned(), String::new(), NAMESPACE.to_owned()));
    for objects in [&mut charted, &mut kustomized] {
        objects.remove(&self::crd());
    }
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
    of("CustomResourceDefinition", "", "jobsets.jobset.x-k8s.io")
}

fn assert_same(charted: &Objects, kustomized: &Objects) {
    assert_eq!(charted.keys().collect::<Vec<_>>(), kustomized.keys().collect::<Vec<_>>());
    for (key, object) in charted {
        assert_eq!(object, &kustomized[key], "{key:?}");
    }
}

/// Text stays text, whatever YAML would take it for.
#[tokio::test]
async fn name_like_a_number_stays_a_name() -> Result<()> {
    let names = [
        "controller.priorityClassName=123",
        "webhook.priorityClassName=1e3",
        "certificates.source=mounted",
        "certificates.mounted.secretName=0",
        "certificates.mounted.relaySecretName=1",
        "certificates.mounted.controllerSecretName=2",
        "certificates.mounted.caBundle=1234",
        "image.registry=",
    ];
    let args: Vec<&str> = names.iter().flat_map(|name| ["--set-string", name]).collect();
    let objects = render("456", &[&args[..], &MONITORING].concat()).await?;
    let pod = |name: &str| &objects[&of("Deployment", "456", name)]["spec"]["template"]["spec"];
    assert_eq!(pod("jobset-controller")["priorityClassName"], "123");
    assert_eq!(pod("jobset-webhook")["priorityClassName"], "1e3");
    assert_eq!(pod("jobset-webhook")["volumes"][0]["secret"]["secretName"], "0");
    for webhook in webhooks(&objects) {
        assert_eq!(webhook["clientConfig"]["caBundle"], "1234");
        assert_eq!(webhook["clientConfig"]["service"]["namespace"], "456");
    }
    for (key, object) in &objects {
        let namespace = &object["metadata"]["namespace"];
        assert!(namespace.is_string() || namespace.is_null(), "{key:?}: {namespace}");
    }
    Ok(())
}

/// Else nobody would fill them, or two would.
#[rstest]
#[case::own("self")]
#[case::cert_manager("cert-manager")]
#[tokio::test]
async fn ca_bundle_is_set_for_mounted_certificate_alone(#[case] source: &str) -> Result<()> {
    let args = ["--set", &format!("certificates.source={source},certificates.mounted.caBundle=Q0E=")];
    let objects = render(NAMESPACE, &args).await?;
    for webhook in webhooks(&objects) {
        assert_eq!(webhook["clientConfig"]["caBundle"], Value::Null, "{}", webhook["name"]);
    }
    Ok(())
}

#[rstest]
#[case::one(1, 0)]
#[case::two(2, 1)]
#[case::three(3, 2)]
#[tokio::test]
async fn drain_takes_one_pod_at_a_time(#[case] replicas: u32, #[case] kept: u32) -> Result<()> {
    let counts = ["controller", "webhook", "stream.relay"].map(|of| format!("{of}.replicas={replicas}"));
    let objects = render(NAMESPACE, &["--set", &counts.join(",")]).await?;
    for name in ["jobset-controller", "jobset-webhook", "jobset-relay"] {
        let budget = &objects[&of("PodDisruptionBudget", NAMESPACE, name)]["spec"];
        assert_eq!(budget["minAvailable"], kept, "{name}");
        assert_eq!(budget["unhealthyPodEvictionPolicy"], "AlwaysAllow", "{name}");
    }
    Ok(())
}

/// One counts all Pods of its class.
#[rstest]
#[case::of_both("", &["jobset-webhook"])]
#[case::of_the_controller("webhook.priorityClassName=", &["jobset-controller"])]
#[case::of_the_webhook("controller.priorityClassName=high", &["jobset-webhook"])]
#[case::of_each("webhook.priorityClassName=system-node-critical", &PROGRAMS)]
#[case::of_the_issuer("webhook.priorityClassName=,controller.priorityClassName=null", &["jobset-certs"])]
#[case::of_the_relay("webhook.priorityClassName=,controller.priorityClassName=null,certs.priorityClassName=", &["jobset-relay"])]
#[case::of_none(
    "webhook.priorityClassName=,controller.priorityClassName=null,certs.priorityClassName=,stream.relay.priorityClassName=",
    &[]
)]
#[tokio::test]
async fn priority_class_of_the_system_has_its_quota(#[case] value: &str, #[case] names: &[&str]) -> Result<()> {
    let objects = render(NAMESPACE, &["--set", value]).await?;
    let quotas: Vec<_> = objects.iter().filter(|((kind, ..), _)| kind == "ResourceQuota").collect();
    assert_eq!(quotas.iter().map(|((.., name), _)| &**name).collect::<Vec<_>>(), names);
    for ((.., name), quota) in quotas {
        let pod = &objects[&of("Deployment", NAMESPACE, name)]["spec"]["template"]["spec"];
        let selected = &quota["spec"]["scopeSelector"]["matchExpressions"][0];
        assert_eq!(selected["values"], serde_json::json!([pod["priorityClassName"]]));
    }
    let classes = PROGRAMS.map(|name| &objects[&of("Deployment", NAMESPACE, name)]["spec"]["template"]["spec"]);
    let default = classes.iter().all(|pod| pod["priorityClassName"] == "system-cluster-critical");
    assert_eq!(default, value.is_empty(), "workers preempt neither");
    Ok(())
}

#[tokio::test]
async fn registry_with_slash_and_label_null_are_rendered() -> Result<()> {
    let args = ["--set", "image.registry=r/,metrics.dashboard.labels.grafana_dashboard=null"];
    let objects = render(NAMESPACE, &[&args[..], &MONITORING].concat()).await?;
    let container =
        |name: &str| &objects[&of("Deployment", NAMESPACE, name)]["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container("jobset-controller")["image"], "r/jobset-controller:dev");
    assert_eq!(container("jobset-webhook")["image"], "r/jobset-webhook:dev");
    let args = container("jobset-webhook")["args"].as_array().context("no arguments")?;
    assert!(args.iter().any(|arg| arg == "--agent-image=r/jobset-agent:dev"), "{args:?}");
    let labels = &objects[&of("ConfigMap", NAMESPACE, "jobset-dashboard")]["metadata"]["labels"];
    assert_eq!(labels["grafana_dashboard"], Value::Null);
    Ok(())
}

/// The labels by which Kubernetes adds roles to its own.
const AGGREGATE: &str = "rbac.authorization.k8s.io/aggregate-to-";

#[rstest]
#[case::by_default("true", &["admin", "edit", "view"], &["admin", "edit"])]
#[case::switched_off("false", &[], &[])]
#[tokio::test]
async fn roles_of_users_are_aggregated_by_default(
    #[case] aggregate: &str,
    #[case] of_viewers: &[&str],
    #[case] of_editors: &[&str],
) -> Result<()> {
    let args = ["--set", &format!("rbac.aggregate={aggregate}")];
    let objects = render(NAMESPACE, &args).await?;
    let reading = serde_json::json!({
        "apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets", "jobsets/status"], "verbs": ["get", "list", "watch"],
    });
    let writing = serde_json::json!({
        "apiGroups": ["jobset.x-k8s.io"], "resources": ["jobsets"],
        "verbs": ["create", "delete", "deletecollection", "patch", "update"],
    });
    for (name, roles, rules) in
        [("jobset-view", of_viewers, vec![&reading]), ("jobset-edit", of_editors, vec![&reading, &writing])]
    {
        let role = &objects[&of("ClusterRole", "", name)];
        let labels = role["metadata"]["labels"].as_object().context("no labels")?;
        let mut aggregated: Vec<&str> = labels.keys().filter_map(|label| label.strip_prefix(AGGREGATE)).collect();
        aggregated.sort_unstable();
        assert_eq!(aggregated, roles, "{name}");
        assert_eq!(role["rules"], serde_json::json!(rules), "{name}");
    }
    Ok(())
}

/// Deployments, and what is named after them.
const PROGRAMS: [&str; 2] = ["jobset-controller", "jobset-webhook"];

pub(super) fn of(kind: &str, namespace: &str, name: &str) -> (String, String, String) {
    (kind.to_owned(), namespace.to_owned(), name.to_owned())
}

/// All webhooks, of which there are four.
fn webhooks(objects: &Objects) -> Vec<&Value> {
    let configurations = objects.iter().filter(|((kind, ..), _)| kind.ends_with("WebhookConfiguration"));
    let webhooks: Vec<&Value> =
        configurations.flat_map(|(_, object)| object["webhooks"].as_array().into_iter().flatten()).collect();
    assert_eq!(webhooks.len(), 4);
    webhooks
}

#[rstest]
#[case::mounted(&[
    "certificates.source=mounted", "certificates.mounted.secretName=mine", "certificates.mounted.caBundle=Q0E=",
    "certificates.mounted.relaySecretName=of-relays", "certificates.mounted.controllerSecretName=of-controllers",
])]
#[case::issuer(&["certificates.source=cert-manager", "certificates.certManager.issuerRef.kind=ClusterIssuer", "certificates.certManager.issuerRef.name=mine"])]
#[case::everything_else(&[
    "image.registry=registry.example.com/batch", "image.tag=", "image.pullSecrets[0].name=mine", "crds.install=false",
    "featureGates.InPlaceRestart=false", "log.format=json", "log.filter=debug", "controller.replicas=3",
    "controller.image.digest=sha256:0123456789012345678901234567890123456789012345678901234567890123",
    "controller.namespace=ours", "controller.leaveCordoned=Now", "controller.settleNames=35s", "controller.metrics.perJobSet=true",
    "controller.podDisruptionBudget.enabled=false", "controller.priorityClassName=high", "controller.nodeSelector.pool=system",
    "controller.tolerations[0].key=system", "controller.podLabels.team=batch", "controller.podAnnotations.a=b",
    "controller.extraArgs[0]=--health-listen=0.0.0.0:8081", "webhook.podDisruptionBudget.enabled=false",
    "webhook.priorityClassName=", "webhook.nodeSelector.pool=system", "webhook.extraArgs[0]=--leader-wait=0s",
    "webhook.hostNetwork=true", "webhook.ports.https=10443", "webhook.namespaceSelector.matchLabels.team=ml",
    "nodes.moveAfterFailures=2", "nodes.podWebhookTimeoutSeconds=3",
    "webhook.exclusiveTopologyKeys[0]=example.com/rack", "webhook.exclusiveTopologyKeys[1]=example.com/row",
    "priorityAndFairness.enabled=false", "networkPolicy.enabled=false", "stream.enabled=false",
])]
#[case::stream(&["featureGates.InPlaceRestart=true"])]
#[case::stream_issuer(&[
    "certificates.source=cert-manager", "stream.relay.replicas=3", "stream.relay.maxConnections=100000",
    "stream.relay.resources.limits.memory=6Gi",
    "stream.relay.priorityClassName=system-node-critical", "stream.relay.affinity.nodeAffinity.a=b",
    "webhook.ports.https=10443",
])]
#[tokio::test]
async fn values_are_rendered(#[case] values: &[&str]) -> Result<()> {
    let args: Vec<&str> = values.iter().flat_map(|value| ["--set", value]).collect();
    let objects = render("batch", &[&args[..], &MONITORING].concat()).await?;
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
