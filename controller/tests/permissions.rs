//! The role of injected agents: the controller gives it without holding it, and no other.

use anyhow::{Context, Result};
use jobset_agent::decide::Input;
use jobset_api::conditions::CHILD_REFUSED;
use jobset_harness::wait::{self, Check};
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::agents::Agent;
use crate::fixture::{Fixture, LIMIT, Space, in_place, next};
use crate::jobsets::with;
use crate::program::{NAMESPACE, permit_agents};

/// A JobSet of injected agents, as admission leaves it.
fn injected(name: &str, account: &str) -> Value {
    let mut jobset = with(
        in_place(name, 1, 3),
        &json!({"metadata": {"annotations": {"jobset.sigs.k8s.io/inject-agent": "Sidecar"}}}),
    );
    let template = &mut jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"];
    template["serviceAccountName"] = json!(account);
    jobset
}

fn bindings(space: &Space) -> Api<RoleBinding> {
    Api::default_namespaced(space.client.clone())
}

/// Whether a ServiceAccount may do this in its namespace.
async fn may(space: &Space, account: &str, verb: &str, group: &str, resource: &str) -> Result<bool> {
    let reviews: Api<SubjectAccessReview> = Api::all(space.client.clone());
    let what = json!({"namespace": space.namespace, "verb": verb, "group": group, "resource": resource});
    let review = json!({"spec": {"user": format!("system:serviceaccount:{account}"), "resourceAttributes": what}});
    let answer = reviews.create(&PostParams::default(), &serde_json::from_value(review)?).await?;
    Ok(answer.status.context("no answer")?.allowed)
}

#[tokio::test]
async fn agents_get_role_that_controller_does_not_hold() -> Result<()> {
    let fixture = Fixture::start().await?;
    permit_agents(&fixture.plane).await?;
    let controller = format!("{NAMESPACE}:jobset-controller");
    let holds = may(&fixture, &controller, "report", "agents.jobset.x-k8s.io", "epochs").await?;
    assert!(!holds, "what it gives away, it does not hold");
    let agent = "default:default";
    assert!(!may(&fixture, agent, "patch", "", "pods").await?);

    let uid = fixture.create(injected("train", "default")).await?.uid().context("no UID")?;
    let pod = fixture.pods("train", 1, "0").await?.remove(0);
    // It is created beside the Job.
    let created = || async { bindings(&fixture).get_opt("train-jobset-agent").await.map_err(Into::into) };
    let binding = wait::until(LIMIT, "the RoleBinding", created).await?;
    let owner = &binding.owner_references()[0];
    assert_eq!((owner.uid.as_str(), owner.controller), (uid.as_str(), Some(true)), "it goes with the JobSet");
    assert_eq!((binding.role_ref.kind.as_str(), binding.role_ref.name.as_str()), ("ClusterRole", "jobset-agent"));
    let subjects: Vec<_> = binding.subjects.iter().flatten().map(|it| (it.kind.as_str(), it.name.as_str())).collect();
    assert_eq!(subjects, [("ServiceAccount", "default")]);
    wait::until(LIMIT, "the agent to be let in", || async {
        Ok(may(&fixture, agent, "patch", "", "pods").await?.then_some(()))
    })
    .await?;
    assert!(may(&fixture, agent, "watch", "jobset.x-k8s.io", "jobsets").await?);
    assert!(!may(&fixture, agent, "delete", "", "pods").await?);

    // And no further than to its Pod's epoch.
    let agent = Agent::of(&fixture, pod).await?;
    agent.is_confined().await?;
    let mut history = fixture.history("train").await?;
    assert_eq!(agent.report(1).await, Input::Reported { epoch: 1 });
    while next(&mut history).await?.status.is_none_or(|status| status.synced_epoch < 1) {}

    // Somebody deletes it.
    bindings(&fixture).delete("train-jobset-agent", &DeleteParams::default()).await?;
    wait::until(LIMIT, "another RoleBinding", || async {
        let found = bindings(&fixture).get_opt("train-jobset-agent").await?;
        Ok(found.filter(|found| found.uid() != binding.uid()))
    })
    .await?;
    Ok(())
}

