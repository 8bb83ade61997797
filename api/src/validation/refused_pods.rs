//! Pods that the API server or every kubelet refuses, whatever else is in the cluster. Without this rule, the user learns it from a
//! condition of a JobSet without Pods, or from a Pod that waits for its sandbox forever.

use k8s_openapi::api::core::v1::PodSpec;

use super::child_names::HighestIndexes;
use super::subject::{Subject, for_each_container};
use super::warnings::Warnings;
use crate::ReplicatedJob;
use crate::field::{Errors, Path};
use crate::restart_rules::NEVER;
use crate::syntax::LABEL_LENGTH;

/// Maximum number of characters of a host name in Linux. A kubelet makes no sandbox for a Pod whose full name is longer.
const HOST_NAME_LENGTH: usize = 64;
/// Characters of the shortest domain of a cluster, with its dot.
const SHORTEST_DOMAIN: usize = ".k".len();
/// What the Job controller adds to the name of a Job for a Pod without an index, which is its host name, too.
const RANDOM_SUFFIX: usize = "-xxxxx".len();
const USUAL_DOMAIN: &str = ".cluster.local";
/// The Pod specification of a replicatedJob.
const POD: &str = "template.spec.template.spec";
/// `resizePolicy[].restartPolicy` of a resource that a container must be restarted for.
const RESTART_CONTAINER: &str = "RestartContainer";

/// Rejects Pods that no API server or kubelet accepts.
pub(super) fn check(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    subject.for_each_job(spec, |replicated_job, path| {
        let path = path.child(POD);
        if let Some(why) = full_name_is_too_long(subject, replicated_job, SHORTEST_DOMAIN) {
            errors.invalid(&path.child("setHostnameAsFQDN"), true, why);
        }
        if let Some(pod) = &replicated_job.template.spec.template.spec {
            resize_policies(pod, &path, errors);
        }
    });
}

/// Warns of Pods that kubelets refuse in clusters with the usual domain.
pub(super) fn warn(subject: &Subject<'_>, spec: &Path<'_>, warnings: &mut Warnings) {
    subject.for_each_job(spec, |replicated_job, path| {
        if let Some(why) = full_name_is_too_long(subject, replicated_job, USUAL_DOMAIN.len()) {
            let path = path.child(POD);
            warnings.push(&path.child("setHostnameAsFQDN"), format_args!("with the domain cluster.local, {why}"));
        }
    });
}

/// Characters of the longest `<pod>.<subdomain>.<namespace>.svc` of a replicatedJob whose Pods have it as their host name, with the
/// domain of the cluster after it. Pods in the network of their node have the name of the node.
fn full_name_length(subject: &Subject<'_>, replicated_job: &ReplicatedJob) -> Option<usize> {
    let pod = replicated_job.template.spec.template.spec.as_ref()?;
    if pod.set_hostname_as_fqdn != Some(true) || pod.host_network == Some(true) {
        return None;
    }
    let subdomain = if subject.spec.dns_hostnames_enabled() {
        subject.spec.given_subdomain().map_or(subject.name.len(), str::len)
    } else {
        pod.subdomain.as_deref().filter(|subdomain| !subdomain.is_empty())?.len()
    };
    let end = HighestIndexes::of(replicated_job);
    let host = subject.name.len() + 1 + replicated_job.name.len() + end.len();
    let host = if end.pod.is_some() { host } else { LABEL_LENGTH.min(host + RANDOM_SUFFIX) };
    // A file for `kubectl jobset validate` may name no namespace.
    let namespace = subject.jobset.metadata.namespace.as_deref().map_or(1, str::len);
    Some(host + 1 + subdomain + 1 + namespace + ".svc".len())
}

/// Why kubelets start none of the Pods in a cluster whose domain has so many characters, with its dot.
fn full_name_is_too_long(subject: &Subject<'_>, replicated_job: &ReplicatedJob, domain: usize) -> Option<String> {
    let length = full_name_length(subject, replicated_job)? + domain;
    (length > HOST_NAME_LENGTH).then(|| {
        format!(
            "full names of Pods have {length} characters or more, and a kubelet starts none above {HOST_NAME_LENGTH}: shorten the \
             names, or remove the field"
        )
    })
}

