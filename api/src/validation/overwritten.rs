//! Fields of a Job template that the controller overwrites or leaves out. They have no effect, and the user may rely on them.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::subject::Subject;
use super::warnings::Warnings;
use crate::field::Path;
use crate::{ReplicatedJob, labels};

/// Keys that the controller sets on each Job and Pod, as labels and as annotations.
const KEYS: [&str; 14] = [
    labels::JOBSET_NAME,
    labels::JOBSET_UID,
    labels::REPLICATED_JOB_NAME,
    labels::REPLICATED_JOB_REPLICAS,
    labels::GLOBAL_REPLICAS,
    labels::JOB_INDEX,
    labels::JOB_GLOBAL_INDEX,
    labels::JOB_KEY,
    labels::RESTART_ATTEMPT,
    labels::JOB_RESTART_ATTEMPT,
    labels::GROUP_NAME,
    labels::GROUP_REPLICAS,
    labels::JOB_GROUP_INDEX,
    labels::PRIORITY,
];
/// Keys that the controller sets where the JobSet has the feature that they belong to.
const RESERVED: [&str; 4] =
    [labels::AVOIDS_NODES, labels::COORDINATOR, labels::EXECUTION_ATTEMPT, labels::OWNED_BY_POD_TEMPLATE];
/// Annotations of a Pod that the controller removes: its agent alone writes them.
const OF_THE_AGENT: [&str; 2] = [labels::EPOCH, labels::IN_PLACE_RESTART_ATTEMPT];

/// Whether the controller replaces the value of this label or annotation on each Job and Pod.
pub(super) fn is_overwritten(key: &str) -> bool {
    KEYS.contains(&key)
}

/// Warns of fields of Job templates without an effect.
pub(super) fn warn(subject: &Subject<'_>, spec: &Path<'_>, warnings: &mut Warnings) {
    subject.for_each_job(spec, |replicated_job, path| {
        of_job(subject, replicated_job, &path.child("template"), warnings);
    });
}

fn of_job(subject: &Subject<'_>, replicated_job: &ReplicatedJob, path: &Path<'_>, warnings: &mut Warnings) {
    let job = &replicated_job.template.spec;
    if job.suspend == Some(true) {
        let text = "has no effect: spec.suspend of the JobSet suspends and resumes all of its Jobs";
        warnings.push(&path.child("spec.suspend"), text);
    }
    if job.ttl_seconds_after_finished.is_some() {
        let text = "has no effect: a finished Job that is deleted would be created again. spec.ttlSecondsAfterFinished of \
                    the JobSet deletes it with its Jobs";
        warnings.push(&path.child("spec.ttlSecondsAfterFinished"), text);
    }
    if let Some(metadata) = &replicated_job.template.metadata {
        let path = path.child("metadata");
        if metadata.finalizers.as_ref().is_some_and(|finalizers| !finalizers.is_empty()) {
            warnings.push(
                &path.child("finalizers"),
                "has no effect: Jobs get labels and annotations of this metadata alone",
            );
        }
        names(subject, metadata, &path, "has no effect: the controller names the Jobs", warnings);
        keys(metadata, &path, warnings);
    }
    let path = path.child("spec.template");
    if let Some(metadata) = &job.template.metadata {
        let path = path.child("metadata");
        names(subject, metadata, &path, "has no effect: the Job controller names the Pods", warnings);
        keys(metadata, &path, warnings);
        let annotations = path.child("annotations");
        warn_of(
            metadata.annotations.as_ref(),
            &annotations,
            &OF_THE_AGENT,
            "is removed: the agent writes it",
            warnings,
        );
    }
    let subdomain = job.template.spec.as_ref().and_then(|pod| pod.subdomain.as_deref());
    let expected = subject.spec.given_subdomain().or(subject.jobset.metadata.name.as_deref());
    if subject.spec.dns_hostnames_enabled()
        && let Some(subdomain) = subdomain.filter(|subdomain| !subdomain.is_empty() && Some(*subdomain) != expected)
    {
        let text = format_args!("is overwritten: set spec.network.subdomain to \"{subdomain}\"");
        warnings.push(&path.child("spec.subdomain"), text);
    }
}

