//! A tenant cannot keep JobSets out of their topology domains by a forged label.

use anyhow::{Context as _, Result};
use jobset_harness::wait::{self, Check};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};

use crate::api_server::refusal;
use crate::cluster::{LIMIT, Plane};
use crate::exclusive::Space;

const KEY: &str = "jobset.sigs.k8s.io/job-key";

/// A client of a user who may do in the namespace what the role `admin` allows.
async fn tenant(space: &Space) -> Result<Client> {
    let bindings: Api<RoleBinding> = Api::namespaced(space.client.clone(), space.namespace);
    let binding = json!({
        "metadata": { "name": "tenant" },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin" },
        "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "tenant" }],
    });
    bindings.create(&PostParams::default(), &serde_json::from_value(binding)?).await?;
    let mut config = space.plane.plane.client_config();
    config.auth_info.impersonate = Some("tenant".to_owned());
    Ok(Client::try_from(config)?)
}

/// A Pod or a Job with these labels in its metadata or template.
fn labelled(labels: &Value) -> Value {
    let spec = json!({ "restartPolicy": "Never", "containers": [{ "name": "w", "image": "w" }] });
    json!({ "metadata": { "generateName": "forged-", "labels": labels }, "spec": spec })
}

fn job_of(pod: &Value) -> Value {
    json!({ "metadata": { "generateName": "forged-" }, "spec": {
        "managedBy": "example.com/nobody", "template": { "metadata": { "labels": pod["metadata"]["labels"] }, "spec": pod["spec"] },
    } })
}

#[tokio::test]
async fn tenant_sets_the_label_of_exclusive_placement_is_refused() -> Result<()> {
    let space = Space::alone(Plane::start().await?, "forged").await?;
    let tenant = tenant(&space).await?;
    let (pods, jobs): (Api<Pod>, Api<Job>) =
        (Api::namespaced(tenant.clone(), "forged"), Api::namespaced(tenant, "forged"));
    let params = PostParams::default();
    let forged = labelled(&json!({ KEY: "0123456789", "a": "b" }));
    // The attack works without the policies.
    pods.create(&params, &serde_json::from_value(forged.clone())?).await?;
    space.plane.check_placement().await?;

    let refused = "the label jobset.sigs.k8s.io/job-key is for Pods of the Jobs of JobSets";
    let status = wait::until_met(LIMIT, "a refusal by policy", async || {
        match pods.create(&params, &serde_json::from_value(forged.clone())?).await {
            Ok(_) => Ok(Check::Unmet("it was created".to_owned())),
            error => Ok(Check::Met(refusal(error))),
        }
    })
    .await?;
    assert!(status.message.contains(refused) && status.code == 403, "{status:?}");
    let job = job_of(&forged);
    let status = wait::until_met(LIMIT, "a refusal of a Job", async || {
        match jobs.create(&params, &serde_json::from_value(job.clone())?).await {
            Ok(_) => Ok(Check::Unmet("it was created".to_owned())),
            error => Ok(Check::Met(refusal(error))),
        }
    })
    .await?;
    assert!(
        status.message.contains("of spec.template is for the Jobs of JobSets: tenant may not set it"),
        "{status:?}"
    );

    // Neither does an update bring it in, and everything else goes on.
    let plain = labelled(&json!({ "a": "b" }));
    let pod = pods.create(&params, &serde_json::from_value(plain.clone())?).await?;
    jobs.create(&params, &serde_json::from_value(job_of(&plain))?).await?;
    let patch = |labels: Value| Patch::Merge(json!({ "metadata": { "labels": labels } }));
    let name = pod.name_any();
    let status = refusal(pods.patch(&name, &PatchParams::default(), &patch(json!({ KEY: "0123456789" }))).await);
    assert!(status.message.contains(refused), "{status:?}");
    pods.patch(&name, &PatchParams::default(), &patch(json!({ "a": "c" }))).await?;

    // The Job controller, and who may write the status of JobSets.
    let created = space.create(&forged).await?;
    let labels = created.metadata.labels.context("no labels")?;
    assert_eq!(labels.get(KEY).map(String::as_str), Some("0123456789"));
    let renamed = patch(json!({ "a": "c" }));
    pods.patch(&created.metadata.name.context("no name")?, &PatchParams::default(), &renamed).await?;
    let all: Api<Job> = Api::namespaced(space.client.clone(), "forged");
    all.create(&params, &serde_json::from_value(job)?).await?;
    Ok(())
}
