//! The fields of Pods that can change while a JobSet is suspended, so that a queueing system can decide where the Pods
//! run: labels, annotations, nodeSelector, tolerations and schedulingGates; and, with the feature gate
//! MutablePodResourcesForSuspendedJobSets, requests and limits of containers (KEP-1150). Kubernetes allows the same changes
//! in a suspended Job.

use k8s_openapi::api::core::v1::{Container, PodTemplateSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// How resources must stay while the feature gate is off, and what to do instead of a change.
pub(super) const RESOURCES_GATE_OFF: &str = "as the JobSet was created: delete the JobSet and create it again, or start \
                                             controller and webhook with \
                                             --feature-gates=MutablePodResourcesForSuspendedJobSets=true and suspend the \
                                             JobSet first";

/// Copies these fields of `new`, other than resources, to `expected`.
pub(super) fn take_over(expected: &mut PodTemplateSpec, new: &PodTemplateSpec) {
    let (labels, annotations) = match &new.metadata {
        Some(metadata) => (metadata.labels.clone(), metadata.annotations.clone()),
        None => (None, None),
    };
    let metadata = expected.metadata.get_or_insert_default();
    (metadata.labels, metadata.annotations) = (labels, annotations);
    if new.metadata.is_none() && *metadata == ObjectMeta::default() {
        expected.metadata = None;
    }
    let (Some(expected), Some(new)) = (&mut expected.spec, &new.spec) else { return };
    expected.node_selector.clone_from(&new.node_selector);
    expected.tolerations.clone_from(&new.tolerations);
    expected.scheduling_gates.clone_from(&new.scheduling_gates);
}

/// Copies requests and limits of the containers of `new` to those of `expected`.
pub(super) fn take_over_resources(expected: &mut PodTemplateSpec, new: &PodTemplateSpec) {
    let (Some(expected), Some(new)) = (&mut expected.spec, &new.spec) else { return };
    resources(&mut expected.containers, &new.containers);
    resources(
        expected.init_containers.as_deref_mut().unwrap_or_default(),
        new.init_containers.as_deref().unwrap_or_default(),
    );
}

/// Copies requests and limits of containers with unchanged names. Another rule rejects changed names. Claims stay, because
/// they belong to the Pod's `resourceClaims`.
fn resources(expected: &mut [Container], new: &[Container]) {
    for (expected, new) in expected.iter_mut().zip(new).filter(|(expected, new)| expected.name == new.name) {
        let ResourceRequirements { requests, limits, .. } = new.resources.clone().unwrap_or_default();
        let claims = expected.resources.take().and_then(|resources| resources.claims);
        let resources = ResourceRequirements { claims, limits, requests };
        expected.resources =
            Some(resources).filter(|it| new.resources.is_some() || *it != ResourceRequirements::default());
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::testing::{Changes, assert_one, changed, in_place, jobset, read};
    use super::super::validate_update;
    use crate::gates::Gates;

    const POD: &str = "/spec/replicatedJobs/1/template/spec/template";

    fn errors(old: &Value, changes: Changes<'_>) -> Vec<String> {
        let on = Gates { mutable_pod_resources_for_suspended_job_sets: true, ..Gates::default() };
        let new = changed(old.clone(), changes);
        validate_update(&read(old), &read(&new), on).iter().map(ToString::to_string).collect()
    }

    fn resources() -> Value {
        json!({ "requests": { "cpu": "2" }, "limits": { "memory": "1Gi" } })
    }

    #[rstest]
    #[case::worker("/spec/containers/0/resources", "template.spec.containers[0].resources")]
    #[case::agent("/spec/initContainers/0/resources", "template.spec.initContainers[0].resources")]
    fn resources_can_change_only_while_suspended(#[case] field: &str, #[case] path: &str) {
        let change = (&*format!("{POD}{field}"), resources());
        let suspend = |suspended: bool| ("/spec/suspend", json!(suspended));
        let (running, stopped) = (in_place(&[suspend(false)]), in_place(&[suspend(true)]));
        // While suspended, in the update that resumes, and in the update that suspends.
        for (old, suspend) in [(&stopped, suspend(true)), (&stopped, suspend(false)), (&running, suspend(true))] {
            assert_eq!(errors(old, &[change.clone(), suspend]), Vec::<String>::new());
        }
        let rejected = errors(&running, &[change]);
        assert_one(&rejected, "while the JobSet runs: set spec.suspend to true with this change or before it");
        let path = format!("spec.replicatedJobs[1].template.spec.{path}: Invalid value: ");
        assert!(rejected[0].starts_with(&path), "{rejected:?}");
    }

    #[test]
    fn scheduling_fields_can_be_removed_while_suspended() {
        let given = [
            (&*format!("{POD}/metadata"), json!({ "labels": { "a": "b" }, "annotations": { "c": "d" } })),
            (&*format!("{POD}/spec/nodeSelector"), json!({ "flavor": "spot" })),
            (&*format!("{POD}/spec/containers/0/resources"), resources()),
            ("/spec/suspend", json!(true)),
        ];
        let mut taken = given.clone();
        for (_, value) in &mut taken {
            *value = Value::Null;
        }
        assert_eq!(errors(&jobset(&given), &taken), Vec::<String>::new());
    }

    #[test]
    fn claims_of_container_stay_while_its_requests_change() {
        let container = format!("{POD}/spec/containers/0/resources");
        let with = |claims: Value, cpu: &str| json!({ "claims": claims, "requests": { "cpu": cpu } });
        let claims = json!([{ "name": "gpu" }]);
        let old = jobset(&[
            (
                &format!("{POD}/spec/resourceClaims"),
                json!(["gpu", "other"].map(|name| json!({ "name": name, "resourceClaimName": name }))),
            ),
            (&container, with(claims.clone(), "1")),
            ("/spec/suspend", json!(true)),
        ]);
        assert_eq!(errors(&old, &[(&container, with(claims, "2"))]), Vec::<String>::new());
        let rejected = errors(&old, &[(&container, with(Value::Null, "2"))]);
        assert_one(&rejected, r#"resources.claims: Required value: field is immutable: must stay [{"name":"gpu"}]"#);
        let rejected = errors(&old, &[(&container, with(json!([{ "name": "other" }]), "2"))]);
        assert_one(
            &rejected,
            r#"resources.claims[0].name: Invalid value: "other": field is immutable: must stay "gpu""#,
        );
    }

    #[test]
    fn container_renamed_while_suspended_keeps_no_resources() {
        let old = jobset(&[("/spec/suspend", json!(true))]);
        let other = json!([{ "name": "other", "image": "main:1", "resources": resources() }]);
        let errors = errors(&old, &[(&format!("{POD}/spec/containers"), other)]);
        assert_eq!(errors.len(), 2, "{errors:?}");
        assert!(errors.iter().all(|error| error.contains("as the JobSet was created")), "{errors:?}");
    }
}