#[tokio::test]
async fn role_is_bound_only_while_agent_policy_is_enforced() -> Result<()> {
    let fixture = Fixture::start().await?;
    fixture.create(injected("train", "default")).await?;
    let condition = fixture.condition("train", CHILD_REFUSED, "True").await?;
    let begin = "cannot create the RoleBinding of the agents: the ValidatingAdmissionPolicy does not exist. ";
    assert!(condition.message.starts_with(begin), "{}", condition.message);
    let note = fixture.note("AgentPolicyMissing", "the ValidatingAdmissionPolicy does not exist").await?;
    assert_eq!(note, condition.message);
    assert!(bindings(&fixture).get_opt("train-jobset-agent").await?.is_none());

    permit_agents(&fixture.plane).await?;
    wait::until(LIMIT, "the RoleBinding", || async { Ok(bindings(&fixture).get_opt("train-jobset-agent").await?) })
        .await?;
    fixture.condition("train", CHILD_REFUSED, "False").await?;

    let policies: Api<ValidatingAdmissionPolicy> = Api::all(fixture.client.clone());
    let policy_bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(fixture.client.clone());
    let nobody = json!([{"name": "agent", "expression": "false"}]);
    let audit = json!([{"key": "who", "valueExpression": "request.userInfo.username"}]);
    let (labels, unmatched) = (json!({"a": "b"}), "does not match all agents");
    let rule = |operation, resource| json!({"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": [resource]});
    let changes = [
        ("ignored", json!({"failurePolicy": "Ignore"}), "does not fail closed"),
        ("elsewhere", json!({"matchConditions": nobody}), unmatched),
        ("harmless", json!({"validations": [], "auditAnnotations": audit}), "has no validations"),
        ("labelled", json!({"matchConstraints": {"objectSelector": {"matchLabels": labels}}}), unmatched),
        ("spaced", json!({"matchConstraints": {"namespaceSelector": {"matchLabels": labels}}}), unmatched),
        ("created", json!({"matchConstraints": {"resourceRules": [rule("CREATE", "pods")]}}), unmatched),
        ("services", json!({"matchConstraints": {"resourceRules": [rule("UPDATE", "services")]}}), unmatched),
        ("excluded", json!({"matchConstraints": {"excludeResourceRules": [rule("UPDATE", "pods")]}}), unmatched),
    ];
    for (name, change, told) in changes {
        let mut shipped = policies.get("jobset-agent").await?;
        (shipped.metadata.resource_version, shipped.metadata.uid) = (None, None);
        let patch = Patch::Merge(json!({"spec": change}));
        policies.patch("jobset-agent", &PatchParams::default(), &patch).await?;
        refused_because(&fixture, name, &format!("the ValidatingAdmissionPolicy {told}")).await?;
        // A merge would leave what was added.
        policies.delete("jobset-agent", &DeleteParams::default()).await?;
        policies.create(&PostParams::default(), &ValidatingAdmissionPolicy { status: None, ..shipped }).await?;
    }
    fixture.create(injected("again", "default")).await?;
    wait::until(LIMIT, "the RoleBinding", || async { Ok(bindings(&fixture).get_opt("again-jobset-agent").await?) })
        .await?;

    let audited = Patch::Merge(json!({"spec": {"validationActions": ["Audit"]}}));
    policy_bindings.patch("jobset-agent", &PatchParams::default(), &audited).await?;
    refused_because(&fixture, "audited", "its ValidatingAdmissionPolicyBinding does not deny").await?;
    policy_bindings.delete("jobset-agent", &DeleteParams::default()).await?;
    refused_because(&fixture, "unbound", "its ValidatingAdmissionPolicyBinding does not exist").await
}

/// The agents of a new JobSet get no role, and the condition and an Event say why.
async fn refused_because(fixture: &Fixture, name: &str, why: &str) -> Result<()> {
    fixture.create(injected(name, "default")).await?;
    let condition = fixture.condition(name, CHILD_REFUSED, "True").await?;
    assert!(condition.message.contains(why), "{name}: {}", condition.message);
    assert_eq!(fixture.note("AgentPolicyMissing", why).await?, condition.message);
    assert!(bindings(fixture).get_opt(&format!("{name}-jobset-agent")).await?.is_none());
    Ok(())
}

#[tokio::test]
async fn another_role_is_refused_named_and_holds_up_nobody() -> Result<()> {
    let fixture = Fixture::start_with(&["--agent-cluster-role", "cluster-admin"]).await?;
    permit_agents(&fixture.plane).await?;
    fixture.create(injected("train", "default")).await?;
    let condition = fixture.condition("train", CHILD_REFUSED, "True").await?;
    let begin = "cannot create RoleBinding default/train-jobset-agent, which the agents need: ";
    assert!(condition.message.starts_with(begin), "{}", condition.message);
    assert!(condition.message.contains("forbidden"), "{}", condition.message);
    // Its Jobs are created all the same, and so are those of others.
    fixture.pods("train", 1, "0").await?;
    fixture.create(in_place("other", 1, 3)).await?;
    fixture.pods("other", 1, "0").await?;
    assert!(bindings(&fixture).get_opt("train-jobset-agent").await?.is_none());
    Ok(())
}

#[tokio::test]
async fn foreign_role_binding_is_named_and_left_alone() -> Result<()> {
    let fixture = Fixture::start().await?;
    permit_agents(&fixture.plane).await?;
    let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"});
    let own = json!({"metadata": {"name": "train-jobset-agent"}, "roleRef": role});
    let own = bindings(&fixture).create(&PostParams::default(), &serde_json::from_value(own)?).await?;
    fixture.create(injected("train", "default")).await?;
    let condition = fixture.condition("train", CHILD_REFUSED, "True").await?;
    let expected =
        "RoleBinding default/train-jobset-agent exists, controlled by nobody: delete it, or rename the JobSet";
    assert_eq!(condition.message, expected);
    assert_eq!(bindings(&fixture).get("train-jobset-agent").await?.resource_version(), own.resource_version());

    // Once it is gone, the JobSet's own takes its place.
    bindings(&fixture).delete("train-jobset-agent", &DeleteParams::default()).await?;
    wait::until_met(LIMIT, "the JobSet's own RoleBinding", || async {
        let found = bindings(&fixture).get_opt("train-jobset-agent").await?;
        Ok(match found {
            Some(found) if !found.owner_references().is_empty() => Check::Met(()),
            found => Check::Unmet(format!("{found:?}")),
        })
    })
    .await?;
    fixture.condition("train", CHILD_REFUSED, "False").await?;
    Ok(())
}
