//! Those who are no agents, or more than agents: the policy is not about them.

use anyhow::Result;
use http::{HeaderName, HeaderValue};
use jobset_harness::wait;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::{
    Agent, MERGE, STRATEGIC, assert_denied, bind_to, confined, create_account, give_role, label, path, send, token,
};
use crate::fixture::{LIMIT, Space};

/// Waits until the Pod of the agent takes a label from this client; a role takes a moment to be known.
async fn labels(space: &Space, client: &Client, agent: &Agent) -> Result<()> {
    let path = format!("{}?dryRun=All", path(&space.namespace, &agent.pod));
    wait::until(LIMIT, "the label to be taken", || async { Ok(Some(send(client, &path, MERGE, &label()).await?)) })
        .await?;
    Ok(())
}

fn on_pods(verb: &str) -> Value {
    json!([{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}])
}

#[tokio::test]
async fn those_who_are_no_agents_keep_their_rights() -> Result<()> {
    let (space, agent) = confined("agents-among-others", "default").await?;
    labels(&space, &space.client, &agent).await?;

    let jobsets = json!([{"apiGroups": ["jobset.x-k8s.io"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]}]);
    let everything = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch", "patch"]}]);
    for (account, rules) in [("operator", on_pods("patch")), ("jobsets", jobsets), ("everything", everything)] {
        create_account(&space, account).await?;
        give_role(&space, account, rules).await?;
        let client = space.client_with(&token(&space, account, None).await?)?;
        labels(&space, &client, &agent).await?;
        // So does one that runs in a Pod.
        let operator = Agent::new(&space, account, account).await?;
        labels(&space, &operator.client, &agent).await?;
        labels(&space, &operator.client, &operator).await?;
    }
    assert_denied("the agent", agent.merge(&label()).await, 403, "not metadata.labels;");
    Ok(())
}

#[tokio::test]
async fn an_agent_that_may_also_update_pods_keeps_that_right() -> Result<()> {
    let (space, agent) = confined("agents-that-operate", "default").await?;
    let other = Agent::new(&space, "train-w-0-1", "default").await?;

    // By name, and so at one Pod alone.
    let mut one = on_pods("update");
    one[0]["resourceNames"] = json!([agent.pod.name_any()]);
    give_role(&space, "default", one).await?;
    labels(&space, &agent.client, &agent).await?;
    labels(&space, &other.client, &agent).await?;
    let unbound = space.client_with(&token(&space, "default", None).await?)?;
    labels(&space, &unbound, &agent).await?;
    assert_denied("the other Pod", other.merge(&label()).await, 403, "not metadata.labels;");

    give_role(&space, "default", on_pods("update")).await?;
    labels(&space, &agent.client, &other).await?;
    labels(&space, &unbound, &other).await?;
    Ok(())
}

#[tokio::test]
async fn agent_with_more_rights_on_pods_keeps_them() -> Result<()> {
    let (space, agent) = confined("agents-that-do-more", "default").await?;
    let more = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["create", "delete"]},
        {"apiGroups": [""], "resources": ["pods/status"], "verbs": ["patch"]}]);
    give_role(&space, "default", more).await?;
    let checked = json!({"status": {"conditions": [{"type": "example.com/checked", "status": "True"}]}});
    wait::until(LIMIT, "the condition to be taken", || async {
        Ok(Some(agent.send(STRATEGIC, "/status", &checked).await?))
    })
    .await?;
    let pods: Api<Pod> = Api::namespaced(agent.client.clone(), &space.namespace);
    let helper = json!({"metadata": {"name": "helper"}, "spec": {"containers": [{"name": "a", "image": "none"}]}});
    pods.create(&PostParams::default(), &serde_json::from_value(helper)?).await?;
    pods.delete("helper", &DeleteParams::default()).await?;
    assert_denied("a label", agent.merge(&label()).await, 403, "not metadata.labels;");
    Ok(())
}

#[tokio::test]
async fn a_user_who_holds_the_role_is_no_agent() -> Result<()> {
    let (space, agent) = confined("agents-and-users", "default").await?;
    for name in ["alice", "system:alice"] {
        let user = json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name});
        bind_to(&space, "ClusterRole", "jobset-agent", &user).await?;
        let header = (HeaderName::from_static("impersonate-user"), HeaderValue::from_static(name));
        labels(&space, &space.client_sending(vec![header])?, &agent).await?;
    }
    Ok(())
}
