//! Pods of Jobs that are placed exclusively, made by hand: their Jobs are left alone by the Job controller.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use jobset_harness::wait::{self, Check};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Node, Pod, ServiceAccount};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::core::response::Status;
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::cluster::{LIMIT, Plane};

/// A namespace of a control plane.
pub(crate) struct Space {
    pub(crate) plane: &'static Plane,
    pub(crate) client: Client,
    pub(crate) namespace: &'static str,
}

impl Space {
    /// One of the control plane that tests share.
    pub(crate) async fn new(namespace: &'static str) -> Result<Self> {
        Self::on(Plane::shared().await?, namespace).await
    }

    /// The same with a Job and its leader.
    pub(crate) async fn with_leader(namespace: &'static str) -> Result<(Self, Job, Pod)> {
        let space = Self::new(namespace).await?;
        let job = space.job("train-w-0").await?;
        let leader = space.leader(&job).await?;
        Ok((space, job, leader))
    }

    /// A namespace of a control plane of its own, on which admission is not registered. It lives as long as this process.
    pub(crate) async fn alone(plane: Plane, namespace: &'static str) -> Result<Self> {
        Self::on(Box::leak(Box::new(plane)), namespace).await
    }

    async fn on(plane: &'static Plane, namespace: &'static str) -> Result<Self> {
        let space = Self { plane, client: plane.client(), namespace };
        space.create_namespace().await?;
        Ok(space)
    }

    async fn create_namespace(&self) -> Result<()> {
        let spaces: Api<Namespace> = Api::all(self.client.clone());
        let space = json!({ "metadata": { "name": self.namespace } });
        spaces.create(&PostParams::default(), &serde_json::from_value(space)?).await?;
        // A Pod that comes before its namespace's ServiceAccount is refused.
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), self.namespace);
        let there = async || Ok(accounts.get_opt("default").await?.map(|_| ()));
        wait::until(LIMIT, "the default ServiceAccount", there).await
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), self.namespace)
    }

    /// Label of nodes that names their rack. Nodes are everybody's: each test has its own.
    pub(crate) fn rack(&self) -> String {
        format!("example.com/rack-of-{}", self.namespace)
    }

    pub(crate) async fn job(&self, name: &str) -> Result<Job> {
        let job = json!({ "metadata": { "name": name }, "spec": {
            "managedBy": "example.com/nobody", "completionMode": "Indexed", "completions": 4, "parallelism": 4,
            "template": { "spec": { "restartPolicy": "Never", "containers": [{ "name": "w", "image": "w" }] } },
        } });
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), self.namespace);
        Ok(jobs.create(&PostParams::default(), &serde_json::from_value(job)?).await?)
    }

    /// A Pod as the Job controller creates it.
    pub(crate) fn pod(&self, job: &Job, index: usize) -> Value {
        let name = job.name_any();
        json!({
            "metadata": {
                "generateName": format!("{name}-{index}-"),
                "labels": {
                    "jobset.sigs.k8s.io/jobset-name": "train",
                    "jobset.sigs.k8s.io/job-key": jobset_api::names::job_key(self.namespace, &name),
                    "jobset.sigs.k8s.io/priority": "0",
                    "batch.kubernetes.io/job-name": name,
                    "batch.kubernetes.io/job-completion-index": index.to_string(),
                },
                "annotations": {
                    "alpha.jobset.sigs.k8s.io/exclusive-topology": self.rack(),
                    "batch.kubernetes.io/job-completion-index": index.to_string(),
                },
                "ownerReferences": [{ "apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": job.uid(),
                    "controller": true }],
            },
            "spec": { "restartPolicy": "Never", "containers": [{ "name": "w", "image": "w" }] },
        })
    }

    pub(crate) async fn create(&self, pod: &Value) -> kube::Result<Pod> {
        self.submit(pod, &PostParams::default()).await
    }

    pub(crate) async fn submit(&self, pod: &Value, params: &PostParams) -> kube::Result<Pod> {
        let pod = serde_json::from_value(pod.clone()).map_err(kube::Error::SerdeError)?;
        self.pods().create(params, &pod).await
    }

    pub(crate) async fn leader(&self, job: &Job) -> Result<Pod> {
        Ok(self.create(&self.pod(job, 0)).await?)
    }

    /// Creates a follower; returns the rack that it is sent to.
    pub(crate) async fn follower(&self, job: &Job) -> Result<String> {
        let pod = self.create(&self.pod(job, 1)).await?;
        let selector: BTreeMap<_, _> = pod.spec.and_then(|spec| spec.node_selector).unwrap_or_default();
        selector.get(&self.rack()).cloned().context("the follower is sent nowhere")
    }

    /// Waits until a follower is refused for this reason. Admission may have seen its leader differently a moment ago.
    pub(crate) async fn refuses(&self, job: &Job, reason: &str, text: &str) -> Result<Status> {
        wait::until_met(LIMIT, format!("a refusal with {text:?}"), async || {
            let status = match self.create(&self.pod(job, 1)).await {
                Err(kube::Error::Api(status)) => *status,
                Err(error) => return Err(error.into()),
                Ok(admitted) => return Ok(Check::Unmet(format!("{} was admitted", admitted.name_any()))),
            };
            let causes = status.details.as_ref().map(|it| it.causes.as_slice()).unwrap_or_default();
            let right = causes.iter().any(|cause| cause.reason == reason) && status.message.contains(text);
            Ok(if right { Check::Met(status) } else { Check::Unmet(format!("{status:?}")) })
        })
        .await
    }

    /// Waits until a follower is sent to this rack.
    pub(crate) async fn sends(&self, job: &Job, rack: &str) -> Result<()> {
        wait::until_met(LIMIT, format!("a follower for {rack}"), async || {
            let sent = self.follower(job).await?;
            Ok(if sent == rack { Check::Met(()) } else { Check::Unmet(sent) })
        })
        .await
    }

    pub(crate) async fn node(&self, name: &str, rack: Option<&str>) -> Result<()> {
        let labels = rack.map(|rack| json!({ self.rack(): rack })).unwrap_or_default();
        let node = json!({ "metadata": { "name": name, "labels": labels } });
        self.nodes().create(&PostParams::default(), &serde_json::from_value(node)?).await?;
        Ok(())
    }

    pub(crate) fn nodes(&self) -> Api<Node> {
        Api::all(self.client.clone())
    }

    pub(crate) async fn bind(&self, pod: &Pod, node: &str) -> Result<()> {
        let (name, target) = (pod.name_any(), json!({ "apiVersion": "v1", "kind": "Node", "name": node }));
        let binding = json!({ "apiVersion": "v1", "kind": "Binding", "metadata": { "name": name }, "target": target });
        let params = PostParams::default();
        self.pods().create_subresource::<Value, Value>("binding", &name, &params, &binding).await?;
        Ok(())
    }

    pub(crate) async fn status(&self, pod: &Pod, status: Value) -> Result<()> {
        let patch = Patch::Strategic(json!({ "status": status }));
        self.pods().patch_status(&pod.name_any(), &PatchParams::default(), &patch).await?;
        Ok(())
    }

    pub(crate) async fn delete(&self, pod: &Pod) -> Result<()> {
        self.pods().delete(&pod.name_any(), &DeleteParams::default()).await?;
        Ok(())
    }
}
