//! The stream between relays and the leading controller: agents that report over it alone, and what they are told.

mod relay;

use anyhow::{Context, Result};
use futures::Stream;
use jobset_api::JobSet;
use jobset_harness::wait::{self, Check};
use jobset_harness::{ControlPlane, admission};
use jobset_stream::tls::testing::{ExtendedKeyUsagePurpose, Pki};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::fixture::{Fixture, LIMIT, Space, Vacant, in_place, next};
use crate::outcome::epochs;
use crate::program::{NAMESPACE, Program};
use relay::Relay;

const GATE: &str = "--feature-gates=AgentStream=true";
/// A leader that is silent is replaced in seconds.
const IMPATIENT: [&str; 3] =
    ["--leader-elect-lease-duration=5s", "--leader-elect-renew-deadline=4s", "--leader-elect-retry-period=500ms"];

/// A control plane whose controller may keep the CA of the relays and look up their endpoints, and has not been started yet.
async fn vacant() -> Result<Vacant> {
    let vacant = Vacant::start().await?;
    permit(vacant.plane()).await?;
    Ok(vacant)
}

/// The rights that the chart gives with `stream.enabled`.
async fn permit(plane: &ControlPlane) -> Result<()> {
    let subjects = json!([{"kind": "ServiceAccount", "name": "jobset-controller", "namespace": NAMESPACE}]);
    let group = "rbac.authorization.k8s.io";
    let api_version = format!("{group}/v1");
    let binding = |kind: &str, role: &str, namespace: Option<&str>| {
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "stream", "namespace": namespace},
               "roleRef": {"apiGroup": group, "kind": role, "name": "stream"}, "subjects": subjects})
    };
    let objects = [
        json!({"apiVersion": api_version, "kind": "ClusterRole", "metadata": {"name": "stream"}, "rules": [
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "update"],
             "resourceNames": ["jobset-relay-ca"]}]}),
        binding("ClusterRoleBinding", "ClusterRole", None),
        json!({"apiVersion": api_version, "kind": "Role", "metadata": {"name": "stream", "namespace": NAMESPACE}, "rules": [
            {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]}]}),
        binding("RoleBinding", "Role", Some(NAMESPACE)),
    ];
    admission::apply(plane, "stream-rbac.yaml", &objects).await
}

/// The flags of a controller that knows this relay.
fn flags(relay: &Relay) -> Vec<String> {
    let folder = relay.folder().display();
    vec![GATE.to_owned(), format!("--stream-cert-dir={folder}"), format!("--relay-address={}", relay.address)]
}

fn strs(flags: &[String]) -> Vec<&str> {
    flags.iter().map(String::as_str).collect()
}

/// A control plane with a controller that is connected to a relay.
async fn connected() -> Result<(Fixture, Relay)> {
    let relay = Relay::start().await?;
    let fixture = vacant().await?.start_controller(&strs(&flags(&relay)))?;
    fixture.controller.has_metric("jobset_stream_relays", Some(1.0)).await?;
    Ok((fixture, relay))
}

