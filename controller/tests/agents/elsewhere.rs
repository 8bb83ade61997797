//! Everything but the agent's own Pod.

use anyhow::Result;
use http::{HeaderName, HeaderValue, Request};
use jobset_agent::decide::Input;
use jobset_harness::wait;
use k8s_openapi::api::authentication::v1::BoundObjectReference;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::{
    APPLY, Agent, MERGE, assert_denied, assert_forbidden, bind, confined, epoch, label, path, refusal, send, token,
};
use crate::fixture::{LIMIT, Space, in_place};

#[tokio::test]
async fn an_agent_is_refused_at_other_pods_of_its_namespace() -> Result<()> {
    let (space, agent) = confined("agents-side-by-side", "default").await?;
    let other = Agent::new(&space, "train-w-0-1", "default").await?;
    let said = format!(
        "this token is bound to Pod train-w-0-0 with UID {}, and this Pod has UID {}: an agent reports the epoch of its \
         own Pod alone",
        agent.pod.uid().unwrap(),
        other.pod.uid().unwrap()
    );
    let others = path(&space.namespace, &other.pod);
    assert_denied("its epoch", send(&agent.client, &others, MERGE, &epoch("1")).await, 403, &said);
    assert_denied("its labels", send(&agent.client, &others, MERGE, &label()).await, 403, &said);
    assert!(matches!(agent.report_for(&other.pod, 1).await, Input::ReportFailed { .. }));

    // Each its own.
    assert_eq!(other.report(1).await, Input::Reported { epoch: 1 });
    assert_eq!(agent.report(1).await, Input::Reported { epoch: 1 });

    // Nor is it let in by other ways, its own Pod included.
    let pods: Api<Pod> = Api::namespaced(agent.client.clone(), &space.namespace);
    let own = space.all_pods().get("train-w-0-0").await?;
    assert_forbidden("get", pods.get("train-w-0-0").await);
    assert_forbidden("update", pods.replace("train-w-0-0", &PostParams::default(), &own).await);
    assert_forbidden("delete", pods.delete("train-w-0-0", &DeleteParams::default()).await);
    assert_forbidden("delete all", pods.delete_collection(&DeleteParams::default(), &ListParams::default()).await);
    let mut new = own.clone();
    new.metadata = kube::api::ObjectMeta { name: Some("new".to_owned()), ..Default::default() };
    assert_forbidden("create", pods.create(&PostParams::default(), &new).await);
    let applied = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "new"}, "spec": own.spec});
    let new = path(&space.namespace, &new);
    assert_forbidden("apply", send(&agent.client, &format!("{new}?fieldManager=a"), APPLY, &applied).await);
    Ok(())
}

#[tokio::test]
async fn agent_reads_jobsets_of_its_namespace_writes_none() -> Result<()> {
    let (space, agent) = confined("agents-and-jobsets", "default").await?;
    let next_door = Space::new("agents-and-jobsets-next-door").await?;
    for space in [&space, &next_door] {
        space.create(in_place("train", 1, 3)).await?;
    }
    let jobsets = |namespace: &str| format!("/apis/jobset.x-k8s.io/v1alpha2/namespaces/{namespace}/jobsets");
    assert!(get(&agent.client, &jobsets(&space.namespace)).await.is_ok());
    assert_forbidden("list next door", get(&agent.client, &jobsets(&next_door.namespace)).await);
    assert_forbidden(
        "watch next door",
        get(&agent.client, &format!("{}?watch=true", jobsets(&next_door.namespace))).await,
    );
    for namespace in [&space.namespace, &next_door.namespace] {
        for subresource in ["", "/status"] {
            let path = format!("{}/train{subresource}", jobsets(namespace));
            assert_forbidden(&path, send(&agent.client, &path, MERGE, &json!({"status": {"syncedEpoch": 9}})).await);
        }
    }
    Ok(())
}

#[tokio::test]
async fn agent_is_denied_pods_of_other_namespaces() -> Result<()> {
    let (space, agent) = confined("agents-here", "default").await?;
    let next_door = Space::new("agents-next-door").await?;
    let neighbour = Agent::new(&next_door, "train-w-0-0", "default").await?;
    let patched =
        || async { send(&agent.client, &path(&next_door.namespace, &neighbour.pod), MERGE, &epoch("1")).await };
    assert_forbidden("without the role", patched().await);
    bind(&next_door, "ClusterRole", "jobset-agent", &space.namespace, "default").await?;
    wait::until(LIMIT, "the role to be known", || async {
        Ok((!refusal(patched().await).message.contains(" cannot ")).then_some(()))
    })
    .await?;
    assert_denied("with the role", patched().await, 403, "this token is bound to Pod train-w-0-0 with UID ");
    Ok(())
}

