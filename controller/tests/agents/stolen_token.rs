//! What somebody can do who has stolen an agent's token: report for the agent's own Pod, and read JobSets. Everything else that the
//! token's ServiceAccount may do is compared with the API server's own list, so that no permission is forgotten here.

use anyhow::{Context, Result};
use jobset_agent::decide::Input;
use k8s_openapi::api::authorization::v1::{SelfSubjectRulesReview, SelfSubjectRulesReviewSpec};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use super::{Agent, EPOCH, assert_denied, assert_forbidden, confined, epoch, path};

/// One rule: API groups, resources, names and verbs.
type Rule = [String; 4];

/// All rules that hold for the client in the namespace, as the API server lists them.
async fn rules(client: &Client, namespace: &str) -> Result<Vec<Rule>> {
    let spec = SelfSubjectRulesReviewSpec { namespace: Some(namespace.to_owned()) };
    let review = SelfSubjectRulesReview { spec, ..SelfSubjectRulesReview::default() };
    let reviews: Api<SelfSubjectRulesReview> = Api::all(client.clone());
    let status = reviews.create(&PostParams::default(), &review).await?.status.context("no answer")?;
    anyhow::ensure!(!status.incomplete, "{:?}", status.evaluation_error);
    let list = |it: Option<Vec<String>>| it.unwrap_or_default().join(",");
    let rules = status.resource_rules.into_iter();
    let mut rules: Vec<_> = rules
        .map(|it| [list(it.api_groups), list(it.resources), list(it.resource_names), it.verbs.join(",")])
        // What every user may ask about itself.
        .filter(|[group, ..]| group != "authorization.k8s.io" && group != "authentication.k8s.io")
        // From 1.37 on, Kubernetes has every ServiceAccount read these public certificates.
        .filter(|rule| *rule != ["certificates.k8s.io", "clustertrustbundles", "", "get,list,watch"])
        .collect();
    rules.sort();
    Ok(rules)
}

#[tokio::test]
async fn stolen_token_reports_own_pod_and_reads_jobsets_only() -> Result<()> {
    let (space, agent) = confined("agents-of-thieves", "default").await?;
    let other = Agent::new(&space, "train-w-0-1", "default").await?;

    let allowed = rules(&agent.client, &space.namespace).await?;
    let expected = [
        ["", "pods", "", "patch"],
        ["agents.jobset.x-k8s.io", "epochs", "", "report"],
        ["jobset.x-k8s.io", "jobsets", "", "list,watch"],
    ];
    assert_eq!(allowed, expected);
    assert_eq!(rules(&agent.client, "default").await?, Vec::<Rule>::new(), "in other namespaces");

    // Its own epoch and last words, of the two annotations alone.
    assert_eq!(agent.report(3).await, Input::Reported { epoch: 3 });
    let mut words = epoch("4");
    words["metadata"]["annotations"]["jobset.sigs.k8s.io/worker-exit"] = json!("{}");
    agent.merge(&words).await?;
    words["metadata"]["annotations"]["jobset.sigs.k8s.io/coordinator"] = json!("me");
    assert_denied("another annotation", agent.merge(&words).await, 403, "not metadata.annotations[");
    // `patch` is for all Pods, by the role; the policy confines it to one.
    let foreign = super::send(&agent.client, &path(&space.namespace, &other.pod), super::MERGE, &epoch("9")).await;
    assert_denied("another Pod", foreign, 403, "an agent reports the epoch of its own Pod alone");

    // All the rest is for RBAC to refuse: a few that matter.
    let pods: Api<Pod> = Api::namespaced(agent.client.clone(), &space.namespace);
    assert_forbidden("read a Pod", pods.get(&agent.pod.name_any()).await);
    assert_forbidden("delete a Pod", pods.delete(&other.pod.name_any(), &kube::api::DeleteParams::default()).await);
    for (what, verb, uri) in [
        ("read Secrets", "GET", format!("/api/v1/namespaces/{}/secrets", space.namespace)),
        ("issue tokens", "POST", format!("/api/v1/namespaces/{}/serviceaccounts/default/token", space.namespace)),
        (
            "write status",
            "PATCH",
            format!("/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets/a/status", space.namespace),
        ),
        ("create JobSets", "POST", format!("/apis/jobset.x-k8s.io/v1alpha2/namespaces/{}/jobsets", space.namespace)),
        ("run commands", "POST", format!("{}/exec", path(&space.namespace, &other.pod))),
        (
            "loosen the policy",
            "DELETE",
            "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/jobset-agent".to_owned(),
        ),
    ] {
        let request = http::Request::builder().method(verb).uri(uri).header("content-type", super::MERGE);
        assert_forbidden(what, agent.client.request::<serde_json::Value>(request.body(b"{}".to_vec())?).await);
    }
    let after = space.all_pods().get(&other.pod.name_any()).await?;
    assert_eq!(after.annotations().get(EPOCH), None, "nothing was reported for the other Pod");
    Ok(())
}
