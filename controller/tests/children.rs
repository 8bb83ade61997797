//! What a JobSet creates, byte for byte as the Go JobSet names and marks it: manifests, dashboards and queueing systems
//! select by these words. Written out here, and not taken from the constants that the controller is built of.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use kube::api::PostParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::fixture::Space;
use crate::jobsets::{feature, group, jobset, with};

/// Those labels or annotations that are a JobSet's, shortened by what is common to all of them.
fn keys(all: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let own = |(key, value): (&String, &String)| {
        key.strip_prefix("jobset.sigs.k8s.io/").map(|key| (key.to_owned(), value.clone()))
    };
    all.iter().filter_map(own).collect()
}

/// What a Job and its Pods carry as labels and as annotations, if all of them say the same but for the priority, which
/// is a label of Pods alone.
async fn keys_of(space: &Space, job: &Job) -> Result<BTreeMap<String, String>> {
    let on_job = keys(job.labels());
    assert_eq!(keys(job.annotations()), on_job, "annotations of {}", job.name_any());
    let pods = space.pods_of(&job.name_any(), 1).await?;
    let mut on_pod = keys(pods[0].labels());
    assert_eq!(on_pod.remove("priority").as_deref(), Some("0"), "{}", pods[0].name_any());
    assert_eq!(on_pod, on_job, "labels of {}", pods[0].name_any());
    assert_eq!(keys(pods[0].annotations()), on_job, "annotations of {}", pods[0].name_any());
    Ok(on_job)
}

#[tokio::test]
async fn jobs_and_pods_have_labels_and_annotations_of_go_jobset() -> Result<()> {
    let space = Space::new("group-names").await?;
    let mut manifest = feature("group-names")?;
    // One Pod each is enough.
    for group in manifest["spec"]["replicatedJobs"].as_array_mut().context("no replicatedJobs")? {
        group["template"]["spec"]["parallelism"] = json!(1);
        group["template"]["spec"]["completions"] = json!(1);
    }
    let uid = space.create(manifest).await?.uid().context("no UID")?;
    // Name, key, index and number of Jobs in the replicatedJob, index in the JobSet, group, index and number in that.
    let wanted = [
        ("driver", "e8991e50ff87b99163698911b3adc1a31d81add1", 0, 1, 0, "default", 0, 1),
        ("workers-large", "8859931bbc4e524eb8a06e6d2b09160bcd252a15", 0, 1, 1, "workers", 0, 4),
        ("workers-small", "31b2e0163c8330f28a5f910e6d623014bee507f3", 0, 3, 2, "workers", 1, 4),
        ("workers-small", "aa591f84b0e222906b5da6008ac66d03a641a6c4", 1, 3, 3, "workers", 2, 4),
        ("workers-small", "f818c1fa7f5f34b586f8732cfa82beadead2a2ea", 2, 3, 4, "workers", 3, 4),
    ];
    let names = wanted.map(|(replicated_job, _, index, ..)| format!("group-names-{replicated_job}-{index}"));
    let jobs = space.jobs_of("group-names", &names.each_ref().map(String::as_str)).await?;
    for (job, (replicated_job, key, index, replicas, global, group, group_index, group_replicas)) in
        jobs.iter().zip(wanted)
    {
        let wanted = [
            ("jobset-name", "group-names".to_owned()),
            ("jobset-uid", uid.clone()),
            ("replicatedjob-name", replicated_job.to_owned()),
            ("replicatedjob-replicas", replicas.to_string()),
            ("global-replicas", "5".to_owned()),
            ("job-index", index.to_string()),
            ("job-global-index", global.to_string()),
            ("job-key", key.to_owned()),
            ("restart-attempt", "0".to_owned()),
            ("job-restart-attempt", "0".to_owned()),
            ("group-name", group.to_owned()),
            ("group-replicas", group_replicas.to_string()),
            ("job-group-index", group_index.to_string()),
        ];
        let wanted: BTreeMap<String, String> = wanted.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        assert_eq!(keys_of(&space, job).await?, wanted, "{}", job.name_any());
        let owner = json!([{
            "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": "group-names", "uid": uid,
            "controller": true, "blockOwnerDeletion": true,
        }]);
        assert_eq!(json!(job.owner_references()), owner, "{}", job.name_any());
    }
    Ok(())
}