#[tokio::test]
async fn a_token_that_is_bound_to_no_pod_is_refused() -> Result<()> {
    let (space, agent) = confined("agents-unbound", "default").await?;
    let secrets: Api<Secret> = Api::default_namespaced(space.client.clone());
    let secret: Secret = serde_json::from_value(json!({"metadata": {"name": "a"}}))?;
    let secret = secrets.create(&PostParams::default(), &secret).await?;
    let of_secret = BoundObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Secret".to_owned()),
        name: Some("a".to_owned()),
        uid: secret.uid(),
    };
    let account = format!("system:serviceaccount:{}:default", space.namespace);
    let said = format!("this token of {account} is bound to no Pod: an agent needs the token");
    for bound in [None, Some(of_secret)] {
        let client = space.client_with(&token(&space, "default", bound).await?)?;
        for patch in [epoch("1"), label()] {
            let patched = send(&client, &path(&space.namespace, &agent.pod), MERGE, &patch).await;
            assert_denied(&patch.to_string(), patched, 403, &said);
        }
    }
    // A token of a Secret of the type service-account-token says nothing more than the name.
    let client = space.client_sending(vec![as_account(&space)?])?;
    let patched = send(&client, &path(&space.namespace, &agent.pod), MERGE, &epoch("1")).await;
    assert_denied("as a Secret's token", patched, 403, &said);
    Ok(())
}

#[tokio::test]
async fn token_of_deleted_pod_has_no_right_on_successor() -> Result<()> {
    let (space, agent) = confined("agents-of-old", "default").await?;
    space.release(&agent.pod).await?;
    wait::until(LIMIT, "the Pod to be gone", || async {
        Ok(space.all_pods().get_opt("train-w-0-0").await?.is_none().then_some(()))
    })
    .await?;
    let successor = Agent::new(&space, "train-w-0-0", "default").await?;
    let (old, new) = (agent.pod.uid().unwrap(), successor.pod.uid().unwrap());
    assert_ne!(old, new);

    // The API server may take the token for valid some seconds more; then it is the policy that refuses it.
    let status = refusal(agent.merge(&epoch("1")).await);
    let said = format!("this token is bound to Pod train-w-0-0 with UID {old}, and this Pod has UID {new}: ");
    assert!(status.code == 401 || (status.code == 403 && status.message.contains(&said)), "{status:?}");

    // Whichever it was: as if the token were still taken.
    let pod = path(&space.namespace, &successor.pod);
    let patched = send(&as_bound_to(&space, "train-w-0-0", &old)?, &pod, MERGE, &epoch("1")).await;
    assert_denied("its successor's", patched, 403, &said);
    send(&as_bound_to(&space, "train-w-0-0", &new)?, &pod, MERGE, &epoch("1")).await?;
    assert_eq!(successor.report(1).await, Input::Reported { epoch: 1 });
    Ok(())
}

/// The ServiceAccount `default`, as a token that is bound to this Pod makes it known.
fn as_bound_to(space: &Space, name: &str, uid: &str) -> Result<Client> {
    let header = |name: &str, value: &str| anyhow::Ok((name.parse::<HeaderName>()?, HeaderValue::from_str(value)?));
    space.client_sending(vec![
        as_account(space)?,
        header("Impersonate-Extra-Authentication.kubernetes.io%2fpod-name", name)?,
        header("Impersonate-Extra-Authentication.kubernetes.io%2fpod-uid", uid)?,
    ])
}

/// The header of a request in the name of the ServiceAccount `default`.
fn as_account(space: &Space) -> Result<(HeaderName, HeaderValue)> {
    let user = format!("system:serviceaccount:{}:default", space.namespace);
    Ok((HeaderName::from_static("impersonate-user"), HeaderValue::from_str(&user)?))
}

async fn get(client: &Client, path: &str) -> kube::Result<Value> {
    client.request(Request::get(path).body(Vec::new()).map_err(kube::Error::HttpError)?).await
}
