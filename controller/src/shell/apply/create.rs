//! Creates the objects of a JobSet.

use std::fmt::Debug;

use jobset_api::{JobSet, ReplicatedJob, labels};
use jobset_store::{Kind, controller};
use k8s_openapi::api::core::v1::Service;
use kube::api::Patch;
use kube::core::NamespaceResourceScope;
use kube::{Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{Actor, Done};
use crate::shell::error::ApplyError;

impl Actor {
    /// Creates an object. If an object of its name exists, decides whether that one serves as well. `unusable` returns why it
    /// cannot, whoever owns it.
    pub(super) async fn create<K>(
        &self,
        kind: Kind,
        object: &K,
        unusable: impl Fn(&K) -> Option<&'static str>,
    ) -> Result<Done, ApplyError>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        let (objects, name) = (self.objects::<K>(kind), object.name_any());
        let conflict = match objects.create(object).await {
            Err(error) if error.code() == Some(409) => error,
            created => return created.map(|created| objects.written(Some(&created))),
        };
        // An object that is gone by now leaves the conflict, and the next reconciliation creates another one.
        let Some(found) = objects.get(&name).await? else { return Err(conflict) };
        let owner = controller(&found);
        let is_own = owner.as_ref().is_some_and(|owner| self.jobset.metadata.uid.as_ref() == Some(&owner.uid));
        let reason = match (kind, owner, unusable(&found)) {
            (_, _, Some(reason)) => reason.to_owned(),
            // The watch shows the object, and the rules decide about it.
            _ if found.labels().get(labels::JOBSET_NAME) == Some(&self.key.name) => {
                return Ok(objects.written(Some(&found)));
            }
            // The Go JobSet does not label its Services.
            (Kind::Service | Kind::Claim, Some(_), _) if is_own => {
                let labels = json!({labels::JOBSET_NAME: self.key.name});
                let patch = Patch::Merge(json!({"metadata": {"uid": found.uid(), "labels": labels}}));
                let labelled = objects.patch(&name, &patch).await?.ok_or(conflict)?;
                return Ok(objects.written(Some(&labelled)));
            }
            // JobSets may share a Service. A claim without an owner is one that the user has created.
            (Kind::Service, ..) | (Kind::Claim, None, _) => return Ok(Done::Provided),
            _ if is_own => format!("but without the label {}", labels::JOBSET_NAME),
            (_, Some(owner), _) => format!("controlled by {} {}", owner.kind, owner.name),
            (_, None, _) => "controlled by nobody".to_owned(),
        };
        Err(ApplyError::Taken { kind, object: objects.path(&name), reason })
    }
}

/// Why a Service cannot give names to the Pods of a JobSet: JobSets may share one, if it selects the Pods of each.
pub(super) fn gives_no_names(jobset: &JobSet, service: &Service) -> Option<&'static str> {
    let spec = service.spec.as_ref();
    if spec.and_then(|spec| spec.cluster_ip.as_deref()) != Some("None") {
        return Some("and is not headless");
    }
    let selector = spec.and_then(|spec| spec.selector.as_ref()).filter(|selector| !selector.is_empty());
    let selects = |group: &ReplicatedJob| {
        let pod = group.template.spec.template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
        let has = |key: &str, value: &str| match key {
            labels::JOBSET_NAME => jobset.metadata.name.as_deref() == Some(value),
            labels::JOBSET_UID => jobset.metadata.uid.as_deref() == Some(value),
            labels::REPLICATED_JOB_NAME => group.name == value,
            // Other labels of the controller differ from Pod to Pod, or are those of all JobSets.
            key => pod.is_some_and(|labels| labels.get(key).is_some_and(|label| label == value)),
        };
        // Whoever leaves the selector out writes the endpoints.
        selector.is_none_or(|selector| selector.iter().all(|(key, value)| has(key, value)))
    };
    // A Service may be for one replicatedJob, whose Pods the others look for.
    let selects_some = jobset.spec.replicated_jobs.is_empty() || jobset.spec.replicated_jobs.iter().any(selects);
    (!selects_some).then_some("and does not select the Pods of this JobSet, which have no names by it")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    #[rstest]
    #[case::own(json!({ "jobset.sigs.k8s.io/jobset-name": "train" }), None)]
    #[case::label_of_the_template(json!({ "app": "a" }), None)]
    #[case::one_replicated_job(json!({ "jobset.sigs.k8s.io/replicatedjob-name": "w" }), None)]
    #[case::another_jobset(json!({ "jobset.sigs.k8s.io/jobset-name": "other" }), Some("does not select"))]
    #[case::both_labels(json!({ "app": "a", "jobset.sigs.k8s.io/jobset-name": "other" }), Some("does not select"))]
    #[case::endpoints_of_the_user(json!({}), None)]
    fn service_that_does_not_select_the_pods_is_unusable(#[case] selector: Value, #[case] expected: Option<&str>) {
        let jobset: JobSet = serde_json::from_value(json!({
            "metadata": { "name": "train", "uid": "u" },
            "spec": { "replicatedJobs": [
                { "name": "driver", "template": { "spec": {} } },
                { "name": "w", "template": { "spec": { "template": { "metadata": { "labels": { "app": "a" } } } } } },
            ] },
        }))
        .unwrap();
        let service =
            |ip: &str| serde_json::from_value(json!({ "spec": { "clusterIP": ip, "selector": selector } })).unwrap();
        let found = gives_no_names(&jobset, &service("None"));
        assert!(found.map_or(expected.is_none(), |found| expected.is_some_and(|it| found.contains(it))), "{found:?}");
        assert_eq!(gives_no_names(&jobset, &service("10.96.0.9")), Some("and is not headless"));
    }
}
