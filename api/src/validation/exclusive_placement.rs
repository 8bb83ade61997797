//! Exclusive placement: each Job alone in a topology domain.

use std::collections::{BTreeMap, HashSet};

use super::subject::Subject;
use crate::field::{Errors, Path};
use crate::syntax;
use crate::{JobSet, ReplicatedJob, labels};

type Annotations = BTreeMap<String, String>;

const INDEXED: &str = "must be \"Indexed\" with the annotation alpha.jobset.sigs.k8s.io/exclusive-topology: the Pod of \
                       index 0 leads the others to its domain. Set it, or let Pods find their nodes by label, with the \
                       annotation alpha.jobset.sigs.k8s.io/node-selector";

const LABEL: &str = "must be the key of a label of the nodes, such as example.com/rack: Pods are placed by its values";

/// Labels that all nodes have with the same value, or all nodes of a kind. A Job that had such a domain alone would keep the
/// Jobs of all other namespaces away from it.
const SHARED: [&str; 9] = [
    "kubernetes.io/os",
    "kubernetes.io/arch",
    "node.kubernetes.io/instance-type",
    "node.kubernetes.io/windows-build",
    "topology.kubernetes.io/region",
    "beta.kubernetes.io/os",
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "failure-domain.beta.kubernetes.io/region",
];

const DIVIDES: &str = "must be the key of a label that divides the nodes into many domains, such as example.com/rack: all nodes \
                       of a kind have this label with one value, and one Job would keep all others away from them";

/// Rejects annotations that are not the key of a label, or that are the key of a label that all nodes share.
pub(super) fn check_label(subject: &Subject<'_>, _: &Path<'_>, errors: &mut Errors) {
    for_each_key(subject.jobset, &mut |path, key| {
        if !syntax::is_label_key(key) {
            errors.invalid(path, key, LABEL);
        } else if SHARED.contains(&key) {
            errors.invalid(path, key, DIVIDES);
        }
    });
}

/// Rejects keys of topology domains that are not among those of a cluster. An empty list allows all keys. An update may keep
/// the keys of the old object.
pub fn check_allowed_topology_keys(old: Option<&JobSet>, new: &JobSet, allowed: &[String], errors: &mut Errors) {
    if allowed.is_empty() {
        return;
    }
    let mut kept = HashSet::new();
    if let Some(old) = old {
        for_each_key(old, &mut |path, key| kept.extend([(path.to_string(), key.to_owned())]));
    }
    for_each_key(new, &mut |path, key| {
        let is_kept = || kept.contains(&(path.to_string(), key.to_owned()));
        if !allowed.iter().any(|it| it == key) && !is_kept() {
            let required = format_args!("must be one of the topology keys of this cluster: {}", allowed.join(", "));
            errors.invalid(path, key, required);
        }
    });
}

/// The keys of topology domains, with their places.
fn for_each_key(jobset: &JobSet, visit: &mut dyn FnMut(&Path<'_>, &str)) {
    let mut visit_annotation = |annotations: Option<&Annotations>, path: &Path<'_>| {
        if let Some(key) = annotations.and_then(|annotations| annotations.get(labels::EXCLUSIVE_TOPOLOGY)) {
            visit(&path.key(labels::EXCLUSIVE_TOPOLOGY), key);
        }
    };
    visit_annotation(jobset.metadata.annotations.as_ref(), &Path::root("metadata.annotations"));
    let spec = Path::root("spec");
    let path = spec.child("replicatedJobs");
    for (index, replicated_job) in jobset.spec.replicated_jobs.iter().enumerate() {
        let path = path.index(index);
        visit_annotation(of_job_template(replicated_job), &path.child("template.metadata.annotations"));
        let of_pods = path.child("template.spec.template.metadata.annotations");
        visit_annotation(of_pod_template(replicated_job), &of_pods);
    }
}

fn of_job_template(replicated_job: &ReplicatedJob) -> Option<&Annotations> {
    replicated_job.template.metadata.as_ref()?.annotations.as_ref()
}

/// The Go JobSet reads the annotation of a Pod, so the one of a Pod template places its Pods, too.
fn of_pod_template(replicated_job: &ReplicatedJob) -> Option<&Annotations> {
    replicated_job.template.spec.template.metadata.as_ref()?.annotations.as_ref()
}

/// Rejects Jobs without a leader if their Pods follow a leader: no such Pod can be created. Pods that find their nodes
/// by label follow no leader.
pub(super) fn check(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    let path = spec.child("replicatedJobs");
    for (index, replicated_job) in subject.spec.replicated_jobs.iter().enumerate() {
        let annotated = |key| is_annotated(subject, replicated_job, key);
        if !annotated(labels::EXCLUSIVE_TOPOLOGY) || annotated(labels::NODE_SELECTOR_STRATEGY) {
            continue;
        }
        let path = path.index(index);
        let path = path.child("template.spec.completionMode");
        let mode = replicated_job.template.spec.completion_mode.as_deref();
        if mode != Some("Indexed") {
            errors.wrong(&path, mode, INDEXED);
        }
    }
}