#[tokio::test]
async fn template_labels_and_annotations_stay_and_priority_is_shown() -> Result<()> {
    let space = Space::new("templates").await?;
    let classes: Api<PriorityClass> = Api::all(space.client.clone());
    let class = json!({"metadata": {"name": "templates-low"}, "value": -7});
    classes.create(&PostParams::default(), &serde_json::from_value(class)?).await?;
    let marked = |of: &str| json!({"labels": {"of": of}, "annotations": {"note-of": of}});
    let template = json!({"template": {
        "metadata": marked("job"),
        "spec": {"template": {"metadata": marked("pod"), "spec": {"priorityClassName": "templates-low"}}},
    }});
    space.create(jobset("train", &[with(group("w", 1, 1), &template)])).await?;
    let jobs = space.jobs_of("train", &["train-w-0"]).await?;
    let pods = space.pods_of("train-w-0", 1).await?;
    assert_eq!((&*jobs[0].labels()["of"], &*jobs[0].annotations()["note-of"]), ("job", "job"));
    assert_eq!((&*pods[0].labels()["of"], &*pods[0].annotations()["note-of"]), ("pod", "pod"));
    // A label value cannot begin with a minus sign.
    assert_eq!(pods[0].labels()["jobset.sigs.k8s.io/priority"], "n7");
    Ok(())
}

/// The parts of a Service that make Pods be found, once it is there.
async fn service(space: &Space, name: &str) -> Result<Value> {
    let services: Api<Service> = Api::default_namespaced(space.client.clone());
    let service = services.get(name).await?;
    let labels = service.labels().clone();
    let spec = service.spec.context("no spec")?;
    Ok(json!([labels, spec.cluster_ip, spec.selector, spec.publish_not_ready_addresses.unwrap_or(false), spec.ports]))
}

#[tokio::test]
async fn service_is_headless_and_named_by_network_options() -> Result<()> {
    let space = Space::new("network").await?;
    let port = json!({"template": {"spec": {"template": {"spec": {"containers": [
        {"name": "worker", "image": "none", "ports": [{"containerPort": 8476}]}]}}}}});
    space.create(jobset("plain", &[with(group("w", 1, 1), &port)])).await?;
    space
        .create(with(feature("network-options")?, &json!({"spec": {"coordinator": {"replicatedJob": "workers"}}})))
        .await?;
    let own = |name: &str| json!({"jobset.sigs.k8s.io/jobset-name": name});

    // The Services are there before any Pod is.
    let pods = space.pods_of("plain-w-0", 1).await?;
    assert_eq!(pods[0].spec.clone().and_then(|spec| spec.subdomain).as_deref(), Some("plain"));
    let ports = json!([{"name": "tcp-8476", "port": 8476, "protocol": "TCP", "targetPort": 8476}]);
    assert_eq!(service(&space, "plain").await?, json!([own("plain"), "None", own("plain"), true, ports]));

    let pods = space.pods_of("network-options-workers-1", 2).await?;
    assert_eq!(pods[0].spec.clone().and_then(|spec| spec.subdomain).as_deref(), Some("meeting-point"));
    let endpoint = &pods[0].labels()["jobset.sigs.k8s.io/coordinator"];
    assert_eq!(endpoint, "network-options-workers-0-0.meeting-point");
    let found = service(&space, "meeting-point").await?;
    assert_eq!(found, json!([own("network-options"), "None", own("network-options"), false, null]));
    let services: Api<Service> = Api::default_namespaced(space.client.clone());
    assert!(services.get_opt("network-options").await?.is_none(), "no Service but that of the subdomain");
    Ok(())
}