/// Kubernetes refuses a restart for a resize in a Pod with `restartPolicy: Never`, which is that of admission for Jobs that
/// restart in place or have a podFailurePolicy. An agent would restart alone, and its worker still run in the previous epoch.
fn resize_policies(pod: &PodSpec, path: &Path<'_>, errors: &mut Errors) {
    if pod.restart_policy.as_deref() != Some(NEVER) {
        return;
    }
    for_each_container(pod, path, |container, path| {
        let list = path.child("resizePolicy");
        for (index, policy) in container.resize_policy.iter().flatten().enumerate() {
            if policy.restart_policy == RESTART_CONTAINER {
                let required = "must be NotRequired: the API server refuses Pods with restartPolicy Never, as these have, \
                                whose containers restart for a resize";
                errors.invalid(&list.index(index).child("restartPolicy"), &policy.restart_policy, required);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::testing::{accepts, admission_errors, assert_one, in_place, jobset, read, rejects};
    use super::super::warnings::warnings;

    const JOB: &str = "/spec/replicatedJobs/1/template/spec";
    const POD: &str = "/spec/replicatedJobs/1/template/spec/template/spec";
    const FULL: &str = "spec.replicatedJobs[1].template.spec.template.spec.setHostnameAsFQDN";

    /// Pods `<name>-workers-1-3.<name>.ml.svc`, of 20 characters and twice the name.
    fn full(name: usize, more: &[(&str, Value)]) -> Vec<(String, Value)> {
        let fields = [("/metadata/name", json!("a".repeat(name))), (&format!("{POD}/setHostnameAsFQDN"), json!(true))];
        fields.iter().chain(more).map(|(pointer, value)| ((*pointer).to_owned(), value.clone())).collect()
    }

    fn changes(changes: &[(String, Value)]) -> Vec<(&str, Value)> {
        changes.iter().map(|(pointer, value)| (pointer.as_str(), value.clone())).collect()
    }

    #[test]
    fn full_name_of_any_cluster_above_limit_is_rejected() {
        let of = |name: usize, mode: &str| {
            let mode = (&*format!("{JOB}/completionMode"), json!(mode));
            admission_errors(&jobset(&changes(&full(name, &[mode]))))
        };
        assert_eq!(of(21, "Indexed"), Vec::<String>::new());
        assert_one(&of(22, "Indexed"), &format!("{FULL}: Invalid value: true: full names of Pods have 66 characters"));
        // A Pod without an index has a random suffix.
        assert_eq!(of(19, "NonIndexed"), Vec::<String>::new());
        assert_one(
            &of(20, "NonIndexed"),
            &format!("{FULL}: Invalid value: true: full names of Pods have 66 characters"),
        );
    }

    #[rstest]
    #[case::not_asked_for("/setHostnameAsFQDN", json!(false))]
    #[case::name_of_the_node("/hostNetwork", json!(true))]
    fn host_name_without_domain_of_any_length_is_accepted(#[case] field: &str, #[case] value: Value) {
        accepts(&changes(&full(40, &[(&format!("{POD}{field}"), value)])));
    }

    #[test]
    fn full_name_counts_the_subdomain_that_pods_get() {
        accepts(&changes(&full(38, &[("/spec/network", json!({ "subdomain": "net" }))])));
        rejects(&changes(&full(41, &[("/spec/network", json!({ "subdomain": "net" }))])), FULL);
        let off = json!({ "enableDNSHostnames": false });
        accepts(&changes(&full(40, &[("/spec/network", off.clone())])));
        rejects(&changes(&full(40, &[("/spec/network", off), (&format!("{POD}/subdomain"), json!("other"))])), FULL);
    }

    #[test]
    fn full_name_above_limit_with_usual_domain_gets_warning() {
        let of = |name: usize| warnings(&read(&jobset(&changes(&full(name, &[])))));
        assert_eq!(of(15), Vec::<String>::new());
        let found = of(16);
        assert_one(&found, &format!("{FULL}: with the domain cluster.local, full names of Pods have 66 characters"));
        assert!(found[0].len() < 256, "the API server cuts it off: {}", found[0].len());
    }

    #[rstest]
    #[case::worker("/containers/0")]
    #[case::init_container("/initContainers/0")]
    fn restart_for_resize_beside_never_is_rejected(#[case] container: &str) {
        let policy = |restart: &str| {
            json!([
                { "resourceName": "cpu", "restartPolicy": "NotRequired" },
                { "resourceName": "memory", "restartPolicy": restart },
            ])
        };
        let with = |restart: &str| in_place(&[(&format!("{POD}{container}/resizePolicy"), policy(restart))]);
        let path = container.replace('/', ".").replacen(".0", "[0]", 1);
        let expected = format!(
            "spec.replicatedJobs[1].template.spec.template.spec{path}.resizePolicy[1].restartPolicy: \
             Invalid value: \"RestartContainer\": must be NotRequired"
        );
        assert_one(&admission_errors(&with("RestartContainer")), &expected);
        assert_eq!(admission_errors(&with("NotRequired")), Vec::<String>::new());
    }

    #[test]
    fn restart_for_resize_beside_on_failure_is_accepted() {
        let policy = json!([{ "resourceName": "memory", "restartPolicy": "RestartContainer" }]);
        accepts(&[
            (&format!("{POD}/restartPolicy"), json!("OnFailure")),
            (&format!("{POD}/containers/0/resizePolicy"), policy),
        ]);
    }
}
