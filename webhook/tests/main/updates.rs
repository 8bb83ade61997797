//! Changes of JobSets, as people, queueing systems and autoscalers make them, decided by a real API server and the
//! service that it calls.

use anyhow::Result;
use jobset_api::JobSet;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::api_server::{good, refusal};
use crate::cluster::Plane;

const POD: &str = "/replicatedJobs/0/template/spec/template";

/// `size` has a case for each way in which one grows.
#[tokio::test]
async fn jobsets_above_limits_are_rejected_and_existing_stay_editable() -> Result<()> {
    let plane = Plane::start().await?;
    // Of so many Jobs with so many Pods, whose template has so many volumes.
    let of_size = |name: &str, jobs: i32, pods: i32, volumes: usize| {
        let mut jobset = good(name);
        let job = &mut jobset["spec"]["replicatedJobs"][0];
        (job["replicas"], job["template"]["spec"]["parallelism"]) = (json!(jobs), json!(pods));
        job["template"]["spec"]["completions"] = json!(pods);
        job["template"]["spec"]["completionMode"] = json!("Indexed");
        let volume = |number: usize| json!({ "name": format!("v{number}") });
        job["template"]["spec"]["template"]["spec"]["volumes"] = (0..volumes).map(volume).collect();
        jobset
    };
    plane.create(&of_size("older", 6, 10, 400)).await?;
    let limits = ["--max-jobs-per-jobset=5", "--max-pods-per-jobset=50", "--max-memory-per-jobset=1"];
    let replica = plane.admission_with(&limits).await?;
    plane.create(&of_size("largest", 5, 10, 200)).await?;
    let rejected = |status: kube::core::Status, expected: &str| {
        assert!(status.code == 422 && status.message.contains(expected), "{}", status.message);
    };
    let jobs = |jobs: i32| {
        format!(
            "spec.replicatedJobs: Invalid value: {jobs}: the replicas of all replicatedJobs together must not exceed 5, the limit \
             of this cluster (--max-jobs-per-jobset of the webhook)"
        )
    };
    let pods =
        |pods: i32| format!("spec.replicatedJobs[0]: Invalid value: {pods}: the Pods of all replicatedJobs together");
    let memory =
        "spec.replicatedJobs[0].template.spec.template.spec.volumes: Too many: 400: the specification would take";
    rejected(refusal(plane.create(&of_size("jobs", 6, 1, 1)).await), &jobs(6));
    rejected(refusal(plane.create(&of_size("pods", 1, 51, 1)).await), &pods(51));
    rejected(refusal(plane.create(&of_size("memory", 1, 1, 400)).await), memory);

    let jobsets = plane.jobsets();
    let resized = async |jobs: i32, pods: i32| {
        let pointer = |field: &str| format!("/spec/replicatedJobs/0/{field}");
        let replace = |field: &str, value: i32| json!({ "op": "replace", "path": pointer(field), "value": value });
        let pods = ["parallelism", "completions"].map(|field| replace(&format!("template/spec/{field}"), pods));
        let patch = serde_json::from_value(json!([replace("replicas", jobs), pods[0], pods[1]])).unwrap();
        jobsets.patch("older", &PatchParams::default(), &Patch::Json::<()>(patch)).await
    };
    rejected(refusal(resized(7, 8).await), &jobs(7));
    rejected(refusal(resized(6, 11).await), &pods(66));
    for size in [(6, 10), (6, 9), (5, 10)] {
        assert_eq!(resized(size.0, size.1).await?.spec.expected_pods(), i64::from(size.0 * size.1));
    }
    rejected(refusal(resized(6, 1).await), &jobs(6));
    let suspended = merge(&jobsets, "older", &json!({ "suspend": true })).await?;
    assert!(suspended.spec.is_suspended());
    plane.end(replica).await
}

