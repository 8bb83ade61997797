//! A control plane with Pods that nothing runs, and their tokens.

use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use jobset_harness::{ControlPlane, wait};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Namespace, Pod, ServiceAccount};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::json;
use tokio::sync::OnceCell;

/// Time limit of a test for one change, on a machine that runs all tests at once.
pub(crate) const LIMIT: Duration = Duration::from_mins(1);
pub(crate) const AUDIENCE: &str = "jobset-relay";

static SHARED: OnceCell<Result<ControlPlane, String>> = OnceCell::const_new();

pub(crate) async fn shared() -> Result<&'static ControlPlane> {
    let start = || async { ControlPlane::start().await.map_err(|error| format!("{error:#}")) };
    let plane = SHARED.get_or_init(start).await.as_ref();
    plane.map_err(|error| anyhow!("the shared control plane did not start: {error}"))
}

pub(crate) struct Space {
    pub(crate) name: String,
    client: Client,
}

impl Space {
    pub(crate) async fn new(name: &str) -> Result<Self> {
        let client = shared().await?.client();
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        Api::all(client.clone()).create(&PostParams::default(), &namespace).await?;
        Ok(Self { name: name.to_owned(), client })
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.name)
    }

    pub(crate) async fn pod(&self, name: &str) -> Result<Pod> {
        let pod = serde_json::from_value(json!({"metadata": {"name": name}, "spec": {
            "automountServiceAccountToken": false, "containers": [{"name": "worker", "image": "worker"}],
        }}))?;
        // The API server rejects a Pod until its namespace has a ServiceAccount.
        wait::until(LIMIT, format!("the Pod {name}"), || async {
            Ok(Some(self.pods().create(&PostParams::default(), &pod).await?))
        })
        .await
    }

    /// Deletes a Pod at once.
    pub(crate) async fn delete(&self, name: &str) -> Result<()> {
        self.pods().delete(name, &DeleteParams::default().grace_period(0)).await?;
        Ok(())
    }

    /// A token of the ServiceAccount `default` for these audiences; of the API server's if there are none.
    pub(crate) async fn token(&self, audiences: &[&str], pod: Option<&Pod>) -> Result<String> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &self.name);
        let bound = pod.map(|pod| BoundObjectReference {
            api_version: Some("v1".into()),
            kind: Some("Pod".into()),
            name: Some(pod.name_any()),
            uid: pod.uid(),
        });
        let spec = TokenRequestSpec {
            audiences: Some(audiences.iter().map(|&it| it.to_owned()).collect()),
            bound_object_ref: bound,
            expiration_seconds: None,
            ..TokenRequestSpec::default()
        };
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let answer = wait::until(LIMIT, "a token", || async {
            Ok(Some(accounts.create_token_request("default", &PostParams::default(), &request).await?))
        });
        answer.await?.status.and_then(|it| it.token).context("no token")
    }

    /// The token of a new Pod for relays.
    pub(crate) async fn agent_token(&self, pod: &str) -> Result<String> {
        self.token(&[AUDIENCE], Some(&self.pod(pod).await?)).await
    }

    /// The same for the Pod of this number.
    pub(crate) async fn agent_token_of(&self, number: usize) -> Result<String> {
        self.agent_token(&format!("pod-{number}")).await
    }
}
