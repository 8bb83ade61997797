//! The CustomResourceDefinition on a real API server.

use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use jobset_api::{JobSet, JobSetStatus};
use jobset_harness::workload::{RECREATE, STORY_1, STORY_2};
use jobset_harness::{ControlPlane, install, wait};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::objects::create_strict;
use crate::seat::take_seat;

const LIMIT: Duration = Duration::from_mins(2);
const EVERYTHING: &str = include_str!("../manifests/everything.yaml");

/// The control plane of these tests, with the CRD.
async fn shared() -> Result<&'static ControlPlane> {
    static SHARED: OnceCell<Result<ControlPlane, String>> = OnceCell::const_new();
    let start = || async {
        let plane = ControlPlane::start().await.map_err(|error| format!("{error:#}"))?;
        install::crd(&plane).await.map_err(|error| format!("{error:#}"))?;
        Ok(plane)
    };
    take_seat().await?;
    SHARED.get_or_init(start).await.as_ref().map_err(|error| anyhow!("no control plane: {error}"))
}

fn read(manifest: &str) -> Result<Value> {
    serde_yaml_ng::from_str(manifest).context("not YAML")
}

#[tokio::test]
async fn schema_is_complete_and_strict() -> Result<()> {
    let plane = shared().await?;

    let field =
        "jobset.spec.replicatedJobs.template.spec.template.spec.containers.restartPolicyRules.exitCodes.operator";
    // An API is served a moment before it is listed among the resources.
    let explained = wait::until(LIMIT, "kubectl to know the resource", || async {
        Ok(Some(install::kubectl(plane, &["explain", field]).await?))
    });
    let explained = String::from_utf8_lossy(&explained.await?.stdout).into_owned();
    assert!(explained.contains("relationship between the container exit code"), "{explained}");

    // Everything comes back as it went in, from the API server and through the Rust types.
    let everything = read(EVERYTHING)?;
    let stored = create_strict(&plane.client(), &everything).await?;
    assert_eq!(stored["spec"], everything["spec"]);
    let typed: JobSet = serde_json::from_value(stored.clone())?;
    assert_eq!(serde_json::to_value(&typed)?["spec"], stored["spec"]);

    let columns = install::kubectl(plane, &["get", "jobset", "everything", "-o", "wide"]).await?.stdout;
    let columns = String::from_utf8_lossy(&columns).into_owned();
    for column in
        ["TERMINALSTATE", "RESTARTS", "COMPLETED", "SUSPENDED", "AGE", "STRATEGY", "EPOCH", "BlockingRecreate"]
    {
        assert!(columns.contains(column), "{column}: {columns}");
    }

    for manifest in [STORY_1, STORY_2, RECREATE] {
        create_strict(&plane.client(), &read(manifest)?).await.context("a manifest of the KEPs was refused")?;
    }

    // A typo deep in the template, and values out of range.
    let pod = "/spec/replicatedJobs/0/template/spec/template/spec";
    for (path, key, value, wanted) in [
        (format!("{pod}/containers/0"), "restartPolicyRule", json!([]), "unknown field"),
        (format!("{pod}/containers/0"), "image", json!(7), "must be of type string"),
        ("/spec/replicatedJobs/0".to_owned(), "replicas", json!(-1), "greater than or equal to 0"),
        ("/spec/failurePolicy".to_owned(), "restartStrategy", json!("InPlace"), "Unsupported value"),
        ("/spec/startupPolicy".to_owned(), "startupPolicyOrder", json!("InOrder"), "mutually exclusive"),
    ] {
        let mut wrong = everything.clone();
        wrong["metadata"]["name"] = json!("wrong");
        wrong.pointer_mut(&path).context("no such field")?[key] = value;
        let error = create_strict(&plane.client(), &wrong)
            .await
            .err()
            .with_context(|| format!("{key} was accepted"))?
            .to_string();
        assert!(error.contains(wanted) && error.contains(key.trim_end_matches("Order")), "{key}: {error}");
    }
    Ok(())
}

#[tokio::test]
async fn appliers_of_other_containers_keep_each_others_fields() -> Result<()> {
    let plane = shared().await?;
    let jobsets: Api<JobSet> = Api::default_namespaced(plane.client());
    let jobset = |containers: Value| {
        json!({
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "metadata": {"name": "shared"},
            "spec": {"replicatedJobs": [{"name": "workers", "template": {"spec": {"template": {"spec": {
                "containers": containers,
            }}}}}]},
        })
    };
    let user = json!([{"name": "main", "image": "image", "env": [{"name": "A", "value": "1"}]}]);
    let queue = json!([{"name": "main", "env": [{"name": "B", "value": "2"}]}, {"name": "extra", "image": "image"}]);
    for (manager, containers) in [("user", user.clone()), ("queue", queue), ("user", user)] {
        let patch = Patch::Apply(jobset(containers));
        jobsets.patch("shared", &PatchParams::apply(manager), &patch).await.context(manager)?;
    }
    let stored = serde_json::to_value(jobsets.get("shared").await?)?;
    let containers = &stored["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"];
    assert_eq!(
        containers,
        &json!([
            {"name": "main", "image": "image", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
            {"name": "extra", "image": "image"},
        ])
    );
    Ok(())
}

#[tokio::test]
async fn epochs_that_fall_or_overtake_are_rejected() -> Result<()> {
    let plane = shared().await?;
    let jobsets: Api<JobSet> = Api::default_namespaced(plane.client());
    let mut story = read(STORY_1)?;
    story["metadata"]["name"] = json!("epochs");
    jobsets.create(&PostParams::default(), &serde_json::from_value(story)?).await?;
    let write = async |synced: i32, deprecated: i32| {
        let patch = json!({"status": {"syncedEpoch": synced, "deprecatedEpoch": deprecated}});
        jobsets.patch_status("epochs", &PatchParams::default(), &Patch::Merge(patch)).await.map(drop)
    };
    write(2, 1).await?;
    for (synced, deprecated, wanted) in [
        (1, 1, ["status.syncedEpoch", "must not fall"]),
        (2, 0, ["status.deprecatedEpoch", "must not fall"]),
        (2, 3, ["status", "deprecatedEpoch must not exceed syncedEpoch"]),
    ] {
        let error = write(synced, deprecated).await.err().context("accepted")?.to_string();
        assert!(wanted.iter().all(|part| error.contains(part)), "{error}");
    }
    write(2, 2).await?;

    // The controller of the Go JobSet does not know the fields, and writes the status as a whole.
    let mut taken_over = jobsets.get("epochs").await?;
    taken_over.status = Some(JobSetStatus { restarts: 1, ..JobSetStatus::default() });
    let stored = jobsets.replace_status("epochs", &PostParams::default(), &taken_over).await?.status;
    assert_eq!(stored.map(|status| (status.restarts, status.synced_epoch)), Some((1, 0)));
    Ok(())
}