#[tokio::test]
async fn immutable_fields_are_rejected_by_name() -> Result<()> {
    let plane = Plane::start().await?;
    let gates = "--feature-gates=MutablePodResourcesForSuspendedJobSets=true,JobSetActiveDeadlineSeconds=true";
    let replica = plane.admission_with(&[gates]).await?;
    a_suspended_jobset_is_moved_and_moved_back(&plane).await?;
    resources_change_while_suspended_and_nothing_else_of_containers(&plane).await?;
    the_deadline_of_a_running_jobset_changes(&plane).await?;
    a_manifest_of_one_number_is_resized(&plane).await?;
    plane.end(replica).await
}

/// What Kueue does, and how: its client is written in Go and sends all replicatedJobs as Go writes them.
async fn a_suspended_jobset_is_moved_and_moved_back(plane: &Plane) -> Result<()> {
    let mut jobset = good("queued");
    jobset["spec"]["suspend"] = json!(true);
    plane.create(&jobset).await?;
    let jobsets = plane.jobsets();
    let original = as_go_writes(&jobsets.get("queued").await?)?;

    let mut admitted = original.clone();
    admitted["suspend"] = json!(false);
    *admitted.pointer_mut(&format!("{POD}/metadata")).unwrap() = json!({ "labels": { "flavor": "spot" } });
    let pod = admitted.pointer_mut(&format!("{POD}/spec")).unwrap();
    pod["nodeSelector"] = json!({ "flavor": "spot" });
    pod["tolerations"] = json!([{ "key": "spot", "operator": "Exists" }]);
    pod["schedulingGates"] = json!([{ "name": "example.com/topology" }]);
    pod["containers"][0]["resources"] = json!({ "requests": { "cpu": "2" } });
    let running = merge(&jobsets, "queued", &admitted).await?;
    assert_eq!(running.spec.suspend, Some(false));

    // While it runs, nobody moves it.
    let mut moved = admitted.clone();
    moved.pointer_mut(&format!("{POD}/spec")).unwrap()["nodeSelector"] = json!({ "flavor": "reserved" });
    let status = refusal(merge(&jobsets, "queued", &moved).await);
    let field = "spec.replicatedJobs[0].template.spec.template.spec.nodeSelector.flavor";
    let expected = format!(
        "{field}: Invalid value: \"reserved\": field is immutable: must stay \"spot\", while the JobSet runs: set spec.suspend"
    );
    assert!(status.code == 422 && status.message.contains(&expected), "{}", status.message);

    // Evicted, and what was added is taken back in the same write.
    let evicted = merge(&jobsets, "queued", &original).await?;
    assert_eq!(as_go_writes(&evicted)?, original);

    // What the Pods are stays, suspended or not.
    let mut other = original.clone();
    other.pointer_mut(&format!("{POD}/spec/containers/0")).unwrap()["image"] = json!("other");
    let status = refusal(merge(&jobsets, "queued", &other).await);
    let causes: Vec<_> = status.details.unwrap().causes.into_iter().map(|cause| cause.field).collect();
    assert_eq!(causes, ["spec.replicatedJobs[0].template.spec.template.spec.containers[0].image"]);
    Ok(())
}

