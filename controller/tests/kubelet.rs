//! What kubelets and a scheduler would do to Pods. The control plane of the tests has no nodes: Pods stay pending, and
//! go at once when they are deleted, until a test says otherwise.

use anyhow::Result;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::fixture::Space;

/// What the containers of a Pod do.
#[derive(Clone, Copy)]
enum State {
    Running,
    Ended { exit_code: i32 },
}

impl Space {
    /// All containers of the Pod run, and it is ready.
    pub(crate) async fn run(&self, pod: &Pod) -> Result<()> {
        self.show(pod, "Running", State::Running).await
    }

    /// All workers of the Pod end with 0.
    pub(crate) async fn succeed(&self, pod: &Pod) -> Result<()> {
        self.show(pod, "Succeeded", State::Ended { exit_code: 0 }).await
    }

    /// The workers of the Pod end with this code, for good.
    pub(crate) async fn fail(&self, pod: &Pod, exit_code: i32) -> Result<()> {
        self.show(pod, "Failed", State::Ended { exit_code }).await
    }

    /// All Pods of a Job run, once there are so many.
    pub(crate) async fn run_job(&self, job: &str, pods: usize) -> Result<()> {
        for pod in self.pods_of(job, pods).await? {
            self.run(&pod).await?;
        }
        Ok(())
    }

    /// All Pods of a Job succeed, once there are so many.
    pub(crate) async fn complete_job(&self, job: &str, pods: usize) -> Result<()> {
        for pod in self.pods_of(job, pods).await? {
            self.succeed(&pod).await?;
        }
        Ok(())
    }

    /// Sends the Pod to a node, which is made for it. Bound, it does not go before its grace period is over.
    pub(crate) async fn bind(&self, pod: &Pod, node: Value) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let node = nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
        let target = json!({"apiVersion": "v1", "kind": "Node", "name": node.name_any()});
        let name = pod.name_any();
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target});
        let params = PostParams::default();
        self.all_pods().create_subresource::<Value, Value>("binding", &name, &params, &binding).await?;
        Ok(())
    }

    pub(crate) fn all_pods(&self) -> Api<Pod> {
        Api::default_namespaced(self.client.clone())
    }

    async fn show(&self, pod: &Pod, phase: &str, state: State) -> Result<()> {
        let now = Timestamp::now().to_string();
        let status = |name: &str| {
            let (ready, state) = match state {
                State::Running => (true, json!({"running": {"startedAt": now}})),
                State::Ended { exit_code } => {
                    let reason = if exit_code == 0 { "Completed" } else { "Error" };
                    (false, json!({"terminated": {"exitCode": exit_code, "reason": reason, "finishedAt": now}}))
                }
            };
            let id = format!("containerd://{name}-of-{}", pod.name_any());
            json!({"name": name, "image": "none", "imageID": "none", "restartCount": 0, "containerID": id,
                   "ready": ready, "started": ready, "state": state})
        };
        let spec = pod.spec.clone().unwrap_or_default();
        let workers: Vec<Value> = spec.containers.iter().map(|container| status(&container.name)).collect();
        let others: Vec<Value> =
            spec.init_containers.iter().flatten().map(|container| status(&container.name)).collect();
        let ready = if matches!(state, State::Running) { "True" } else { "False" };
        let condition = |type_: &str| json!({"type": type_, "status": ready, "lastTransitionTime": now});
        let patch = json!({"status": {
            "phase": phase,
            "conditions": [condition("Ready"), condition("ContainersReady")],
            "initContainerStatuses": others,
            "containerStatuses": workers,
        }});
        self.all_pods().patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(patch)).await?;
        Ok(())
    }
}

/// The Pod of this Job and completion index.
pub(crate) fn pod_of<'a>(pods: &'a [Pod], job: &str, index: &str) -> Option<&'a Pod> {
    pods.iter().find(|pod| {
        let label = |name: &str| pod.labels().get(name).map(String::as_str);
        label("batch.kubernetes.io/job-name") == Some(job)
            && label("batch.kubernetes.io/job-completion-index") == Some(index)
    })
}
