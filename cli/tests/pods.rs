//! Writes what agents and kubelets would write.

use anyhow::Result;
use jobset_harness::wait;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::fixture::{LIMIT, Space};

impl Space {
    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    /// The Pods of a JobSet by completion index, once there are `count` of them.
    pub(crate) async fn pods_of(&self, jobset: &str, count: usize) -> Result<Vec<Pod>> {
        let params = ListParams::default().labels(&format!("jobset.sigs.k8s.io/jobset-name={jobset}"));
        wait::until(LIMIT, format!("{count} Pods of {jobset}"), || async {
            let mut pods = self.pods().list(&params).await?.items;
            pods.sort_by_key(ResourceExt::name_any);
            Ok((pods.len() == count).then_some(pods))
        })
        .await
    }

    /// Creates a node for each Pod and binds the Pod to it.
    pub(crate) async fn bind(&self, pods: &[Pod]) -> Result<()> {
        for (index, pod) in pods.iter().enumerate() {
            let node = format!("node-{}", index + 1);
            self.node(&node, &json!({})).await?;
            self.bind_to(pod, &node).await?;
        }
        Ok(())
    }

    /// Creates a node with these labels. Nodes belong to no namespace, so each test needs names of its own.
    pub(crate) async fn node(&self, name: &str, labels: &Value) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}}))?;
        nodes.create(&PostParams::default(), &node).await?;
        Ok(())
    }

    /// Binds the Pod to a node, as the scheduler.
    pub(crate) async fn bind_to(&self, pod: &Pod, node: &str) -> Result<()> {
        let (name, params) = (pod.name_any(), PostParams::default());
        let target = json!({"apiVersion": "v1", "kind": "Node", "name": node});
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target});
        self.pods().create_subresource::<Value, Value>("binding", &name, &params, &binding).await?;
        Ok(())
    }

    /// Reports that no node suits the Pod, as the scheduler.
    pub(crate) async fn unschedulable(&self, pod: &Pod) -> Result<()> {
        let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                               "message": "0/1 nodes are available", "lastTransitionTime": Timestamp::now().to_string()});
        let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
        self.pods().patch_status(&pod.name_any(), &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Reports an epoch as the Pod's agent.
    pub(crate) async fn report(&self, pod: &Pod, epoch: i32) -> Result<()> {
        let patch = json!({"metadata": {"annotations": {"jobset.sigs.k8s.io/epoch": epoch.to_string()}}});
        self.pods().patch_metadata(&pod.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Marks the Pod ready, with running containers and this restart count.
    pub(crate) async fn runs(&self, pod: &Pod, restarts: i32) -> Result<()> {
        let state = json!({"running": {"startedAt": Timestamp::now().to_string()}});
        self.show(pod, "Running", restarts, [state.clone(), state]).await
    }

    /// Marks the agent running and the worker waiting for it.
    pub(crate) async fn held(&self, pod: &Pod, restarts: i32) -> Result<()> {
        let state = json!({"running": {"startedAt": Timestamp::now().to_string()}});
        self.show(pod, "Pending", restarts, [state, json!({"waiting": {"reason": "PodInitializing"}})]).await
    }

    /// Marks the worker failed with this exit code, just before the kubelet restarts the Pod.
    pub(crate) async fn crash(&self, pod: &Pod, code: i32, words: &str) -> Result<()> {
        let now = Timestamp::now().to_string();
        let running = json!({"running": {"startedAt": now}});
        let ended = json!({"terminated": {"exitCode": code, "reason": "Error", "message": words, "finishedAt": now, "startedAt": now}});
        self.show(pod, "Running", 0, [running, ended]).await
    }

    async fn show(&self, pod: &Pod, phase: &str, restarts: i32, states: [Value; 2]) -> Result<()> {
        let ready = states[1].get("running").is_some();
        // A worker waits until its agent is ready.
        let agent_ready = states[1].get("waiting").is_none();
        let container = |name: &str, state: &Value, ready: bool| {
            json!([{"name": name, "image": "none", "imageID": "none", "restartCount": restarts, "ready": ready, "started": ready,
                    "containerID": format!("containerd://{name}-{}-{restarts}", pod.name_any()), "state": state}])
        };
        let condition = |type_: &str| {
            json!({"type": type_, "status": if ready { "True" } else { "False" },
                                              "lastTransitionTime": Timestamp::now().to_string()})
        };
        let patch = json!({"status": {"phase": phase, "conditions": [condition("Ready"), condition("ContainersReady")],
            "initContainerStatuses": container("agent", &states[0], agent_ready), "containerStatuses": container("worker", &states[1], ready)}});
        self.pods().patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(patch)).await?;
        Ok(())
    }
}
