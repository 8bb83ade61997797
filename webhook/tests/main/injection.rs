//! Agents that are injected, manifests that are written again, and Jobs made of them, on a real API server.

use anyhow::{Context as _, Result};
use jobset_api::agent::uses_relay;
use jobset_api::injection::Shape;
use jobset_api::{JobSet, labels};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{EnvVarSource, Pod};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use crate::api_server::refusal;
use crate::cluster::Plane;

pub(crate) const SHAPES: [&str; 2] = ["Sidecar", "Supervisor"];

/// A manifest of plain workers, as its user keeps it.
pub(crate) fn plain(name: &str, shape: &str) -> Value {
    json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": { "name": name, "namespace": "default", "annotations": { (labels::INJECT_AGENT): shape } },
        "spec": {
            "failurePolicy": { "restartStrategy": "InPlaceRestart", "maxRestarts": 3, "rules": [
                { "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"] }] },
            "replicatedJobs": [{ "name": "workers", "template": { "spec": {
                "parallelism": 2, "completions": 2,
                "podFailurePolicy": { "rules": [
                    { "action": "FailJob", "onExitCodes": { "containerName": "worker", "operator": "In", "values": [42] } }] },
                "template": { "spec": {
                    "initContainers": [{ "name": "setup", "image": "setup:1" }],
                    "containers": [{ "name": "worker", "image": "worker:1", "command": ["train"], "ports": [
                        { "containerPort": 8080 }] }],
                } },
            } } }],
        },
    })
}

const RELAY: &str = "jobset-relay.jobset-system.svc:9443";

#[tokio::test]
async fn injected_agents_stay_whatever_is_written_again() -> Result<()> {
    let plane = Plane::start().await?;
    let registry = ["--agent-image-pull-policy=Always", "--agent-image-pull-secret=registry"];
    let replica = plane.admission_with(&registry).await?;
    for shape in SHAPES {
        let name = shape.to_lowercase();
        an_injected_template_makes_a_pod(&plane, &plain(&format!("{name}-pod"), shape)).await?;
        a_manifest_is_applied_without_its_annotation(&plane, &format!("{name}-bare"), shape).await?;
        a_manifest_is_written_again(&plane, &name, shape).await?;
    }
    what_stands_against_it_is_refused(&plane).await?;
    replica.stop().await?;

    let replica = plane.admission_with(&[&format!("--agent-relay={RELAY}")]).await?;
    for shape in SHAPES {
        let name = format!("{}-relay", shape.to_lowercase());
        an_injected_template_reaches_the_relay(&plane, &plain(&name, shape), shape).await?;
        a_manifest_is_written_again(&plane, &name, shape).await?;
    }
    replica.stop().await?;

    // Without the flag, JobSets that exist keep what they have.
    let replica = plane.admission().await?;
    for shape in SHAPES {
        let name = format!("{}-relay-client", shape.to_lowercase());
        let stored = plane.jobsets().get(&name).await?;
        let again = apply(&plane, &plain(&name, shape), &[]).await?;
        assert_eq!(again.spec.replicated_jobs, stored.spec.replicated_jobs);
        assert!(uses_relay(again.spec.replicated_jobs[0].template.spec.template.spec.as_ref().context("no Pod")?));
    }
    plane.end(replica).await
}

async fn a_manifest_is_written_again(plane: &Plane, name: &str, shape: &str) -> Result<()> {
    a_manifest_is_applied_by_the_client(plane, &format!("{name}-client"), shape).await?;
    a_manifest_is_applied_by_the_server(plane, &format!("{name}-server"), shape).await?;
    a_manifest_is_put(plane, &format!("{name}-put"), shape).await
}

/// The agent's container alone has the address and the volume of the relays, and the API server takes the template for a Job
/// and for a Pod.
async fn an_injected_template_reaches_the_relay(plane: &Plane, manifest: &Value, shape: &str) -> Result<()> {
    let injected = plane.dry_run(manifest).await?;
    let template = injected.spec.replicated_jobs[0].template.spec.clone();
    let job = json!({ "metadata": { "name": injected.name_any() }, "spec": template.to_job_spec() });
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let jobs: Api<Job> = Api::namespaced(plane.client(), "default");
    let job = jobs.create(&dry_run, &serde_json::from_value(job)?).await.context("the Job")?;
    let spec = job.spec.and_then(|it| it.template.spec).context("no Pod template")?;
    assert!(uses_relay(&spec), "{shape}");

    let pod = json!({ "metadata": { "name": injected.name_any() }, "spec": spec });
    let pods: Api<Pod> = Api::namespaced(plane.client(), "default");
    let pod = pods.create(&dry_run, &serde_json::from_value(pod)?).await.context("the Pod")?;
    let spec = pod.spec.context("no specification")?;
    let agent = if shape == "Sidecar" { "jobset-agent" } else { "worker" };
    for container in spec.init_containers.iter().flatten().chain(&spec.containers) {
        let variable = container.env.iter().flatten().find(|it| it.name == "JOBSET_RELAY");
        let mount = container.volume_mounts.iter().flatten().find(|it| it.name == "jobset-relay");
        let found =
            (variable.and_then(|it| it.value.as_deref()), mount.map(|it| (it.mount_path.as_str(), it.read_only)));
        let of_agent = (Some(RELAY), Some(("/var/run/secrets/jobset-relay", Some(true))));
        assert_eq!(found, if container.name == agent { of_agent } else { (None, None) }, "{}", container.name);
    }
    Ok(())
}

