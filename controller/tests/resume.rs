//! A suspended Job that is resumed for another admission, as a queue does it.

use anyhow::Result;
use jobset_api::{JobSet, RestartStrategy};
use jobset_harness::wait::{self, Check};
use jobset_harness::{ControlPlane, install};
use jobset_rules::build::{self, Attempt, JobPlace};
use jobset_store::PriorityClasses;
use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::fixture::LIMIT;

const JOB: &str = "train-w-0";

async fn seen(jobs: &Api<Job>, what: &str, holds: impl Fn(&Job) -> bool) -> Result<Job> {
    wait::until_met(LIMIT, what, || async {
        let job = jobs.get(JOB).await?;
        Ok(if holds(&job) { Check::Met(job) } else { Check::Unmet(format!("{:?}", job.status)) })
    })
    .await
}

fn has_a_pod(job: &Job) -> bool {
    job.status.as_ref().is_some_and(|status| status.active == Some(1))
}

/// The only Job of a JobSet whose template was filled in so for its admission.
fn admitted(jobset_uid: &str, annotations: &Value, pod: &Value) -> Result<Job> {
    let jobset: JobSet = serde_json::from_value(json!({
        "metadata": {"name": "train", "namespace": "default", "uid": jobset_uid},
        "spec": {"replicatedJobs": [{"name": "w", "template": {"spec": {
            "template": {"metadata": {"annotations": annotations}, "spec": pod},
        }}}]},
    }))?;
    let place = JobPlace { group_index: 0, job_index: 0 };
    let classes = PriorityClasses::default();
    let desired = build::DesiredJob::of(&jobset, place, Attempt::default(), RestartStrategy::Recreate, &classes);
    Ok(build::job(&jobset, &desired))
}

#[tokio::test]
async fn resumed_job_drops_last_admission_keeps_foreign_fields() -> Result<()> {
    let plane = ControlPlane::start().await?;
    install::crd(&plane).await?;
    let jobs: Api<Job> = Api::default_namespaced(plane.client());
    let jobsets: Api<JobSet> = Api::default_namespaced(plane.client());
    // The owner of the Job, without which the garbage collector would delete it. Nobody works on it.
    let owner = serde_json::from_value(json!({"metadata": {"name": "train"}, "spec": {}}))?;
    let owner = jobsets.create(&PostParams::default(), &owner).await?.metadata.uid.unwrap_or_default();

    let mut first = admitted(
        &owner,
        &json!({"queue.example.com/flavor": "a"}),
        &json!({
            "restartPolicy": "Never",
            "nodeSelector": {"flavor": "a"},
            "tolerations": [{"key": "flavor-a", "operator": "Exists"}],
            "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "1"}}}],
        }),
    )?;
    // As mutating admission of Jobs may do it.
    let template = &mut first.spec.get_or_insert_default().template;
    let annotations = template.metadata.get_or_insert_default().annotations.get_or_insert_default();
    annotations.insert("mesh.example.com/on".to_owned(), "true".to_owned());
    template.spec.get_or_insert_default().node_selector.get_or_insert_default().insert("arch".into(), "amd64".into());
    jobs.create(&PostParams::default(), &first).await?;
    seen(&jobs, "a Pod", has_a_pod).await?;
    let suspend = Patch::Merge(json!({"spec": {"suspend": true}}));
    jobs.patch(JOB, &PatchParams::default(), &suspend).await?;
    let suspended = seen(&jobs, "the Job to be suspended", |job| {
        let status = job.status.clone().unwrap_or_default();
        let mut conditions = status.conditions.iter().flatten();
        status.active.unwrap_or(0) == 0 && conditions.any(|of| of.type_ == "Suspended" && of.status == "True")
    })
    .await?;

    let second = admitted(
        &owner,
        &json!({}),
        &json!({
            "restartPolicy": "Never",
            "nodeSelector": {"zone": "b"},
            "containers": [{"name": "main", "image": "none", "resources": {"requests": {"cpu": "0.5"}}}],
        }),
    )?;
    let patch = build::resume(&suspended, &second, true);
    let resumed = jobs.patch(JOB, &PatchParams::default(), &Patch::Json::<()>(patch.clone())).await?;
    let stored = serde_json::to_value(&resumed)?;
    let mut built = serde_json::to_value(&second)?;
    built["spec"]["template"]["metadata"]["annotations"]["mesh.example.com/on"] = json!("true");
    assert_eq!(stored["spec"]["suspend"], json!(false));
    assert_eq!(
        stored["spec"]["template"]["metadata"]["annotations"],
        built["spec"]["template"]["metadata"]["annotations"]
    );
    let pod = &stored["spec"]["template"]["spec"];
    assert_eq!(
        json!([pod["nodeSelector"], pod["tolerations"], pod["containers"][0]["resources"]]),
        json!([{"arch": "amd64", "zone": "b"}, null, {"requests": {"cpu": "500m"}}]),
    );
    let labels = stored["spec"]["template"]["metadata"]["labels"].clone();
    assert_eq!(labels["batch.kubernetes.io/controller-uid"], stored["metadata"]["uid"]);
    seen(&jobs, "a Pod of the new template", has_a_pod).await?;

    // Sent again, and made again although the API server writes the quantity in another form: nothing changes.
    for again in [patch, build::resume(&resumed, &second, true)] {
        let unchanged = jobs.patch(JOB, &PatchParams::default(), &Patch::Json::<()>(again)).await?;
        assert_eq!(unchanged.metadata.generation, resumed.metadata.generation);
    }
    plane.stop().await
}