/// Whether the Pods get the annotation: from the JobSet, from the template of their Job, or from their own.
fn is_annotated(subject: &Subject<'_>, replicated_job: &ReplicatedJob, key: &str) -> bool {
    let of_jobset = subject.jobset.metadata.annotations.as_ref();
    let sources = [of_jobset, of_job_template(replicated_job), of_pod_template(replicated_job)];
    sources.into_iter().flatten().any(|annotations| annotations.contains_key(key))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::cannot_run;
    use super::super::testing::{admission_errors, assert_one, jobset, read, rejects};
    use super::*;

    const JOBSET: &str = "/metadata/annotations";
    const TEMPLATE: &str = "/spec/replicatedJobs/1/template/metadata";
    const POD: &str = "/spec/replicatedJobs/1/template/spec/template/metadata";
    const MODE: &str = "/spec/replicatedJobs/1/template/spec/completionMode";

    fn exclusive() -> Value {
        json!({ "alpha.jobset.sigs.k8s.io/exclusive-topology": "rack" })
    }

    #[rstest]
    #[case::pod_template(&[(POD, json!({ "annotations": exclusive() })), (MODE, json!("NonIndexed"))], r#"Invalid value: "NonIndexed""#)]
    #[case::by_default(&[(JOBSET, exclusive()), (MODE, Value::Null)], r#"spec.replicatedJobs[1].template.spec.completionMode: Required value: must be "Indexed""#)]
    fn exclusive_jobs_without_indexes_are_rejected(#[case] changes: &[(&str, Value)], #[case] expected: &str) {
        rejects(changes, expected);
    }

    #[rstest]
    #[case::of_the_jobset(JOBSET, "metadata.annotations")]
    #[case::of_a_job_template(TEMPLATE, "spec.replicatedJobs[1].template.metadata.annotations")]
    #[case::of_a_pod_template(POD, "spec.replicatedJobs[1].template.spec.template.metadata.annotations")]
    fn exclusive_topology_without_label_key_is_rejected_at_creation_only(#[case] place: &str, #[case] path: &str) {
        for value in ["", "bad key!", "a/b/c"] {
            let annotations = json!({ (labels::EXCLUSIVE_TOPOLOGY): value });
            let metadata = if place == JOBSET { annotations } else { json!({ "annotations": annotations }) };
            let object = jobset(&[(place, metadata)]);
            assert_eq!(cannot_run(&read(&object)).to_string(), "", "a stored JobSet can run");
            let expected =
                format!("{path}[{}]: Invalid value: \"{value}\": must be the key", labels::EXCLUSIVE_TOPOLOGY);
            assert_one(&admission_errors(&object), &expected);
        }
    }

    #[rstest]
    #[case::os("kubernetes.io/os")]
    #[case::architecture("kubernetes.io/arch")]
    #[case::region("topology.kubernetes.io/region")]
    fn topology_key_of_all_nodes_is_rejected(#[case] key: &str) {
        let annotations = json!({ (labels::EXCLUSIVE_TOPOLOGY): key });
        let expected = format!("Invalid value: \"{key}\": must be the key of a label that divides the nodes");
        rejects(&[(JOBSET, annotations.clone())], &expected);
        for template in [TEMPLATE, POD] {
            rejects(&[(template, json!({ "annotations": annotations }))], &expected);
        }
    }

    #[rstest]
    #[case::any(&[], None, "")]
    #[case::listed(&["zone", "rack"], None, "")]
    #[case::unlisted(&["zone", "row"], None, r#"Invalid value: "rack": must be one of the topology keys of this cluster: zone, row"#)]
    #[case::kept(&["zone"], Some("rack"), "")]
    #[case::changed(&["zone"], Some("zone"), r#"Invalid value: "rack": must be one of"#)]
    #[case::added(&["zone"], Some(""), r#"Invalid value: "rack": must be one of"#)]
    fn topology_keys_outside_of_the_list_are_rejected(
        #[case] allowed: &[&str],
        #[case] old: Option<&str>,
        #[case] expected: &str,
    ) {
        let allowed: Vec<String> = allowed.iter().map(|&key| key.to_owned()).collect();
        for place in [JOBSET, TEMPLATE, POD] {
            let of = |key: &str| {
                let annotations = json!({ (labels::EXCLUSIVE_TOPOLOGY): key });
                let metadata = if place == JOBSET { annotations } else { json!({ "annotations": annotations }) };
                if key.is_empty() { read(&jobset(&[])) } else { read(&jobset(&[(place, metadata)])) }
            };
            let mut errors = Errors::default();
            check_allowed_topology_keys(old.map(of).as_ref(), &of("rack"), &allowed, &mut errors);
            let is_expected = errors.to_string().contains(expected) && errors.is_empty() == expected.is_empty();
            assert!(is_expected, "{place}: {errors}");
        }
    }
}
