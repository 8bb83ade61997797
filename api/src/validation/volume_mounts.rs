//! Volumes that containers mount: of their Pod, or of a claim of the JobSet, which becomes one.

use std::collections::HashSet;

use super::subject::{Subject, for_each_container};
use crate::field::{Errors, Path};

const EXISTS: &str = "must be the name of one of the Pod's volumes, or of a claim of spec.volumeClaimPolicies";

/// Refuses mounts of volumes that Pods do not have. Kubernetes would refuse the Jobs, for it knows nothing of the claims.
pub(super) fn check(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    let templates = subject.spec.volume_claim_policies.iter().flat_map(|policy| &policy.templates);
    let claims: HashSet<_> = templates.filter_map(|template| template.metadata.name.as_deref()).collect();
    subject.for_each_pod(spec, |pod, path| {
        let volumes: HashSet<_> = pod.volumes.iter().flatten().map(|volume| volume.name.as_str()).collect();
        for_each_container(pod, path, |container, path| {
            let mounts = path.child("volumeMounts");
            for (index, mount) in container.volume_mounts.iter().flatten().enumerate() {
                if !volumes.contains(mount.name.as_str()) && !claims.contains(mount.name.as_str()) {
                    errors.not_found(&mounts.index(index).child("name"), &mount.name, EXISTS);
                }
            }
        });
    });
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::testing::{Changes, admissions, assert_one, jobset};

    const POD: &str = "/spec/replicatedJobs/1/template/spec/template/spec";

    fn mounting(list: &str, changes: Changes<'_>) -> Vec<String> {
        let container =
            json!([{ "name": "main", "image": "main:1", "volumeMounts": [{ "name": "data", "mountPath": "/data" }] }]);
        let field = format!("{POD}/{list}");
        let mut all = vec![(&*field, container)];
        all.extend(changes.iter().cloned());
        admissions(&jobset(&all))
    }

    #[rstest]
    #[case::volume("containers", &[("/spec/replicatedJobs/1/template/spec/template/spec/volumes", json!([{ "name": "data", "emptyDir": {} }]))])]
    #[case::claim("initContainers", &[("/spec/volumeClaimPolicies", json!([{ "templates": [{ "metadata": { "name": "data" }, "spec": {} }] }]))])]
    fn what_the_pod_has_can_be_mounted(#[case] list: &str, #[case] changes: &[(&str, Value)]) {
        assert_eq!(mounting(list, changes), Vec::<String>::new());
    }

    #[rstest]
    #[case("containers")]
    #[case("initContainers")]
    fn what_it_does_not_have_is_refused(#[case] list: &str) {
        let expected =
            format!("template.spec.{list}[0].volumeMounts[0].name: Not found: \"data\": must be the name of one");
        assert_one(&mounting(list, &[]), &expected);
    }
}
