//! The manifests of `e2e/manifests`, as users write them: one at least for every feature of the Go JobSet. Each is
//! admitted as it is written, and applied again it changes nothing.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use jobset_harness::{admission, install, paths};
use serde_json::{Value, json};

use crate::answer::{self, Writes};
use crate::cluster::Plane;

const SHARED_TOKEN: &str =
    "spec.replicatedJobs[0].template.spec.template.spec.containers[0]: the worker can use its agent's token";

/// Those that are admitted with warnings, and the beginnings of these.
const WARNED: [(&str, &[&str]); 9] = [
    ("supervised", &[SHARED_TOKEN]),
    ("examples/in-place-main-container", &[SHARED_TOKEN]),
    ("examples/in-place-supervisor", &[SHARED_TOKEN]),
    (
        "examples/in-place-big-container",
        &[
            SHARED_TOKEN,
            "spec.replicatedJobs[0].template.spec.template.spec.containers[0].restartPolicyRules: no exit code restarts this",
        ],
    ),
    (
        "examples/in-place-sidecar",
        &[
            "spec.replicatedJobs[0].template.spec.template.spec.initContainers[0].startupProbe.failureThreshold: after 600 s",
        ],
    ),
    // As the Go JobSet has them: nobody says how often their workers restart alone.
    (
        "examples/depends-on-several",
        &["spec.replicatedJobs[2].template.spec.template.spec.restartPolicy: is OnFailure"],
    ),
    (
        "examples/volume-claims-shared",
        &["spec.replicatedJobs[1].template.spec.template.spec.restartPolicy: is OnFailure"],
    ),
    ("breakable", &[SHARED_TOKEN]),
    (
        "everything",
        &[
            "spec.replicatedJobs[0].template.spec.ttlSecondsAfterFinished: has no effect",
            "spec.replicatedJobs[1].template.spec.template.spec.restartPolicy: is OnFailure",
            "spec.replicatedJobs[0].template.spec.scheduling: has no effect",
        ],
    ),
];
/// Where the manifests are that `kubectl` applies: together they show every feature, each under a name of its own.
const APPLIED: [&str; 2] = ["examples/", "features/"];

/// The manifests below the folder, by their path there without its end.
fn manifests(folder: &Path, begin: &str) -> Result<BTreeMap<String, Value>> {
    let mut found = BTreeMap::new();
    for file in std::fs::read_dir(folder)? {
        let path = file?.path();
        let name = format!("{begin}{}", path.file_stem().unwrap_or_default().to_string_lossy());
        if path.is_dir() {
            found.extend(manifests(&path, &format!("{name}/"))?);
        } else {
            let text =
                std::fs::read_to_string(&path)?.replace("WORKER_IMAGE", "worker").replace("AGENT_IMAGE", "agent");
            found.insert(name.clone(), serde_yaml_ng::from_str(&text).context(name)?);
        }
    }
    Ok(found)
}

#[tokio::test]
async fn every_manifest_is_admitted_and_applied_again_it_changes_nothing() -> Result<()> {
    let manifests = manifests(&paths::workspace().join("e2e/manifests"), "")?;
    let plane = Plane::start().await?;
    let replica = plane.admission().await?;
    let writes = Writes(plane.client());
    for (name, manifest) in &manifests {
        let answer = writes.dry_run(manifest).await?;
        assert!(answer.is_accepted(), "{name}: {}", answer.object["message"]);
        let expected = WARNED.iter().find(|(warned, _)| warned == name).map_or(&[][..], |(_, warnings)| warnings);
        let found: Vec<_> =
            answer.warnings.iter().zip(expected).map(|(found, begin)| found.starts_with(begin)).collect();
        let as_expected = answer.warnings.len() == expected.len() && found.iter().all(|it| *it);
        assert!(as_expected, "{name}: expected {expected:?}, found {:?}", answer.warnings);
    }

    let is_applied = |name: &str| APPLIED.iter().any(|folder| name.starts_with(folder));
    // By the client, a list that leaves anything open is sent without what admission has filled in.
    let features = manifests.iter().filter(|(name, _)| is_applied(name));
    let features: Vec<_> = features.map(|(_, manifest)| manifest.clone()).collect();
    plane.kubectl(&["create", "namespace", "clients"]).await?;
    applied_twice(&plane, "clients", &[], &features).await?;
    let applied = manifests.into_iter().filter(|(name, _)| is_applied(name));
    let applied: Vec<_> = applied.map(|(_, manifest)| manifest).collect();
    applied_twice(&plane, "default", &["--server-side"], &applied).await?;
    for manifest in &applied {
        suspended_by_a_queue(&writes, manifest).await.with_context(|| answer::name(manifest).to_owned())?;
    }
    let elastic = applied.iter().find(|manifest| answer::name(manifest) == "elastic").context("no manifest to move")?;
    moved_by_a_queue(&writes, elastic).await?;
    plane.end(replica).await
}