/// The names of the init containers of the first replicatedJob.
fn init_containers(jobset: &JobSet) -> Vec<&str> {
    let pod = jobset.spec.replicated_jobs[0].template.spec.template.spec.as_ref();
    pod.into_iter().flat_map(|pod| pod.init_containers.iter().flatten()).map(|it| it.name.as_str()).collect()
}

fn injected(shape: &str) -> Vec<&'static str> {
    match Shape::of(shape) {
        Some(Shape::Sidecar) => vec!["jobset-agent", "setup"],
        Some(Shape::Supervisor) => vec!["jobset-agent-install", "setup"],
        None => vec!["setup"],
    }
}

/// What is made of it is what the API server takes for a Job and for a Pod, and Kubernetes mounts no other token where
/// the agent has its own.
async fn an_injected_template_makes_a_pod(plane: &Plane, manifest: &Value) -> Result<()> {
    let stored = plane.create(manifest).await?;
    let template = stored.spec.replicated_jobs[0].template.spec.clone();
    let job = json!({ "metadata": { "name": stored.name_any() }, "spec": template.to_job_spec() });
    let jobs: Api<Job> = Api::namespaced(plane.client(), "default");
    jobs.create(&PostParams::default(), &serde_json::from_value(job)?).await.context("the Job")?;

    for automount in [true, false] {
        let mut spec = serde_json::to_value(&template.template.spec)?;
        spec["automountServiceAccountToken"] = json!(automount);
        let pod = json!({ "metadata": { "name": format!("{}-{automount}", stored.name_any()) }, "spec": spec });
        let pods: Api<Pod> = Api::namespaced(plane.client(), "default");
        let pod = pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await.context("the Pod")?;
        let spec = pod.spec.context("no specification")?;
        let agent = spec.init_containers.iter().flatten().find(|it| it.name.starts_with("jobset-agent"));
        assert_eq!(agent.and_then(|it| it.image_pull_policy.as_deref()), Some("Always"));
        let secrets: Vec<_> = spec.image_pull_secrets.iter().flatten().map(|it| it.name.as_str()).collect();
        assert_eq!(secrets, ["registry"]);
        let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
        let mounts = containers.flat_map(|it| it.volume_mounts.iter().flatten().map(move |mount| (&it.name, mount)));
        let tokens = mounts.filter(|(_, it)| it.mount_path == "/var/run/secrets/kubernetes.io/serviceaccount");
        let with_agents: Vec<_> =
            tokens.clone().filter(|(_, it)| it.name == "jobset-agent-token").map(|(name, _)| name).collect();
        let others = tokens.filter(|(_, it)| it.name.starts_with("kube-api-access-")).count();
        assert_eq!(with_agents.len(), 1, "{with_agents:?}");
        assert!(["jobset-agent", "worker"].contains(&with_agents[0].as_str()), "{with_agents:?}");
        let all = spec.init_containers.iter().flatten().count() + spec.containers.len();
        assert_eq!(others, if automount { all - 1 } else { 0 }, "each container has one token, if any");
    }
    Ok(())
}

/// Applies the file with `kubectl`; what is stored then.
async fn apply(plane: &Plane, manifest: &Value, flags: &[&str]) -> Result<JobSet> {
    let name = manifest["metadata"]["name"].as_str().context("no name")?;
    let file = plane.plane.dir().join(format!("{name}.json"));
    std::fs::write(&file, manifest.to_string())?;
    let file = file.to_string_lossy();
    plane.kubectl(&[&["apply", "-f", &file], flags].concat()).await?;
    Ok(plane.jobsets().get(name).await?)
}

async fn a_manifest_is_applied_by_the_client(plane: &Plane, name: &str, shape: &str) -> Result<()> {
    let manifest = plain(name, shape);
    let first = apply(plane, &manifest, &[]).await?;
    assert_eq!(init_containers(&first), injected(shape));
    let again = apply(plane, &manifest, &[]).await?;
    assert_eq!(again.spec, first.spec);
    assert_eq!(again.metadata.generation, first.metadata.generation);
    assert_eq!(again.resource_version(), first.resource_version(), "nothing was written");

    // A change of something else goes through.
    let mut suspended = manifest;
    suspended["spec"]["suspend"] = json!(true);
    let suspended = apply(plane, &suspended, &[]).await?;
    assert_eq!(suspended.spec.suspend, Some(true));
    assert_eq!(suspended.spec.replicated_jobs, first.spec.replicated_jobs);
    Ok(())
}