/// A JobSet that restarts in place, whose Pods mount the CA of the relays.
fn with_relay(name: &str, pods: usize) -> Value {
    let mut jobset = in_place(name, pods, 9);
    let template = &mut jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"];
    template["spec"]["volumes"] = json!([{"name": "jobset-relay", "projected": {"sources": [
        {"serviceAccountToken": {"audience": "jobset-relay", "expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "jobset-relay-ca", "optional": true, "items": [{"key": "ca.crt", "path": "ca.crt"}]}}]}}]);
    jobset
}

/// Creates a JobSet whose agents are connected, each answered. Agents have the numbers of their Pods.
async fn with_agents(space: &Space, relay: &mut Relay, name: &str, pods: usize) -> Result<Vec<Pod>> {
    space.create(with_relay(name, pods)).await?;
    let pods = space.pods(name, pods, "0").await?;
    for (agent, pod) in (0..).zip(&pods) {
        let nonce = relay.hello(agent, pod, name)?;
        let (named, state) = relay.answer(agent).await?;
        assert_eq!((named, state.synced), (Some(nonce), 0));
    }
    Ok(pods)
}

/// The epochs of the next state that is written.
async fn next_epochs(history: &mut (impl Stream<Item = Result<JobSet>> + Unpin)) -> Result<(i32, i32, i32, i32)> {
    Ok(epochs(&next(history).await?.status.unwrap_or_default()))
}

#[tokio::test]
async fn stream_reports_alone_restart_group_with_two_writes() -> Result<()> {
    let (fixture, mut relay) = connected().await?;
    let pods = with_agents(&fixture, &mut relay, "train", 2).await?;
    let mut history = fixture.history("train").await?;
    relay.report(0, 1);
    relay.report(1, 1);
    let state = relay.broadcast((1, 0)).await?;
    assert_eq!((state.pods, state.bypass, state.failed), (2, false, false));
    while next_epochs(&mut history).await? != (1, 0, 0, 0) {}
    for epoch in 2..5 {
        relay.report(0, epoch);
        relay.broadcast((epoch - 1, epoch - 1)).await?;
        let written = fixture.status("train").await?;
        assert_eq!(written.deprecated_epoch, epoch - 1, "what agents are told can be read");
        relay.report(1, epoch);
        relay.broadcast((epoch, epoch - 1)).await?;
        let written = fixture.status("train").await?;
        assert_eq!(written.synced_epoch, epoch, "what agents are told can be read");
        let restarts = epoch - 1;
        assert_eq!(next_epochs(&mut history).await?, (restarts, restarts, restarts, restarts));
        assert_eq!(next_epochs(&mut history).await?, (epoch, restarts, restarts, restarts));
    }
    for pod in &pods {
        let annotations = fixture.all_pods().get(&pod.name_any()).await?.metadata.annotations.unwrap_or_default();
        assert!(!annotations.contains_key("jobset.sigs.k8s.io/epoch"), "{annotations:?}");
    }
    // The annotations follow, and count no second time.
    for pod in &pods {
        fixture.report(pod, "4").await?;
    }
    relay.report(0, 5);
    assert_eq!(next_epochs(&mut history).await?, (4, 4, 4, 4));
    assert_eq!(fixture.controller.metric("jobset_stream_agents").await?, Some(2.0));
    assert_eq!(fixture.controller.metric("jobset_stream_reports_total").await?, Some(9.0));
    assert_eq!(fixture.controller.metric("jobset_stream_answers_total").await?, Some(2.0));
    let log = fixture.controller.log()?;
    assert!(!log.contains("requests fail") && !log.contains("disconnected"), "{log}");
    fixture.plane.stop().await
}

#[tokio::test]
async fn hello_is_answered_from_a_read_after_it() -> Result<()> {
    let (fixture, mut relay) = connected().await?;
    let pods = with_agents(&fixture, &mut relay, "train", 1).await?;
    for agent in 1..20 {
        let is_off = agent % 2 == 1;
        let annotation = json!({"jobset.sigs.k8s.io/disable-in-place-restart": is_off.then_some("")});
        let patch = Patch::Merge(json!({"metadata": {"annotations": annotation}}));
        fixture.jobsets().patch("train", &PatchParams::default(), &patch).await?;
        let nonce = relay.hello(agent, &pods[0], "train")?;
        let (named, state) = relay.answer(agent).await?;
        assert_eq!((named, state.bypass), (Some(nonce), is_off), "agent {agent}");
        relay.leave(agent);
    }
    assert_eq!(fixture.controller.metric("jobset_stream_reads_total").await?, Some(20.0), "each has a read of its own");
    fixture.plane.stop().await
}

#[tokio::test]
async fn report_of_a_replaced_pod_changes_nothing() -> Result<()> {
    let (fixture, mut relay) = connected().await?;
    let pods = with_agents(&fixture, &mut relay, "train", 2).await?;
    relay.report(0, 1);
    relay.report(1, 1);
    relay.broadcast((1, 0)).await?;
    let mut replaced = pods[0].clone();
    replaced.metadata.uid = Some("00000000-0000-4000-8000-000000000000".to_owned());
    let mut history = fixture.history("train").await?;
    while next_epochs(&mut history).await? != (1, 0, 0, 0) {}
    relay.hello(7, &replaced, "train")?;
    relay.answer(7).await?;
    relay.report(7, 2);
    // An agent of another Pod of the namespace says that it belongs to the JobSet.
    let foreign = json!({"metadata": {"name": "foreign", "labels": {"jobset.sigs.k8s.io/jobset-name": "train"}},
                         "spec": {"containers": [{"name": "c", "image": "none"}]}});
    let foreign = fixture.all_pods().create(&PostParams::default(), &serde_json::from_value(foreign)?).await?;
    relay.hello(8, &foreign, "train")?;
    relay.answer(8).await?;
    relay.report(8, 2);
    fixture.controller.has_metric("jobset_stream_reports_total", Some(4.0)).await?;
    // The next write is that for the annotation.
    fixture.report(&pods[1], "2").await?;
    relay.broadcast((1, 1)).await?;
    relay.report(0, 2);
    relay.broadcast((2, 1)).await?;
    assert_eq!(fixture.in_epoch("train", (2, 1, 1, 1)).await?.synced_epoch, 2);
    fixture.plane.stop().await
}

#[tokio::test]
async fn controller_without_relays_works_by_annotations() -> Result<()> {
    let relay = Relay::start().await?;
    let folder = format!("--stream-cert-dir={}", relay.folder().display());
    // Nobody listens on this port.
    let fixture = vacant().await?.start_controller(&[GATE, &folder, "--relay-address=localhost:1"])?;
    fixture.create(with_relay("train", 2)).await?;
    let pods = fixture.pods("train", 2, "0").await?;
    for (epoch, wanted) in [("1", (1, 0, 0, 0)), ("2", (2, 1, 1, 1))] {
        for pod in &pods {
            fixture.report(pod, epoch).await?;
        }
        fixture.in_epoch("train", wanted).await?;
    }
    assert_eq!(fixture.controller.metric("jobset_stream_relays").await?, Some(0.0));
    fixture.controller.logged("connections to relay localhost:1").await?;
    fixture.plane.stop().await
}

/// The CA in the namespace, once it is this one.
async fn authority_becomes(space: &Space, wanted: &str) -> Result<ConfigMap> {
    let config_maps: Api<ConfigMap> = Api::default_namespaced(space.client.clone());
    wait::until_met(LIMIT, "the CA of the relays", || async {
        let found = config_maps.get_opt("jobset-relay-ca").await?;
        let authority = found.as_ref().and_then(|found| found.data.as_ref()?.get("ca.crt"));
        let is_wanted = authority.map(String::as_str) == Some(wanted);
        Ok(found.clone().filter(|_| is_wanted).map_or_else(|| Check::Unmet(format!("{found:?}")), Check::Met))
    })
    .await
}

#[tokio::test]
async fn namespaces_of_agents_have_the_ca_of_the_relays() -> Result<()> {
    let (fixture, relay) = connected().await?;
    let (wrong, without) = (fixture.space("wrong").await?, fixture.space("without").await?);
    let config_maps: Api<ConfigMap> = Api::default_namespaced(wrong.client.clone());
    let of_somebody =
        json!({"metadata": {"name": "jobset-relay-ca", "labels": {"mine": "yes"}}, "data": {"ca.crt": "?"}});
    config_maps.create(&PostParams::default(), &serde_json::from_value(of_somebody)?).await?;
    without.create(in_place("train", 1, 1)).await?;
    for space in [&*fixture, &wrong] {
        space.create(with_relay("train", 1)).await?;
    }
    authority_becomes(&fixture, &relay.pki.pem()).await?;
    let corrected = authority_becomes(&wrong, &relay.pki.pem()).await?;
    assert_eq!(corrected.labels().get("mine").map(String::as_str), Some("yes"), "nothing else changes");

    // The CA is replaced: all files of a folder belong together.
    let next = Pki::new();
    let issued = next.issue("jobset-controller.jobset-system.svc", ExtendedKeyUsagePurpose::ClientAuth);
    for name in ["tls.crt", "tls.key", "ca.crt"] {
        std::fs::copy(issued.folder.path().join(name), relay.folder().join(name))?;
    }
    authority_becomes(&fixture, &next.pem()).await?;
    authority_becomes(&wrong, &next.pem()).await?;
    let config_maps: Api<ConfigMap> = Api::default_namespaced(without.client.clone());
    assert!(config_maps.get_opt("jobset-relay-ca").await?.is_none(), "no agent there knows a relay");
    fixture.plane.stop().await
}

#[tokio::test]
async fn next_leader_dials_the_relay_and_continues_the_restart() -> Result<()> {
    let mut relay = Relay::start().await?;
    let flags = flags(&relay);
    let flags: Vec<&str> = strs(&flags).into_iter().chain(IMPATIENT).collect();
    let mut fixture = vacant().await?.start_controller(&flags)?;
    fixture.controller.has_metric("jobset_stream_relays", Some(1.0)).await?;
    let standby = Program::start(&fixture.plane, "standby", &flags)?;
    standby.logged("standing by").await?;
    with_agents(&fixture, &mut relay, "train", 2).await?;
    relay.report(0, 1);
    relay.report(1, 1);
    relay.broadcast((1, 0)).await?;
    assert_eq!(standby.metric("jobset_stream_relays").await?, Some(0.0), "who stands by connects to nobody");
    relay.report(0, 2);
    relay.broadcast((1, 1)).await?;

    fixture.controller.signal(Signal::KILL)?;
    fixture.controller.ended().await?;
    // Nobody leads, and the last agent reports.
    relay.report(1, 2);
    let (_, state) = relay.answer(0).await?;
    assert!(state.synced <= 2 && state.deprecated == 1, "{state:?}");
    fixture.in_epoch("train", (2, 1, 1, 1)).await?;
    relay.report(0, 3);
    relay.broadcast((2, 2)).await?;
    relay.report(1, 3);
    relay.broadcast((3, 2)).await?;
    fixture.in_epoch("train", (3, 2, 2, 2)).await?;
    standby.has_metric("jobset_stream_agents", Some(2.0)).await?;
    fixture.controller = standby;
    fixture.plane.stop().await
}

#[tokio::test]
async fn relays_are_found_by_the_endpoints_of_their_service() -> Result<()> {
    let relay = Relay::start().await?;
    let folder = format!("--stream-cert-dir={}", relay.folder().display());
    let fixture = vacant().await?.start_controller(&[GATE, &folder])?;
    let slices: Api<EndpointSlice> = Api::namespaced(fixture.client.clone(), NAMESPACE);
    let address = relay.address_for_endpoints()?;
    let slice = json!({
        "metadata": {"name": "relays", "labels": {"kubernetes.io/service-name": "jobset-relay"}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address.ip().to_string()], "conditions": {"ready": true}}],
        "ports": [{"name": "controller", "port": address.port(), "protocol": "TCP"}],
    });
    slices.create(&PostParams::default(), &serde_json::from_value(slice)?).await?;
    fixture.controller.has_metric("jobset_stream_relays", Some(1.0)).await?;
    slices.delete("relays", &DeleteParams::default()).await?;
    fixture.controller.has_metric("jobset_stream_relays", Some(0.0)).await?;
    fixture.plane.stop().await
}

#[tokio::test]
async fn start_without_certificates_is_refused_in_one_line() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let folder = format!("--stream-cert-dir={}", folder.path().display());
    let mut fixture = vacant().await?.start_controller(&[GATE, &folder])?;
    assert!(!fixture.controller.ended().await?.success());
    let log = fixture.controller.log()?;
    let last = log.lines().last().context("nothing was logged")?;
    assert!(last.contains("AgentStream needs certificates") && last.contains("tls.crt"), "{log}");
    fixture.plane.stop().await
}
