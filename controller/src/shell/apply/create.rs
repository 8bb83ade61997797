//! Creates the objects of a JobSet.

use std::fmt::Debug;

use jobset_api::labels;
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
        unusable: fn(&K) -> Option<&'static str>,
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

/// Why a Service cannot be the one of a JobSet.
pub(super) fn not_headless(service: &Service) -> Option<&'static str> {
    let ip = service.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref());
    (ip != Some("None")).then_some("and is not headless")
}