/// The annotation is taken out of the manifest, or changed, which is applied twice: on the second time it is not in the
/// stored object either.
async fn a_manifest_is_applied_without_its_annotation(plane: &Plane, name: &str, shape: &str) -> Result<()> {
    let mut manifest = plain(name, shape);
    let first = apply(plane, &manifest, &[]).await?;
    let other = if shape == "Sidecar" { "Supervisor" } else { "Sidecar" };
    for annotations in [json!({}), json!({ (labels::INJECT_AGENT): other })] {
        manifest["metadata"]["annotations"] = annotations;
        for suspend in [true, false] {
            manifest["spec"]["suspend"] = json!(suspend);
            let applied = apply(plane, &manifest, &[]).await?;
            assert_eq!(applied.spec.suspend, Some(suspend));
            assert_eq!(applied.spec.replicated_jobs, first.spec.replicated_jobs);
        }
    }
    Ok(())
}

async fn a_manifest_is_applied_by_the_server(plane: &Plane, name: &str, shape: &str) -> Result<()> {
    let manifest = plain(name, shape);
    let first = apply(plane, &manifest, &["--server-side"]).await?;
    assert_eq!(init_containers(&first), injected(shape));
    let again = apply(plane, &manifest, &["--server-side"]).await?;
    assert_eq!(again.metadata.generation, first.metadata.generation);
    assert_eq!(again.resource_version(), first.resource_version(), "nothing was written");
    // A trainer that knows of nothing but this field.
    let suspend = json!({ "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "spec": { "suspend": true } });
    let suspended = plane.jobsets().patch(name, &PatchParams::apply("trainer"), &Patch::Apply(suspend)).await?;
    assert_eq!(suspended.spec.suspend, Some(true));
    assert_eq!(suspended.spec.replicated_jobs, first.spec.replicated_jobs);
    Ok(())
}

/// The manifest as a whole, as clients that know no patches write it; from another version of the agent, too.
async fn a_manifest_is_put(plane: &Plane, name: &str, shape: &str) -> Result<()> {
    let manifest = plain(name, shape);
    let first = plane.create(&manifest).await?;
    let mut put: JobSet = serde_json::from_value(manifest)?;
    put.metadata.resource_version.clone_from(&first.metadata.resource_version);
    let again = plane.jobsets().replace(name, &PostParams::default(), &put).await?;
    assert_eq!((&again.spec, again.resource_version()), (&first.spec, first.resource_version()));

    // By a client whose types are older than the files that variables are read from.
    if shape == "Sidecar" {
        let mut older = first.clone();
        let pod = older.spec.replicated_jobs[0].template.spec.template.spec.as_mut().context("no Pod")?;
        let epoch = pod.containers[0].env.iter_mut().flatten().next().context("no epoch")?;
        epoch.value_from = Some(EnvVarSource::default());
        pod.containers[0].restart_policy_rules = None;
        let again = plane.jobsets().replace(name, &PostParams::default(), &older).await?;
        assert_eq!((&again.spec, again.resource_version()), (&first.spec, first.resource_version()));
    }

    // What the user changes is named, and nothing else.
    let pod = put.spec.replicated_jobs[0].template.spec.template.spec.as_mut().context("no Pod")?;
    pod.containers[0].command = Some(vec!["other".to_owned()]);
    let status = refusal(plane.jobsets().replace(name, &PostParams::default(), &put).await);
    let fields: Vec<_> = status.details.context("no details")?.causes.into_iter().map(|cause| cause.field).collect();
    let command = "spec.replicatedJobs[0].template.spec.template.spec.containers[0].command";
    assert_eq!(fields, [format!("{command}[{}]", if shape == "Supervisor" { 3 } else { 0 })]);
    Ok(())
}

async fn what_stands_against_it_is_refused(plane: &Plane) -> Result<()> {
    let mut manifest = plain("refused", "Supervisor");
    let pod = "/spec/replicatedJobs/0/template/spec/template/spec";
    manifest.pointer_mut(pod).unwrap()["hostPID"] = json!(true);
    manifest.pointer_mut(&format!("{pod}/containers/0")).unwrap()["command"] = Value::Null;
    let status = refusal(plane.create(&manifest).await);
    assert_eq!((status.code, status.reason.as_str()), (422, "Invalid"), "{status:?}");
    let causes = status.details.context("no details")?.causes;
    let fields: Vec<_> = causes.iter().map(|cause| cause.field.as_str()).collect();
    let pod = "spec.replicatedJobs[0].template.spec.template.spec";
    // All at once: what stands against the injection, and what is missing without it.
    assert_eq!(fields, ["hostPID", "containers[0].command", "initContainers"].map(|field| format!("{pod}.{field}")));
    Ok(())
}
