//! Persistent volume claims that the JobSet creates and its Pods share.

use std::collections::{HashMap, HashSet};

use k8s_openapi::api::core::v1::PersistentVolumeClaim;

use super::subject::{JobSetName, Subject};
use crate::ReplicatedJob;
use crate::field::{Errors, Path};
use crate::syntax;

/// Maximum number of policies, and of templates of one policy.
const LIMIT: usize = 50;
const TOO_MANY: &str = "must have at most 50 items";
const UNIQUE: &str = "must be unique in all of spec.volumeClaimPolicies: it is the name of a volume";
const NAMESPACE: &str = "must not be set: claims are created in the namespace of the JobSet";
const MOUNTED: &str = "must be mounted: add a volumeMount of this name to a container, or remove the template";

/// Rejects claims that no Pod mounts, and claims whose volume name is not unique.
pub(super) fn check(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    let policies = &subject.spec.volume_claim_policies;
    if policies.is_empty() {
        return;
    }
    let path = spec.child("volumeClaimPolicies");
    if policies.len() > LIMIT {
        errors.too_many(&path, policies.len(), TOO_MANY);
    }
    let pod_volumes = PodVolumes::of(&subject.spec.replicated_jobs);
    let mut names = HashSet::new();
    for (index, policy) in policies.iter().enumerate() {
        let path = path.index(index);
        let path = path.child("templates");
        if policy.templates.len() > LIMIT {
            errors.too_many(&path, policy.templates.len(), TOO_MANY);
        }
        for (index, template) in policy.templates.iter().enumerate() {
            let path = path.index(index);
            let path = path.child("metadata");
            if let Some(name) = claim(template, subject.name, &path, errors) {
                used(name, &mut names, &pod_volumes, &path.child("name"), errors);
            }
        }
    }
}

/// Rejects names that are not valid names of volumes: the API server would refuse the Jobs.
pub(super) fn check_names(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    let path = spec.child("volumeClaimPolicies");
    for (index, policy) in subject.spec.volume_claim_policies.iter().enumerate() {
        let path = path.index(index);
        let path = path.child("templates");
        for (index, template) in policy.templates.iter().enumerate() {
            let path = path.index(index);
            volume_name(template, &path.child("metadata.name"), errors);
        }
    }
}

/// The name of the claim's volume. `None`, with an error, if it is not a valid name of a volume: it must have no dots.
fn volume_name<'a>(template: &'a PersistentVolumeClaim, path: &Path<'_>, errors: &mut Errors) -> Option<&'a str> {
    let name = template.metadata.name.as_deref().unwrap_or_default();
    if syntax::is_dns1123_label(name) {
        return Some(name);
    }
    errors.invalid(path, name, syntax::DNS_1123_LABEL);
    None
}

/// Checks the claim itself. Returns its name if it is valid.
fn claim<'a>(
    template: &'a PersistentVolumeClaim,
    jobset: JobSetName<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) -> Option<&'a str> {
    if let Some(namespace) = template.metadata.namespace.as_deref().filter(|it| !it.is_empty()) {
        errors.invalid(&path.child("namespace"), namespace, NAMESPACE);
    }
    let field = path.child("name");
    let name = volume_name(template, &field, errors)?;
    let length = name.len() + 1 + jobset.len();
    if length > syntax::LABEL_LENGTH {
        let required = format_args!(
            "the claim would be named \"{name}-{jobset}\", {length} characters of at most 63: shorten this name or that \
             of the JobSet"
        );
        errors.invalid(&field, name, required);
    }
    Some(name)
}

/// Checks the claim against the volumes of the Pods.
fn used<'a>(
    name: &'a str,
    names: &mut HashSet<&'a str>,
    pod_volumes: &PodVolumes<'_>,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    if !names.insert(name) {
        errors.duplicate(path, name, UNIQUE);
    } else if let Some((job, volume)) = pod_volumes.volumes.get(name) {
        let volume = format!("spec.replicatedJobs[{job}].template.spec.template.spec.volumes[{volume}]");
        errors.duplicate(path, name, format_args!("must not be the name of {volume}: rename one of them"));
    } else if !pod_volumes.mounted.contains(name) {
        errors.invalid(path, name, MOUNTED);
    }
}

/// Volumes and mounts of the Pod templates.
struct PodVolumes<'a> {
    /// Indexes of the replicatedJob and of the volume, by the name of the volume.
    volumes: HashMap<&'a str, (usize, usize)>,
    mounted: HashSet<&'a str>,
}

