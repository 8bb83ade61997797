//! How soon an agent that starts has reported its epoch.
//!
//! The agent is a process of this machine, because the start of a container's process is known to a hundredth of a second
//! (kernel) or a second (kubelet) only. All else is as in a Pod: the same binary, a token that is bound to the Pod, its
//! role, the admission policy, and a Pod that has not reported before.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use jobset_api::labels;
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use serde_json::json;

use super::mode::{self, MeasuredMode, ModeCase};
use super::requests::{self, AgentRequest};
use crate::program::{Program, free, kubeconfig_of};
use jobset_harness::cluster::Cluster;
use jobset_harness::group::Group;
use jobset_harness::journal::now;
use jobset_harness::wait;
use jobset_harness::workload::RECREATE;

/// Longest wait for a report.
const LIMIT: Duration = Duration::from_secs(30);
/// The JobSet is suspended, so that its own agents stay away.
const CASE: ModeCase = mode::case("first-patch", MeasuredMode::Sidecar);

/// Starts agents one after the other; for each, the milliseconds from its start until its report was answered.
pub(super) async fn measure(cluster: &Cluster, agent: &Path, agents: usize) -> Result<Vec<f64>> {
    let group = Group::apply(cluster, CASE.name, RECREATE, |workload| {
        let mut workload = CASE.of(workload);
        workload.0["spec"]["suspend"] = json!(true);
        workload
    })
    .await?;
    let mut starts = Vec::new();
    for number in 0..agents {
        let pod = waiting_pod(&group, &format!("agent-{number}")).await?;
        let started = start(cluster, &group, &pod, agent).await.with_context(|| pod.name_any())?;
        starts.push((pod.name_any(), started));
    }
    milliseconds(&starts, &requests::of_agents(cluster, CASE.name)?)
}

/// Creates a Pod that the scheduler ignores.
async fn waiting_pod(group: &Group, name: &str) -> Result<Pod> {
    let pod = json!({"metadata": {"name": name}, "spec": {
        "schedulingGates": [{"name": "jobset.sigs.k8s.io/bench"}],
        "containers": [{"name": "worker", "image": "worker"}],
    }});
    group.pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await.context("cannot create the Pod")
}

/// Runs an agent for this Pod until it has reported, and gives when it was started.
async fn start(cluster: &Cluster, group: &Group, pod: &Pod, agent: &Path) -> Result<f64> {
    let name = pod.name_any();
    let bound = BoundObjectReference {
        api_version: Some("v1".into()),
        kind: Some("Pod".into()),
        name: Some(name.clone()),
        uid: pod.uid(),
    };
    let spec = TokenRequestSpec { bound_object_ref: Some(bound), ..TokenRequestSpec::default() };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let accounts: Api<ServiceAccount> = Api::namespaced(group.client.clone(), &group.namespace);
    let issued = accounts.create_token_request("default", &PostParams::default(), &request).await?;
    let token = issued.status.and_then(|status| status.token).context("no token was issued")?;
    let kubeconfig = cluster.dir().join("jobset-agent.kubeconfig");
    std::fs::write(&kubeconfig, kubeconfig_of(cluster, &token)?)?;
    let port = free(IpAddr::V4(Ipv4Addr::LOCALHOST))?.port().to_string();
    let environment = [
        ("NAMESPACE", group.namespace.as_str()),
        ("POD_NAME", &name),
        ("JOBSET_NAME", &group.name),
        ("BARRIER_PORT", &port),
    ];
    let started = now();
    let mut agent = Program::start("jobset-agent", agent, [""; 0], &environment, &kubeconfig, cluster)?;
    let reported = wait::until(LIMIT, format!("the report of {name}"), || async {
        Ok(group.pods.get(&name).await?.annotations().contains_key(labels::EPOCH).then_some(()))
    });
    agent.while_running(reported).await?;
    Ok(started)
}

/// For each Pod, the time from its agent's start to the answer to its first report.
fn milliseconds(starts: &[(String, f64)], requests: &[AgentRequest]) -> Result<Vec<f64>> {
    let of = |(pod, started): &(String, f64)| {
        let patch = requests.iter().find(|request| request.pod == *pod && request.verb == "patch");
        let patch = patch.with_context(|| format!("no report of {pod} was answered"))?;
        Ok((patch.answered - started) * 1e3)
    };
    starts.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_report_of_each_pod_counts() {
        let request = |pod: &str, verb: &str, answered| AgentRequest {
            pod: pod.into(),
            verb: verb.into(),
            received: 1.0,
            answered,
        };
        let starts = [("a".to_owned(), 1.0), ("b".to_owned(), 2.0)];
        let mut requests = vec![
            request("a", "watch", 1.25),
            request("a", "patch", 1.5),
            request("a", "patch", 9.0),
            request("b", "patch", 2.25),
        ];
        assert_eq!(milliseconds(&starts, &requests).unwrap(), [500.0, 250.0]);
        requests.pop();
        assert!(milliseconds(&starts, &requests).is_err());
    }
}
