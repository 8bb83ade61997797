//! The agent's own Pod: its epoch, and nothing else.

use anyhow::{Context, Result};
use jobset_agent::decide::Input;
use jobset_harness::wait::{self, Check};
use k8s_openapi::api::admissionregistration::v1::ValidatingAdmissionPolicy;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use rstest::rstest;
use serde_json::{Map, Value, json};

use super::{
    APPLY, Agent, EPOCH, JSON, MERGE, STRATEGIC, assert_denied, assert_forbidden, confined, epoch, label, path, send,
};
use crate::fixture::{LIMIT, Space};

/// The annotation with the end of the worker.
const EXIT: &str = "jobset.sigs.k8s.io/worker-exit";
const STARTED: &str = "jobset.sigs.k8s.io/agent-started";

/// The annotation with the progress of the worker.
const PROGRESS: &str = "jobset.sigs.k8s.io/progress";

/// The epoch that the Pod shows.
async fn shown(space: &Space, agent: &Agent) -> Result<Option<String>> {
    Ok(space.all_pods().get(&agent.pod.name_any()).await?.annotations().get(EPOCH).cloned())
}

/// An object of the Pod for server-side apply.
fn applied(agent: &Agent, metadata: &Value) -> Value {
    let mut object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": agent.pod.name_any()}});
    json_patch::merge(&mut object["metadata"], &metadata["metadata"]);
    object
}

#[rstest]
#[case::of_the_default("agents-of-default", "default")]
#[case::of_an_own_one("agents-of-trainer", "trainer")]
#[tokio::test]
async fn an_agent_of_any_service_account_reports_epochs_that_grow(
    #[case] namespace: &str,
    #[case] account: &str,
) -> Result<()> {
    let (space, agent) = confined(namespace, account).await?;
    // A first report, the same again, and one that leaves some out.
    for number in [1, 1, 3] {
        assert_eq!(agent.report(number).await, Input::Reported { epoch: number });
    }
    let force = "?fieldManager=agent&force=true";
    let replaced = json!([{"op": "replace", "path": "/metadata/annotations/jobset.sigs.k8s.io~1epoch", "value": "6"}]);
    agent.merge(&epoch("4")).await?;
    agent.send(STRATEGIC, "", &epoch("5")).await?;
    agent.send(JSON, "", &replaced).await?;
    agent.send(APPLY, force, &applied(&agent, &epoch("7"))).await?;
    agent.send(MERGE, "?dryRun=All", &epoch("9")).await?;
    assert_eq!(shown(&space, &agent).await?.as_deref(), Some("7"));
    assert_eq!(agent.report(i32::MAX).await, Input::Reported { epoch: i32::MAX });
    assert_denied("fallen from the last", agent.merge(&epoch("2")).await, 422, "must not fall from 2147483647 to 2: ");

    // What is no epoch is the administrator's doing, and no bound.
    let pod = path(&space.namespace, &agent.pod);
    let nonsense = ["many", "0", "-7", "007", "7th", "the 7", "2147483648", "99999999999999999999"].map(Value::from);
    for nonsense in nonsense.into_iter().chain([Value::Null]) {
        send(&space.client, &pod, MERGE, &epoch(nonsense.clone())).await?;
        assert_eq!(agent.report(2).await, Input::Reported { epoch: 2 }, "after {nonsense}");
    }
    Ok(())
}

#[tokio::test]
async fn go_agent_reports_attempts_of_own_pod_alone() -> Result<()> {
    let (space, agent) = confined("agents-of-the-go-jobset", "default").await?;
    let attempt =
        |number: &str| json!({"metadata": {"annotations": {"jobset.sigs.k8s.io/in-place-restart-attempt": number}}});
    for number in ["0", "1", "1"] {
        agent.merge(&attempt(number)).await?;
    }
    assert_eq!(shown(&space, &agent).await?, None);
    assert_denied("no attempt", agent.merge(&attempt("many")).await, 422, "must be an attempt, a number from 0");
    let mut with_label = label();
    json_patch::merge(&mut with_label, &attempt("2"));
    assert_denied("a label beside it", agent.merge(&with_label).await, 403, "not metadata.labels;");
    Ok(())
}