impl<'a> PodVolumes<'a> {
    fn of(replicated_jobs: &'a [ReplicatedJob]) -> Self {
        let mut found = Self { volumes: HashMap::new(), mounted: HashSet::new() };
        for (job, replicated_job) in replicated_jobs.iter().enumerate() {
            let Some(pod) = &replicated_job.template.spec.template.spec else { continue };
            for (place, volume) in pod.volumes.iter().flatten().enumerate() {
                found.volumes.entry(&volume.name).or_insert((job, place));
            }
            let containers = pod.init_containers.iter().flatten().chain(&pod.containers);
            let mounts = containers.flat_map(|container| container.volume_mounts.iter().flatten());
            found.mounted.extend(mounts.map(|mount| mount.name.as_str()));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::testing::{accepts, rejects};

    const POLICIES: &str = "/spec/volumeClaimPolicies";
    const POD: &str = "/spec/replicatedJobs/1/template/spec/template/spec";

    /// One policy for each text, with a claim for each name in it.
    fn policies(texts: &[&str]) -> (&'static str, Value) {
        let template = |name: &str| json!({ "metadata": { "name": name }, "spec": {} });
        let policy = |names: &&str| json!({ "templates": names.split_whitespace().map(template).collect::<Vec<_>>() });
        (POLICIES, texts.iter().map(policy).collect())
    }

    /// A mount for each name in the text.
    fn mounts(names: &str) -> Value {
        names.split_whitespace().map(|name| json!({ "name": name, "mountPath": format!("/{name}") })).collect()
    }

    /// These mounts in the container of `workers`.
    fn mounted(names: &str) -> (String, Value) {
        (format!("{POD}/containers/0/volumeMounts"), mounts(names))
    }

    #[rstest]
    #[case::one(&["cache"], "cache")]
    #[case::several(&["cache data", "models"], "models data cache")]
    #[case::none(&[""], "")]
    // `<claim>-train` has 63 characters.
    #[case::as_long_as_may_be(&[&*"a".repeat(57)], &"a".repeat(57))]
    fn claim_that_is_mounted_is_accepted(#[case] claims: &[&str], #[case] mounts: &str) {
        let mounted = mounted(mounts);
        accepts(&[policies(claims), (&mounted.0, mounted.1)]);
    }

    #[test]
    fn claim_that_init_container_mounts_is_accepted() {
        let pointer = format!("{POD}/initContainers");
        accepts(&[policies(&["cache"]), (&pointer, json!([{ "name": "fill", "volumeMounts": mounts("cache") }]))]);
    }

    #[rstest]
    #[case::not_mounted(&["cache data"], "cache", r#"spec.volumeClaimPolicies[0].templates[1].metadata.name: Invalid value: "data": must be mounted"#)]
    #[case::twice(&["cache", "cache"], "cache", r#"spec.volumeClaimPolicies[1].templates[0].metadata.name: Duplicate value: "cache": must be unique"#)]
    #[case::dot(&["ca.che"], "ca.che", r#"metadata.name: Invalid value: "ca.che": must consist"#)]
    #[case::too_long(&[&*"a".repeat(58)], &"a".repeat(58), "the claim would be named")]
    fn claim_with_invalid_name_or_no_mount_is_rejected(
        #[case] claims: &[&str],
        #[case] mounts: &str,
        #[case] expected: &str,
    ) {
        let mounted = mounted(mounts);
        rejects(&[policies(claims), (&mounted.0, mounted.1)], expected);
    }

    #[test]
    fn claim_without_name_is_rejected() {
        let expected = r#"spec.volumeClaimPolicies[0].templates[0].metadata.name: Invalid value: "": must consist"#;
        rejects(&[(POLICIES, json!([{ "templates": [{ "spec": {} }] }]))], expected);
    }

    #[test]
    fn claim_with_name_of_volume_is_rejected() {
        let volumes = format!("{POD}/volumes");
        let mounted = mounted("cache");
        let expected = "spec.volumeClaimPolicies[0].templates[0].metadata.name: Duplicate value: \"cache\": must not be the \
                        name of spec.replicatedJobs[1].template.spec.template.spec.volumes[1]: rename one of them";
        let changes = [
            policies(&["cache"]),
            (&*volumes, json!([{ "name": "a" }, { "name": "cache", "emptyDir": {} }])),
            (&mounted.0, mounted.1),
        ];
        rejects(&changes, expected);
    }

    #[test]
    fn claim_with_namespace_is_rejected() {
        let mounted = mounted("cache");
        let claim = json!([{ "templates": [{ "metadata": { "name": "cache", "namespace": "other" } }] }]);
        let expected =
            r#"spec.volumeClaimPolicies[0].templates[0].metadata.namespace: Invalid value: "other": must not be set"#;
        rejects(&[(POLICIES, claim), (&mounted.0, mounted.1)], expected);
    }

    #[test]
    fn claims_above_limits_are_rejected() {
        rejects(&[policies(&[""; 51])], "spec.volumeClaimPolicies: Too many: 51: must have at most 50 items");
        let names = (0..51).map(|index| format!("c{index}")).collect::<Vec<_>>().join(" ");
        let mounted = mounted(&names);
        let expected = "spec.volumeClaimPolicies[0].templates: Too many: 51: must have at most 50 items";
        rejects(&[policies(&[&names]), (&mounted.0, mounted.1)], expected);
    }
}
