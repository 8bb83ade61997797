//! JobSets of `webhook/tests/older`, as older releases wrote them and as rules of today would refuse them: stored under a
//! CRD that knows no field, before there was admission. They can be labelled, suspended, resumed and deleted all the same.

use anyhow::{Context as _, Result};
use hyper::Request;
use jobset_harness::{paths, wait};
use serde_json::{Value, json};

use crate::answer::{self, Answer, Writes};
use crate::cluster::{LIMIT, Plane};

const CRD: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/jobsets.jobset.x-k8s.io";
const FINALIZER: &str = "example.com/hold";

/// The objects, by the names of their files.
fn older() -> Result<Vec<(String, Value)>> {
    let mut found = Vec::new();
    for file in std::fs::read_dir(paths::workspace().join("webhook/tests/older"))? {
        let path = file?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        found.push((name.clone(), serde_yaml_ng::from_str(&std::fs::read_to_string(&path)?).context(name)?));
    }
    Ok(found)
}

#[tokio::test]
async fn jobsets_of_older_releases_can_be_updated() -> Result<()> {
    let older = older()?;
    let plane = Plane::start().await?;
    let writes = Writes(plane.client());
    let crd = schema(&plane, &Value::Null).await?;
    for (name, jobset) in &older {
        store(&writes, jobset).await.with_context(|| format!("{name} cannot be stored"))?;
    }
    schema(&plane, &crd).await?;
    let replica = plane.admission().await?;
    let mut failed = Vec::new();
    for (name, jobset) in &older {
        if name.starts_with("refused") {
            assert!(writes.dry_run(jobset).await?.is_denied(), "{name} would be admitted today");
        }
        if let Err(error) = lived(&writes, answer::name(jobset)).await {
            failed.push(format!("{name}: {error:#}"));
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    plane.end(replica).await
}

/// Replaces the schema of the CRD by this one, or by one that keeps whatever is sent. Gives what was there before.
async fn schema(plane: &Plane, crd: &Value) -> Result<Value> {
    let client = plane.client();
    let before: Value = client.request(Request::get(CRD).body(Vec::new())?).await?;
    let open = crd.is_null();
    let mut after = before.clone();
    after["spec"] = crd["spec"].clone();
    if open {
        after["spec"] = before["spec"].clone();
        let anything = json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
        after["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] = json!({
            "apiVersion": { "type": "string" }, "kind": { "type": "string" }, "metadata": { "type": "object" },
            "spec": anything, "status": anything });
    }
    let request = Request::put(CRD).header("content-type", "application/json");
    client.request::<Value>(request.body(after.to_string().into_bytes())?).await?;
    let unknown = json!({ "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": { "name": "probe" },
        "spec": { "unknown": true } });
    wait::until(LIMIT, "the schema to be in force", async || {
        Ok((Writes(client.clone()).dry_run(&unknown).await?.is_accepted() == open).then_some(()))
    })
    .await?;
    Ok(before)
}

async fn store(writes: &Writes, jobset: &Value) -> Result<()> {
    let stored = writes.create(jobset).await?.accepted()?;
    assert_eq!(stored["spec"], jobset["spec"], "nothing is added");
    if !jobset["status"].is_null() {
        writes.status(answer::name(jobset), &jobset["status"]).await?.accepted()?;
    }
    Ok(())
}

/// Does with the JobSet what people, queues and controllers do with one that runs, to its end.
async fn lived(writes: &Writes, name: &str) -> Result<()> {
    let metadata = |metadata: Value| json!({ "metadata": metadata });
    let suspend = |suspend: bool| json!({ "spec": { "suspend": suspend } });
    let merges = [
        ("labelled", metadata(json!({ "labels": { "team": "a" } }))),
        ("annotated", metadata(json!({ "annotations": { "example.com/note": "a" } }))),
        ("given a finalizer", metadata(json!({ "finalizers": [FINALIZER] }))),
        ("freed of it", metadata(json!({ "finalizers": null }))),
        ("suspended", suspend(true)),
        ("resumed", suspend(false)),
    ];
    for (what, patch) in merges {
        writes.merge(name, &patch).await.and_then(Answer::accepted).with_context(|| format!("cannot be {what}"))?;
    }
    // A client that writes whole objects, as those in Go do.
    let read = json!({ "metadata": { "name": name } });
    for suspend in [true, false] {
        let mut jobset = writes.read(&read).await?;
        jobset["spec"]["suspend"] = json!(suspend);
        writes.replace(&jobset).await?.accepted().context("cannot be written as a whole")?;
    }
    let meta = json!({ "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": { "name": name, "labels": { "queue": "b" }, "finalizers": [FINALIZER] } });
    writes.apply("queue", &meta).await?.accepted().context("its metadata cannot be applied")?;
    writes.status(name, &json!({ "restarts": 3 })).await?.accepted().context("its status cannot be written")?;

    writes.delete(name).await?.accepted().context("cannot be deleted")?;
    let deleting = writes.read(&read).await?;
    anyhow::ensure!(deleting["metadata"]["deletionTimestamp"].is_string(), "is not being deleted");
    let label = metadata(json!({ "labels": { "team": "b" } }));
    writes.merge(name, &label).await?.accepted().context("cannot be labelled while it is being deleted")?;
    let free = metadata(json!({ "finalizers": null }));
    writes
        .merge(name, &free)
        .await?
        .accepted()
        .context("cannot be freed of its finalizer while it is being deleted")?;
    anyhow::ensure!(writes.read(&read).await.is_err(), "is still there");
    Ok(())
}
