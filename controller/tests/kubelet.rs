//! What kubelets and a scheduler would do to Pods. The control plane of the tests has no nodes: Pods stay pending, and
//! go at once when they are deleted, until a test says otherwise.

use anyhow::Result;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::fixture::Space;

/// What the workers of a Pod do.
#[derive(Clone, Copy)]
enum State {
    Running,
    /// All containers were restarted, and wait for the barrier.
    Reset,
    Ended {
        exit_code: i32,
    },
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

    /// The workers of the Pod end with this code, and the Pod does not: what shows for a moment before a reset.
    pub(crate) async fn crash(&self, pod: &Pod, exit_code: i32) -> Result<()> {
        self.show(pod, "Running", State::Ended { exit_code }).await
    }

    /// The Pod has been restarted in place: its init containers are through, its workers wait.
    pub(crate) async fn reset(&self, pod: &Pod) -> Result<()> {
        self.show(pod, "Pending", State::Reset).await
    }

    /// Deletes the Pod, and ends it as its kubelet would: the Job controller replaces a Pod that has ended.
    pub(crate) async fn lose(&self, pod: &Pod) -> Result<()> {
        self.all_pods().delete(&pod.name_any(), &DeleteParams::default()).await?;
        self.fail(pod, 143).await
    }

    /// The kubelet is done with a Pod that is being deleted: it goes.
    pub(crate) async fn release(&self, pod: &Pod) -> Result<()> {
        let at_once = DeleteParams::default().grace_period(0);
        self.all_pods().delete(&pod.name_any(), &at_once).await?;
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

    pub(crate) async fn patch_pod_status(&self, pod: &Pod, status: Value) -> Result<()> {
        let patch = Patch::Strategic(json!({"status": status}));
        self.all_pods().patch_status(&pod.name_any(), &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn show(&self, pod: &Pod, phase: &str, state: State) -> Result<()> {
        let now = Timestamp::now().to_string();
        // A reset restarts all containers, each as often as the others.
        let shown = self.all_pods().get(&pod.name_any()).await?.status.unwrap_or_default();
        let before = shown.container_statuses.iter().flatten().map(|it| it.restart_count).max().unwrap_or(0);
        let restarts = before + i32::from(matches!(state, State::Reset));
        let status = |name: &str, is_worker: bool| {
            let (ready, state) = match state {
                State::Reset if is_worker => (false, json!({"waiting": {"reason": "PodInitializing"}})),
                State::Running | State::Reset => (true, json!({"running": {"startedAt": now}})),
                State::Ended { exit_code } => {
                    let reason = if exit_code == 0 { "Completed" } else { "Error" };
                    (false, json!({"terminated": {"exitCode": exit_code, "reason": reason, "finishedAt": now}}))
                }
            };
            let id = format!("containerd://{name}-of-{}-{restarts}", pod.name_any());
            json!({"name": name, "image": "none", "imageID": "none", "restartCount": restarts, "containerID": id,
                   "ready": ready, "started": ready, "state": state})
        };
        let spec = pod.spec.clone().unwrap_or_default();
        let workers: Vec<Value> = spec.containers.iter().map(|container| status(&container.name, true)).collect();
        let others: Vec<Value> =
            spec.init_containers.iter().flatten().map(|container| status(&container.name, false)).collect();
        let ready = if matches!(state, State::Running) { "True" } else { "False" };
        let condition = |type_: &str| json!({"type": type_, "status": ready, "lastTransitionTime": now});
        let status = json!({
            "phase": phase,
            "conditions": [condition("Ready"), condition("ContainersReady")],
            "initContainerStatuses": others,
            "containerStatuses": workers,
        });
        self.patch_pod_status(pod, status).await
    }
}

pub(crate) fn pod_of<'a>(pods: &'a [Pod], job: &str, index: &str) -> Option<&'a Pod> {
    pods.iter().find(|pod| {
        let label = |name: &str| pod.labels().get(name).map(String::as_str);
        label("batch.kubernetes.io/job-name") == Some(job)
            && label("batch.kubernetes.io/job-completion-index") == Some(index)
    })
}
