//! Values that the chart refuses by name, and the last ones that it does not.

use anyhow::Result;
use jobset_harness::chart::Chart;
use jobset_harness::programs::Helm;
use rstest::rstest;

use super::render::{NAMESPACE, render};

#[rstest]
#[case::unknown_value("controller.replica=3", "replica")]
#[case::short_time_out("webhook.timeoutSeconds=3", "timeoutSeconds")]
#[case::short_lifetime("certificates.self.certLifetime=500ms", "certLifetime 500ms must be at least 30s")]
#[case::no_replicas("webhook.replicas=0", "replicas")]
#[case::unknown_gate("featureGates.InPlace=true", "InPlace")]
#[case::no_duration("controller.leaderElection.leaseDuration=15", "leaseDuration")]
#[case::unknown_source("certificates.source=vault", "source")]
#[case::no_secret("certificates.source=mounted", "certificates.mounted.secretName must name the Secret")]
#[case::no_secret_of_the_relay(
    "certificates.source=mounted,certificates.mounted.secretName=a",
    "certificates.mounted.relaySecretName must name a Secret for the agent stream; or set stream.enabled=false"
)]
#[case::no_secret_of_the_controller(
    "certificates.source=mounted,certificates.mounted.secretName=a,certificates.mounted.relaySecretName=b",
    "certificates.mounted.controllerSecretName must name a Secret"
)]
#[case::secret_of_relay_and_controller(
    "certificates.source=mounted,certificates.mounted.secretName=a,certificates.mounted.relaySecretName=b,\
     certificates.mounted.controllerSecretName=b",
    "controllerSecretName must not name the same Secret as certificates.mounted.relaySecretName, which is b"
)]
#[case::secret_of_webhook_and_relay(
    "certificates.source=mounted,certificates.mounted.secretName=a,certificates.mounted.relaySecretName=a,\
     certificates.mounted.controllerSecretName=b",
    "relaySecretName must not name the same Secret as certificates.mounted.secretName, which is a"
)]
#[case::issuer_of_the_chart(
    "certificates.source=cert-manager,certificates.certManager.issuerRef.name=jobset-webhook-ca",
    "issuerRef names the Issuer jobset-webhook-ca, which the agent stream needs for itself"
)]
#[case::no_relays("stream.relay.replicas=0", "/stream/relay/replicas")]
#[case::gate_of_the_stream("featureGates.AgentStream=true", "AgentStream")]
#[case::label_of_the_relay("stream.relay.podLabels.app\\.kubernetes\\.io/name=mine", "/stream/relay/podLabels")]
#[case::pem("certificates.mounted.caBundle=-----BEGIN CERTIFICATE-----", "/certificates/mounted/caBundle")]
#[case::no_controller("controller=null", "missing property 'controller'")]
#[case::no_election("controller.leaderElection=null", "missing property 'leaderElection'")]
#[case::no_roles("rbac=null", "missing property 'rbac'")]
#[case::label_of_the_controller("controller.podLabels.app\\.kubernetes\\.io/name=mine", "/controller/podLabels")]
#[case::label_of_the_webhook("webhook.podLabels.app\\.kubernetes\\.io/name=mine", "/webhook/podLabels")]
#[case::label_of_a_rule("metrics.rules.labels.app\\.kubernetes\\.io/part-of=mine", "/metrics/rules/labels")]
#[case::part_of_the_controller("controller.podLabels.app\\.kubernetes\\.io/part-of=mine", "/controller/podLabels")]
#[case::agent_above_its_limit(
    "agent.resources.requests.cpu=0.2",
    "agent.resources.requests.cpu 0.2 must not be above agent.resources.limits.cpu 100m"
)]
#[case::agent_with_a_gpu("agent.resources.limits.nvidia\\.com/gpu=1", "/agent/resources/limits")]
#[case::agent_without_a_number("agent.resources.limits.memory=much", "/agent/resources/limits/memory")]
#[case::more_than_all_restarts("metrics.rules.thresholds.restartSlow=1.5", "/metrics/rules/thresholds/restartSlow")]
#[case::no_threshold("metrics.rules.thresholds.restartStorm=null", "missing property 'restartStorm'")]
#[case::no_namespace("controller.namespace=a: b", "/controller/namespace")]
#[case::zero("controller.leaderElection.retryPeriod=0s", "/controller/leaderElection/retryPeriod")]
#[case::fraction_within("controller.leaderElection.retryPeriod=0.5m1s", "/controller/leaderElection/retryPeriod")]
#[case::cordoned_at_no_time("controller.leaveCordoned=now", "/controller/leaveCordoned")]
#[case::zero_for_names("controller.settleNames=0s", "/controller/settleNames")]
#[case::fraction_of_a_lease("controller.leaderElection.leaseDuration=15500ms", "must be whole seconds")]
#[case::short_lease("controller.leaderElection.leaseDuration=10s", "must be longer than renewDeadline")]
#[case::late_retries("controller.leaderElection.retryPeriod=8334ms", "must be longer than retryPeriod")]
#[case::long_certificate("certificates.self.certLifetime=4380h1s", "must be at most half of caLifetime")]
#[case::late_renewal(
    "certificates.source=cert-manager,certificates.certManager.renewBefore=90m,certificates.certManager.duration=1.5h",
    "must be longer than renewBefore"
)]
#[case::interval_in_microseconds("metrics.serviceMonitor.interval=1us", "/metrics/serviceMonitor/interval")]
#[case::fraction_of_an_interval("metrics.serviceMonitor.interval=1.5h", "/metrics/serviceMonitor/interval")]
#[tokio::test]
async fn value_invalid_is_rejected_by_name(#[case] value: &str, #[case] named: &str) -> Result<()> {
    for version in [Helm::V3, Helm::V4] {
        let chart = Chart::new(version).await?;
        let refused = chart.template(NAMESPACE, &["--set", value]).await.unwrap_err().to_string();
        assert!(refused.contains(named), "{refused}");
    }
    Ok(())
}

/// Just inside of what the programs, cert-manager and Prometheus take.
#[rstest]
#[case::lease("controller.leaderElection.leaseDuration=11s")]
#[case::retries("controller.leaderElection.retryPeriod=8333ms")]
#[case::units("controller.leaderElection.leaseDuration=1h0.5m")]
#[case::lifetimes("certificates.self.certLifetime=4380h")]
#[case::renewal("certificates.source=cert-manager,certificates.certManager.renewBefore=2159h59m59.5s")]
#[case::interval("metrics.serviceMonitor.interval=1m30s")]
#[case::cordoned("controller.leaveCordoned=AtNextRestart")]
#[case::agent_at_its_limit("agent.resources.requests.memory=65536Ki")]
#[case::agent_without_limits("agent.resources.limits=null")]
#[case::threshold_in_parts("metrics.rules.thresholds.controllerErrors=0.25")]
#[case::names("controller.settleNames=1m30s")]
#[case::mounted_without_the_stream(
    "stream.enabled=false,certificates.source=mounted,certificates.mounted.secretName=a"
)]
#[tokio::test]
async fn value_at_the_limit_is_rendered(#[case] value: &str) -> Result<()> {
    render(NAMESPACE, &["--set", value]).await.map(drop)
}