/// As a queue patches them: requests and limits of each container, the agent's as well.
async fn resources_change_while_suspended_and_nothing_else_of_containers(plane: &Plane) -> Result<()> {
    let mut jobset = good("sized-for-quota");
    jobset["spec"]["suspend"] = json!(true);
    let pod = jobset.pointer_mut(&format!("/spec{POD}/spec")).unwrap();
    pod["resourceClaims"] = json!([{ "name": "gpu", "resourceClaimName": "gpu" }]);
    pod["containers"][0]["resources"] = json!({ "claims": [{ "name": "gpu" }] });
    plane.create(&jobset).await?;
    let jobsets = plane.jobsets();
    let set = async |list: &str, field: &str, value: &Value| {
        let mut spec = serde_json::to_value(jobsets.get("sized-for-quota").await.unwrap().spec).unwrap();
        spec.pointer_mut(&format!("{POD}/spec/{list}/0")).unwrap()[field] = value.clone();
        merge(&jobsets, "sized-for-quota", &spec).await
    };
    let worker = json!({ "claims": [{ "name": "gpu" }], "requests": { "cpu": "2" }, "limits": { "memory": "1Gi" } });
    set("containers", "resources", &worker).await?;
    set("initContainers", "resources", &json!({ "requests": { "cpu": "10m" } })).await?;
    let field = |list: &str, of: &str| format!("spec.replicatedJobs[0].template.spec.template.spec.{list}[0].{of}: ");
    let rejected = async |list: &str, name: &str, value: Value, at: &str| {
        let status = refusal(set(list, name, &value).await);
        let expected = field(list, at);
        assert!(status.code == 422 && status.message.contains(&expected), "{expected}\n{}", status.message);
        status.message
    };
    rejected("containers", "resources", json!({ "requests": { "cpu": "2" } }), "resources.claims").await;
    rejected("initContainers", "image", json!("other"), "image").await;
    merge(&jobsets, "sized-for-quota", &json!({ "suspend": false })).await?;
    let more = json!({ "claims": [{ "name": "gpu" }], "requests": { "cpu": "3" }, "limits": { "memory": "1Gi" } });
    let message = rejected("containers", "resources", more, "resources.requests.cpu").await;
    assert!(message.contains("while the JobSet runs: set spec.suspend to true"), "{message}");
    Ok(())
}

async fn the_deadline_of_a_running_jobset_changes(plane: &Plane) -> Result<()> {
    plane.create(&good("limited")).await?;
    let jobsets = plane.jobsets();
    for seconds in [json!(60), json!(3600), json!(1), Value::Null, json!(i64::MAX)] {
        let spec = merge(&jobsets, "limited", &json!({ "activeDeadlineSeconds": seconds })).await?.spec;
        assert_eq!(spec.active_deadline_seconds, seconds.as_i64());
    }
    let status = refusal(merge(&jobsets, "limited", &json!({ "activeDeadlineSeconds": 0 })).await);
    assert!(status.message.contains("should be greater than or equal to 1"), "{}", status.message);
    Ok(())
}

/// In place, completions follow parallelism where the manifest never named them.
async fn a_manifest_of_one_number_is_resized(plane: &Plane) -> Result<()> {
    let mut manifest = good("sized");
    let job = "/spec/replicatedJobs/0/template/spec";
    manifest.pointer_mut(job).unwrap().as_object_mut().unwrap().remove("completions");
    let file = plane.plane.dir().join("sized.json");
    for workers in [2, 3] {
        manifest.pointer_mut(job).unwrap()["parallelism"] = json!(workers);
        std::fs::write(&file, manifest.to_string())?;
        plane.kubectl(&["apply", "-f", &file.to_string_lossy()]).await?;
        let stored = plane.jobsets().get("sized").await?.spec.replicated_jobs.remove(0).template.spec;
        assert_eq!((stored.parallelism, stored.completions), (Some(workers), Some(workers)));
    }
    Ok(())
}

async fn merge(jobsets: &Api<JobSet>, name: &str, spec: &Value) -> kube::Result<JobSet> {
    jobsets.patch(name, &PatchParams::default(), &Patch::Merge(json!({ "spec": spec }))).await
}

/// The specification as a client in Go sends it back.
fn as_go_writes(jobset: &JobSet) -> Result<Value> {
    let mut spec = serde_json::to_value(&jobset.spec)?;
    for job in spec["replicatedJobs"].as_array_mut().unwrap() {
        job["template"]["metadata"] = json!({ "creationTimestamp": null });
        let pod = &mut job["template"]["spec"]["template"];
        pod["metadata"] = json!({ "creationTimestamp": null });
        // A merge patch removes nothing but what it names.
        pod["spec"]["nodeSelector"] = Value::Null;
        for containers in ["initContainers", "containers"] {
            for container in pod["spec"][containers].as_array_mut().unwrap() {
                container["resources"] = json!({});
            }
        }
    }
    Ok(spec)
}
