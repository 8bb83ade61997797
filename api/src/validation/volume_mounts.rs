//! Volumes that containers mount: volumes of the Pod, or claims of the JobSet.

use std::collections::HashSet;

use super::subject::{Subject, for_each_container};
use crate::field::{Errors, Path};

const EXISTS: &str = "must be the name of one of the Pod's volumes, or of a claim of spec.volumeClaimPolicies";

/// Rejects mounts of volumes that do not exist: the API server would refuse the Jobs.
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

    use super::super::testing::{Changes, admission_errors, assert_one, jobset};

    const POD: &str = "/spec/replicatedJobs/1/template/spec/template/spec";

    fn mounting(list: &str, changes: Changes<'_>) -> Vec<String> {
        let container = json!([{ "name": list.to_lowercase(), "image": "main:1", "volumeMounts": [{ "name": "data", "mountPath": "/data" }] }]);
        let field = format!("{POD}/{list}");
        let mut all = vec![(&*field, container)];
        all.extend(changes.iter().cloned());
        admission_errors(&jobset(&all))
    }

    #[rstest]
    #[case::volume("containers", &[("/spec/replicatedJobs/1/template/spec/template/spec/volumes", json!([{ "name": "data", "emptyDir": {} }]))])]
    #[case::claim("initContainers", &[("/spec/volumeClaimPolicies", json!([{ "templates": [{ "metadata": { "name": "data" }, "spec": {} }] }]))])]
    fn mount_of_existing_volume_is_accepted(#[case] list: &str, #[case] changes: &[(&str, Value)]) {
        assert_eq!(mounting(list, changes), Vec::<String>::new());
    }

    #[rstest]
    #[case("containers")]
    #[case("initContainers")]
    fn mount_of_missing_volume_is_rejected(#[case] list: &str) {
        let expected =
            format!("template.spec.{list}[0].volumeMounts[0].name: Not found: \"data\": must be the name of one");
        assert_one(&mounting(list, &[]), &expected);
    }
}
