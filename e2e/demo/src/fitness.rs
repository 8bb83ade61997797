//! Whether a cluster can restart Pods in place: its API server is asked, and its nodes declare it.

use anyhow::{Context, Result, bail};
use http::Request;
use jobset_api::in_place::{FEATURE, NEEDS, kubelet_can};
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use jobset_harness::progress::progress;

/// Fails with what is missing.
pub(super) async fn check(client: &Client) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let nodes = nodes.list(&ListParams::default()).await.context("cannot list nodes")?.items;
    let unable: Vec<String> = nodes.iter().filter(|node| !can(node)).map(ResourceExt::name_any).collect();
    let mut missing = Vec::new();
    missing.extend(refusal(client).await?);
    if nodes.is_empty() {
        missing.push("it has no nodes".to_owned());
    } else if unable.len() == nodes.len() {
        missing.push(format!(
            "none of its {} nodes can (nodes declare {FEATURE} in status.declaredFeatures)",
            nodes.len()
        ));
    } else if !unable.is_empty() {
        progress(&format!("not all nodes can restart Pods in place: no worker will run on {}", unable.join(", ")));
    }
    if missing.is_empty() {
        return Ok(());
    }
    bail!("this cluster cannot restart Pods in place: {}; {NEEDS}", missing.join("; "))
}

fn can(node: &Node) -> bool {
    let status = node.status.clone().unwrap_or_default();
    let version = status.node_info.map(|info| info.kubelet_version).unwrap_or_default();
    kubelet_can(&status.declared_features.unwrap_or_default(), &version)
}

/// What the API server says of a Pod with the rule, which it is to try and not to keep.
async fn refusal(client: &Client) -> Result<Option<String>> {
    let request =
        Request::post("/api/v1/namespaces/default/pods?dryRun=All").header("Content-Type", "application/json");
    let answer = client.request::<Value>(request.body(serde_json::to_vec(&probe())?)?).await;
    match answer {
        Ok(pod) if pod["spec"]["containers"][0]["restartPolicyRules"][0]["action"] == "RestartAllContainers" => {
            Ok(None)
        }
        Ok(_) => Ok(Some("its API server drops restartPolicyRules".to_owned())),
        Err(kube::Error::Api(status)) if status.is_invalid() || status.code == 400 => {
            Ok(Some(format!("its API server refuses the action RestartAllContainers ({})", status.message)))
        }
        Err(error) => {
            Err(error).context("cannot ask the API server whether it would take a Pod that restarts in place")
        }
    }
}

/// A Pod that any namespace would take.
fn probe() -> Value {
    json!({
        "metadata": {"name": "jobset-demo-asks"},
        "spec": {
            "restartPolicy": "Never",
            "securityContext": {"runAsNonRoot": true, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{
                "name": "worker",
                "image": "localhost/nothing:never",
                "restartPolicy": "Never",
                "restartPolicyRules": [
                    {"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0]}},
                ],
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}},
            }],
        },
    })
}