#[rstest]
#[case::how_its_worker_ended(EXIT, 8192)]
#[case::its_start(STARTED, 64)]
#[case::progress(PROGRESS, 4096)]
#[tokio::test]
async fn agent_reports_beside_its_epoch_within_limits(#[case] key: &str, #[case] longest: usize) -> Result<()> {
    let (space, agent) = confined(&format!("agents-within-{longest}"), "default").await?;
    let report = |number: &str, value: Value| {
        let mut report = epoch(number);
        report["metadata"]["annotations"][key] = value;
        report
    };
    agent.merge(&report("1", json!("x".repeat(longest)))).await?;
    let long = agent.merge(&report("2", json!("x".repeat(longest + 1)))).await;
    assert_denied("too long", long, 422, &format!("at most {longest} characters"));
    let mut with_label = label();
    json_patch::merge(&mut with_label, &report("2", json!("x")));
    assert_denied("a label beside it", agent.merge(&with_label).await, 403, "not metadata.labels;");
    assert_eq!(shown(&space, &agent).await?.as_deref(), Some("1"));
    agent.merge(&report("2", Value::Null)).await?;
    assert_eq!(shown(&space, &agent).await?.as_deref(), Some("2"));
    Ok(())
}

#[tokio::test]
async fn an_agent_reports_for_a_pod_without_labels_and_annotations() -> Result<()> {
    let (space, _) = confined("agents-of-bare-pods", "default").await?;
    let bare = json!({"metadata": {"name": "bare"}, "spec": {"containers": [{"name": "worker", "image": "none"}]}});
    let bare = space.all_pods().create(&PostParams::default(), &serde_json::from_value(bare)?).await?;
    let agent = Agent::of(&space, bare).await?;
    assert_denied("nothing", agent.merge(&json!({})).await, 422, "must be there");
    assert_denied("a label", agent.merge(&label()).await, 403, "not metadata.labels;");
    assert_eq!(agent.report(1).await, Input::Reported { epoch: 1 });
    Ok(())
}

#[tokio::test]
async fn an_agent_changes_nothing_else_about_its_pod() -> Result<()> {
    let (space, agent) = confined("agents-and-the-rest", "default").await?;
    let held = json!({"metadata": {"finalizers": ["example.com/held"]}});
    send(&space.client, &path(&space.namespace, &agent.pod), MERGE, &held).await?;
    // Nothing at all is not an epoch either.
    assert_denied("nothing", agent.merge(&json!({})).await, 422, "must be there");
    assert_eq!(agent.report(3).await, Input::Reported { epoch: 3 });
    let before = space.all_pods().get(&agent.pod.name_any()).await?;

    let metadata = |field: &str, value: Value| json!({"metadata": {field: value}});
    let annotation = |key: &str, value: Value| metadata("annotations", json!({key: value, EPOCH: "4"}));
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "a"}]);
    let mut with_label = label();
    json_patch::merge(&mut with_label, &epoch("4"));
    let image = json!({"spec": {"containers": [{"name": "worker", "image": "other"}]}});
    let unheld = json!([{"op": "remove", "path": "/metadata/finalizers"}]);
    let force = "?fieldManager=agent&force=true";
    let kept = "metadata.annotations[example.com/kept]";
    let refused = [
        ("a label", MERGE, "", label(), "metadata.labels"),
        ("a label beside an epoch", MERGE, "", with_label.clone(), "metadata.labels"),
        ("a label, on trial", MERGE, "?dryRun=All", with_label.clone(), "metadata.labels"),
        ("an applied label", APPLY, force, applied(&agent, &with_label), "metadata.labels"),
        ("another label", MERGE, "", metadata("labels", json!({"app": "other"})), "metadata.labels"),
        ("no labels", MERGE, "", metadata("labels", Value::Null), "metadata.labels"),
        ("no finalizers", MERGE, "", metadata("finalizers", Value::Null), "metadata.finalizers"),
        ("no finalizers, by JSON patch", JSON, "", unheld, "metadata.finalizers"),
        ("a finalizer", STRATEGIC, "", metadata("finalizers", json!(["example.com/more"])), "metadata.finalizers"),
        ("an owner", MERGE, "", metadata("ownerReferences", owner), "metadata.ownerReferences"),
        ("another generateName", MERGE, "", metadata("generateName", json!("b-")), "metadata.generateName"),
        ("an image", STRATEGIC, "", image, "spec"),
        ("a deadline", MERGE, "", json!({"spec": {"activeDeadlineSeconds": 1}}), "spec"),
        ("an annotation", MERGE, "", annotation("a", json!("b")), "metadata.annotations[a]"),
        ("another annotation", MERGE, "", annotation("example.com/kept", json!("b")), kept),
        ("an annotation less", MERGE, "", annotation("example.com/kept", Value::Null), kept),
        ("no annotations", MERGE, "", metadata("annotations", Value::Null), kept),
    ];
    for (what, content_type, rest, patch, changed) in refused {
        let said = format!(
            "an agent may change the annotations {EPOCH}, {STARTED}, {EXIT} and {PROGRESS} alone, not {changed};"
        );
        assert_denied(what, agent.send(content_type, rest, &patch).await, 403, &said);
    }
    let mut both = annotation("example.com/kept", json!("b"));
    json_patch::merge(&mut both, &metadata("labels", json!({"app": "other"})));
    let said = format!("alone, not metadata.labels, {kept};");
    assert_denied("both", agent.merge(&both).await, 403, &said);
    // Too many to be listed.
    let many: Map<String, Value> = (0..200).map(|number| (format!("example.com/number-{number}"), json!(""))).collect();
    let many = agent.merge(&metadata("annotations", Value::Object(many))).await;
    assert_denied(
        "many annotations",
        many,
        403,
        &format!("an agent may change the annotations {EPOCH}, {STARTED}, {EXIT} and {PROGRESS} alone; others"),
    );
    // More than can be compared.
    let more: Map<String, Value> = (0..30_000).map(|number| (format!("{number:x}"), json!(""))).collect();
    let more = agent.merge(&metadata("annotations", Value::Object(more))).await;
    assert_denied("too many to compare", more, 422, "cost limit exceeded");

    assert_forbidden("status", agent.send(MERGE, "/status", &json!({"status": {"phase": "Failed"}})).await);
    let containers = json!({"spec": {"ephemeralContainers": [{"name": "e", "image": "e"}]}});
    assert_forbidden("containers", agent.send(STRATEGIC, "/ephemeralcontainers", &containers).await);
    // What the API server refuses or passes over by itself.
    for patch in [
        json!({"status": {"phase": "Failed"}}),
        metadata("deletionTimestamp", json!("2026-01-01T00:00:00Z")),
        metadata("deletionGracePeriodSeconds", json!(0)),
        metadata("creationTimestamp", json!("2026-01-01T00:00:00Z")),
        metadata("generation", json!(7)),
        metadata("selfLink", json!("a")),
        metadata("uid", json!("a")),
        metadata("name", json!("a")),
        metadata("namespace", json!("default")),
    ] {
        if let Err(error) = agent.merge(&patch).await {
            assert!(matches!(error, kube::Error::Api(_)), "{patch}: {error}");
        }
    }
    let after = space.all_pods().get(&agent.pod.name_any()).await?;
    assert_eq!(after.resource_version(), before.resource_version(), "nothing was written: {before:?} {after:?}");
    Ok(())
}