/// `kubectl apply`, by the client or by the server, two times: the second changes nothing.
async fn applied_twice(plane: &Plane, namespace: &str, flags: &[&str], manifests: &[Value]) -> Result<()> {
    let file = admission::write(&plane.plane, "manifests.yaml", manifests)?;
    let apply = [&["apply", "-n", namespace, "-f", &file], flags].concat();
    let versions =
        ["get", "jobsets", "-n", namespace, "-o", "custom-columns=:.metadata.name,:.metadata.resourceVersion"];
    let mut seen = Vec::new();
    for _ in 0..2 {
        plane.kubectl(&apply).await?;
        let versions = install::kubectl(&plane.plane, &versions).await?;
        seen.push(String::from_utf8_lossy(&versions.stdout).into_owned());
    }
    assert_eq!(seen[0], seen[1]);
    assert_eq!(seen[0].split_whitespace().count(), 2 * manifests.len(), "{}", seen[0]);
    Ok(())
}

/// A queue knows of nothing but one field. What it applies takes nothing away, and its owner's manifest goes on to hold.
async fn suspended_by_a_queue(writes: &Writes, manifest: &Value) -> Result<()> {
    let before = writes.read(manifest).await?;
    let suspend = json!({ "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": { "name": manifest["metadata"]["name"] }, "spec": { "suspend": true } });
    let suspended = writes.apply("queue", &suspend).await?.accepted()?;
    let mut expected = before["spec"].clone();
    expected["suspend"] = json!(true);
    assert_eq!(suspended["spec"], expected);
    assert_eq!(suspended["metadata"]["annotations"], before["metadata"]["annotations"]);
    let again = writes.apply("kubectl", manifest).await?.accepted()?;
    assert_eq!(but_for_its_managers(again), but_for_its_managers(suspended));
    Ok(())
}

/// The object without the list of who manages it. The API server sorts that by the second of the last apply, and counts
/// another order as a change.
fn but_for_its_managers(mut object: Value) -> Value {
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("managedFields");
        metadata.remove("resourceVersion");
    }
    object
}

/// A queue says where the Pods of a suspended JobSet run; its owner applies the manifest again, and both hold.
async fn moved_by_a_queue(writes: &Writes, manifest: &Value) -> Result<()> {
    let place = |suspend: bool, flavor: &str| {
        json!({ "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": { "name": "elastic" }, "spec": {
            "suspend": suspend, "replicatedJobs": [{ "name": "workers", "template": { "spec": { "template": { "spec": {
                "nodeSelector": { "flavor": flavor } } } } } }] } })
    };
    let flavor = "/spec/replicatedJobs/0/template/spec/template/spec/nodeSelector/flavor";
    let moved = writes.apply("queue", &place(false, "spot")).await?.accepted()?;
    assert_eq!(moved.pointer(flavor), Some(&json!("spot")));
    let again = writes.apply("kubectl", manifest).await?.accepted()?;
    assert_eq!(again["spec"], moved["spec"]);
    let other = writes.apply("queue", &place(false, "reserved")).await?;
    assert!(other.is_denied() && other.code == 422, "moved while it runs: {other:?}");
    let back = writes.apply("queue", &place(true, "reserved")).await?.accepted()?;
    assert_eq!(back.pointer(flavor), Some(&json!("reserved")));
    Ok(())
}
