//! What agents may do with the role and the policy of `deploy/kustomize`, asked with the tokens that their kubelets would
//! give them.

mod elsewhere;
mod others;
mod own_pod;
mod stolen_token;

use anyhow::{Context, Result};
use http::Request;
use jobset_agent::args::Names;
use jobset_agent::decide::Input;
use jobset_agent::report::{Extras, report};
use jobset_harness::wait::{self, Check};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::PostParams;
use kube::core::response::Status;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::fixture::{LIMIT, Space};

pub(crate) const EPOCH: &str = "jobset.sigs.k8s.io/epoch";
/// What a refusal by the policy begins with.
pub(crate) const DENIED: &str = "ValidatingAdmissionPolicy 'jobset-agent' with binding 'jobset-agent' denied request: ";

/// Content types of patches.
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// The agent of a Pod: what it asks for, it asks for with a token that is bound to the Pod.
pub(crate) struct Agent {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) pod: Pod,
}

impl Agent {
    /// That of a Pod that exists.
    pub(crate) async fn of(space: &Space, pod: Pod) -> Result<Self> {
        let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone()).context("no account")?;
        let bound = BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            name: Some(pod.name_any()),
            uid: pod.uid(),
        };
        let token = token(space, &account, Some(bound)).await?;
        Ok(Self { client: space.client_with(&token)?, namespace: space.namespace.clone(), pod })
    }

    async fn new(space: &Space, pod: &str, account: &str) -> Result<Self> {
        let pod = json!({
            "metadata": {"name": pod, "generateName": "of-a-job-", "labels": {"app": "train"},
                "annotations": {"example.com/kept": "as it is"}},
            "spec": {"serviceAccountName": account, "containers": [{"name": "worker", "image": "none"}]},
        });
        let pod = space.all_pods().create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        Self::of(space, pod).await
    }

    /// Reports an epoch for this Pod, by the agent's own code.
    async fn report_for(&self, pod: &Pod, epoch: i32) -> Input {
        let names = Names { namespace: self.namespace.clone(), pod: pod.name_any(), jobset: "train".to_owned() };
        report(&self.client, &names, epoch, &Extras::default()).await
    }

    pub(crate) async fn report(&self, epoch: i32) -> Input {
        self.report_for(&self.pod, epoch).await
    }

    pub(crate) async fn merge(&self, patch: &Value) -> kube::Result<Value> {
        self.send(MERGE, "", patch).await
    }

    /// Patches the own Pod in this way; `rest` goes on the path: a subresource, a query.
    async fn send(&self, content_type: &str, rest: &str, patch: &Value) -> kube::Result<Value> {
        send(&self.client, &format!("{}{rest}", path(&self.namespace, &self.pod)), content_type, patch).await
    }

    /// Waits until role and policy are in force, which takes a moment after they were written.
    pub(crate) async fn is_confined(&self) -> Result<()> {
        wait::until_met(LIMIT, "the policy to confine the agent", || async {
            let labelled = self.send(MERGE, "?dryRun=All", &json!({"metadata": {"labels": {"more": "b"}}})).await;
            Ok(match labelled {
                Err(kube::Error::Api(status)) if status.message.contains(DENIED) => Check::Met(()),
                other => Check::Unmet(format!("{other:?}")),
            })
        })
        .await
    }
}

/// A namespace with a ServiceAccount, and the agent of a Pod of it.
async fn confined(namespace: &str, account: &str) -> Result<(Space, Agent)> {
    let space = Space::new(namespace).await?;
    if account != "default" {
        create_account(&space, account).await?;
    }
    let_agents_in(&space, account).await?;
    let agent = Agent::new(&space, "train-w-0-0", account).await?;
    agent.is_confined().await?;
    Ok((space, agent))
}

async fn token(space: &Space, account: &str, bound: Option<BoundObjectReference>) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::default_namespaced(space.client.clone());
    let spec = TokenRequestSpec { bound_object_ref: bound, ..TokenRequestSpec::default() };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let issued = accounts.create_token_request(account, &PostParams::default(), &request).await?;
    issued.status.and_then(|status| status.token).context("no token was issued")
}

async fn create_account(space: &Space, account: &str) -> Result<()> {
    let accounts: Api<ServiceAccount> = Api::default_namespaced(space.client.clone());
    let object = json!({"metadata": {"name": account}});
    accounts.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(())
}

/// Binds a ServiceAccount, also of another namespace, to a role in this one.
async fn bind(space: &Space, kind: &str, role: &str, namespace: &str, account: &str) -> Result<()> {
    let subject = json!({"kind": "ServiceAccount", "name": account, "namespace": namespace});
    bind_to(space, kind, role, &subject).await
}

/// Binds somebody to a role in this namespace.
async fn bind_to(space: &Space, kind: &str, role: &str, subject: &Value) -> Result<()> {
    let bindings: Api<RoleBinding> = Api::default_namespaced(space.client.clone());
    let binding = json!({
        "metadata": {"generateName": "test-"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": role},
        "subjects": [subject],
    });
    bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
    Ok(())
}

/// Lets a ServiceAccount of this namespace run agents here.
async fn let_agents_in(space: &Space, account: &str) -> Result<()> {
    bind(space, "ClusterRole", "jobset-agent", &space.namespace, account).await
}

/// Gives a ServiceAccount of this namespace a role of these rules.
async fn give_role(space: &Space, account: &str, rules: Value) -> Result<()> {
    let api: Api<Role> = Api::default_namespaced(space.client.clone());
    let role = json!({"metadata": {"generateName": "test-"}, "rules": rules});
    let role = api.create(&PostParams::default(), &serde_json::from_value(role)?).await?;
    bind(space, "Role", &role.name_any(), &space.namespace, account).await
}

fn path(namespace: &str, pod: &Pod) -> String {
    format!("/api/v1/namespaces/{namespace}/pods/{}", pod.name_any())
}

async fn send(client: &Client, uri: &str, content_type: &str, patch: &Value) -> kube::Result<Value> {
    let request = Request::patch(uri).header("content-type", content_type).body(patch.to_string().into_bytes());
    client.request(request.map_err(kube::Error::HttpError)?).await
}

/// A patch that reports an epoch.
fn epoch(epoch: impl Into<Value>) -> Value {
    json!({"metadata": {"annotations": {EPOCH: epoch.into()}}})
}

fn label() -> Value {
    json!({"metadata": {"labels": {"more": "b"}}})
}

/// Why it was refused.
pub(crate) fn refusal<T: std::fmt::Debug>(result: kube::Result<T>) -> Status {
    match result {
        Err(kube::Error::Api(status)) => *status,
        other => unreachable!("not refused: {other:?}"),
    }
}

/// Asserts that it was refused by the policy, for this reason, with this code.
pub(crate) fn assert_denied<T: std::fmt::Debug>(what: &str, result: kube::Result<T>, code: u16, reason: &str) {
    let status = refusal(result);
    let (_, said) = status.message.split_once(DENIED).unwrap_or_default();
    assert!(said.contains(reason), "{what}: {status:?}, not {reason:?}");
    assert_eq!(status.code, code, "{what}: {said}");
}

/// Asserts that it was refused for want of permission.
fn assert_forbidden<T: std::fmt::Debug>(what: &str, result: kube::Result<T>) {
    let status = refusal(result);
    assert_eq!(status.code, 403, "{what}: {status:?}");
    assert!(status.message.contains(" cannot "), "{what}: {status:?}");
}