#[tokio::test]
async fn an_agent_reports_nothing_but_numbers_that_do_not_fall() -> Result<()> {
    let (space, agent) = confined("agents-and-numbers", "default").await?;
    assert_eq!(agent.report(3).await, Input::Reported { epoch: 3 });
    let no_epochs = [
        "",
        "0",
        "-1",
        "+4",
        "04",
        " 4",
        "4 ",
        "4\n",
        "4.0",
        "4e0",
        "0x4",
        "2147483648",
        "4294967300",
        "99999999999999999999",
        "many",
        "٤",
    ];
    for text in no_epochs {
        let said = "must be an epoch, a number from 1 to 2147483647 as in \"7\", not \"";
        assert_denied(&format!("{text:?}"), agent.merge(&epoch(text)).await, 422, said);
    }
    // Too long to be repeated.
    let long = "4".repeat(6000);
    assert_denied(
        "a long one",
        agent.merge(&epoch(long)).await,
        422,
        "must be an epoch, a number from 1 to 2147483647",
    );
    for fallen in ["1", "2"] {
        assert_denied("fallen", agent.merge(&epoch(fallen)).await, 422, &format!("must not fall from 3 to {fallen}: "));
    }
    assert_denied("removed", agent.merge(&epoch(Value::Null)).await, 422, "must be there");
    let applied = agent.send(APPLY, "?fieldManager=agent&force=true", &applied(&agent, &epoch("2"))).await;
    assert_denied("applied", applied, 422, "must not fall from 3 to 2: ");
    assert_eq!(shown(&space, &agent).await?.as_deref(), Some("3"));

    // The agent is told, and goes on asking.
    assert!(matches!(agent.report(2).await, Input::ReportFailed { epoch: 2, .. }));
    Ok(())
}

/// The API server checks the types of every expression against those of a Pod, and leaves warnings in the status.
#[tokio::test]
async fn the_policy_is_sound() -> Result<()> {
    let space = Space::new("agents-policy").await?;
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(space.client.clone());
    let checked = wait::until_met(LIMIT, "the policy to be checked", || async {
        let policy = policies.get("jobset-agent").await?;
        let status = policy.status.context("no status")?;
        let current = status.observed_generation == policy.metadata.generation;
        Ok(if current { Check::Met(status) } else { Check::Unmet(format!("{status:?}")) })
    })
    .await?;
    let warnings = checked.type_checking.and_then(|it| it.expression_warnings).unwrap_or_default();
    assert!(warnings.is_empty(), "{warnings:#?}");
    Ok(())
}