fn names(subject: &Subject<'_>, metadata: &ObjectMeta, path: &Path<'_>, text: &str, warnings: &mut Warnings) {
    let is_set = |name: Option<&String>| name.is_some_and(|name| !name.is_empty());
    for (field, name) in [("name", &metadata.name), ("generateName", &metadata.generate_name)] {
        if is_set(name.as_ref()) {
            warnings.push(&path.child(field), text);
        }
    }
    let namespace = metadata.namespace.as_ref();
    if is_set(namespace) && namespace != subject.jobset.metadata.namespace.as_ref() {
        warnings.push(&path.child("namespace"), "has no effect: it is that of the JobSet");
    }
}

fn keys(metadata: &ObjectMeta, path: &Path<'_>, warnings: &mut Warnings) {
    for (field, found) in [("labels", &metadata.labels), ("annotations", &metadata.annotations)] {
        let (path, found) = (path.child(field), found.as_ref());
        warn_of(found, &path, &KEYS, "is overwritten by the controller", warnings);
        warn_of(found, &path, &RESERVED, "is reserved: the controller sets it where the JobSet needs it", warnings);
    }
}

fn warn_of(
    found: Option<&BTreeMap<String, String>>,
    path: &Path<'_>,
    keys: &[&str],
    text: &str,
    warnings: &mut Warnings,
) {
    for key in found.into_iter().flat_map(BTreeMap::keys).filter(|key| keys.contains(&key.as_str())) {
        warnings.push(&path.key(key), text);
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::testing::{assert_one, in_place, jobset, read};
    use super::super::warnings::warnings;
    use crate::labels;

    const TEMPLATE: &str = "/spec/replicatedJobs/1/template";

    #[rstest]
    #[case::label_of_pods("/spec/template/metadata", json!({ "labels": { labels::JOBSET_NAME: "a" } }), "spec.template.metadata.labels[jobset.sigs.k8s.io/jobset-name]: is overwritten")]
    #[case::annotation_of_pods("/spec/template/metadata", json!({ "annotations": { labels::JOB_KEY: "a" } }), "spec.template.metadata.annotations[jobset.sigs.k8s.io/job-key]: is overwritten")]
    #[case::epoch("/spec/template/metadata", json!({ "annotations": { labels::EPOCH: "3" } }), "spec.template.metadata.annotations[jobset.sigs.k8s.io/epoch]: is removed")]
    fn field_of_template_that_is_overwritten_gets_warning(
        #[case] pointer: &str,
        #[case] value: Value,
        #[case] expected: &str,
    ) {
        for object in [jobset, in_place] {
            let found = warnings(&read(&object(&[(&format!("{TEMPLATE}{pointer}"), value.clone())])));
            assert_one(&found, &format!("spec.replicatedJobs[1].template.{expected}"));
        }
    }

    #[rstest]
    #[case::not_suspended("/spec/suspend", json!(false))]
    #[case::own_label("/metadata", json!({ "labels": { "app": "a" }, "annotations": { "a": "b" } }))]
    #[case::finalizers_of_pods("/spec/template/metadata", json!({ "finalizers": ["a/b"] }))]
    #[case::same_subdomain("/spec/template/spec/subdomain", json!("train"))]
    fn field_of_template_with_effect_gets_no_warning(#[case] pointer: &str, #[case] value: Value) {
        let found = warnings(&read(&jobset(&[(&format!("{TEMPLATE}{pointer}"), value)])));
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn subdomain_without_dns_host_names_is_the_pods_own() {
        let network = ("/spec/network", json!({ "enableDNSHostnames": false }));
        let subdomain = (&*format!("{TEMPLATE}/spec/template/spec/subdomain"), json!("net"));
        assert_eq!(warnings(&read(&jobset(&[network, subdomain]))), Vec::<String>::new());
    }
}
