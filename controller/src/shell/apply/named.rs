//! Creates what JobSets find by its name alone, and may share: Services, PersistentVolumeClaims and RoleBindings.

use std::fmt::Debug;

use jobset_api::labels;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{Patch, PatchParams, PostParams};
use kube::core::NamespaceResourceScope;
use kube::{Api, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::{Done, Of};
use crate::engine::{Key, Kind, Versions, controller, version};
use crate::shell::error::{Error, code};

impl Of<'_> {
    pub(super) async fn create_service(&self, service: &Service) -> Result<Done, Error> {
        let key = Key::of(service);
        let found = match self.create(service).await {
            Ok(Created::New(service)) => return Ok(service_written(&service)),
            Ok(Created::Existing(found)) => found,
            Err(error) => return Err(Error::CreateService(key, error)),
        };
        let headless = found.spec.as_ref().and_then(|spec| spec.cluster_ip.as_deref()) == Some("None");
        if !headless {
            return Err(Error::ServiceTaken { service: key, reason: "and is not headless".to_owned() });
        }
        match self.belongs(&found) {
            Belongs::Seen => Ok(service_written(&found)),
            Belongs::Unlabelled => {
                let labelled = self.label(&found).await.map_err(|error| Error::LabelService(key, error))?;
                Ok(service_written(&labelled))
            }
            // Several JobSets may share one subdomain, and with it one Service.
            Belongs::Nobody | Belongs::Another(_) => Ok(Done::Provided),
        }
    }

    pub(super) async fn create_claim(&self, claim: &PersistentVolumeClaim) -> Result<Done, Error> {
        let key = Key::of(claim);
        let found = match self.create(claim).await {
            Ok(Created::New(claim)) => return Ok(claim_written(&claim)),
            Ok(Created::Existing(found)) => found,
            Err(error) => return Err(Error::CreateClaim(key, error)),
        };
        match self.belongs(&found) {
            Belongs::Seen => Ok(claim_written(&found)),
            Belongs::Unlabelled => {
                let labelled = self.label(&found).await.map_err(|error| Error::LabelClaim(key, error))?;
                Ok(claim_written(&labelled))
            }
            // The user's own, made beforehand.
            Belongs::Nobody => Ok(Done::Provided),
            Belongs::Another(owner) => Err(Error::ClaimTaken { claim: key, reason: format!("controlled by {owner}") }),
        }
    }

    pub(super) async fn create_role_binding(&self, binding: &RoleBinding) -> Result<Done, Error> {
        let key = Key::of(binding);
        let found = match self.create(binding).await {
            Ok(Created::New(binding)) => return Ok(role_binding_written(&binding)),
            Ok(Created::Existing(found)) => found,
            Err(error) => return Err(Error::CreateRoleBinding(key, error)),
        };
        // Whom it binds to what is not looked at: not even one that nobody controls is taken for that of the JobSet.
        let owner = match self.belongs(&found) {
            Belongs::Seen => return Ok(role_binding_written(&found)),
            Belongs::Another(owner) => owner,
            Belongs::Unlabelled | Belongs::Nobody => "nobody".to_owned(),
        };
        Err(Error::RoleBindingTaken { binding: key, reason: format!("controlled by {owner}") })
    }

    async fn create<K>(&self, object: &K) -> Result<Created<K>, kube::Error>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
    {
        let api: Api<K> = self.api();
        match api.create(&PostParams::default(), object).await {
            Ok(created) => Ok(Created::New(created)),
            Err(conflict) if code(&conflict) == Some(409) => {
                // Without it now, the conflict stands: the next pass creates it.
                api.get_opt(&object.name_any()).await?.map(Created::Existing).ok_or(conflict)
            }
            Err(error) => Err(error),
        }
    }

    /// Puts the label on by which the JobSet's children are watched.
    async fn label<K>(&self, object: &K) -> Result<K, kube::Error>
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()> + Clone + Debug + DeserializeOwned,
    {
        let api: Api<K> = self.api();
        let labels = json!({labels::JOBSET_NAME: self.key.name});
        let patch = json!({"metadata": {"uid": object.uid(), "labels": labels}});
        api.patch(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await
    }

    fn belongs(&self, object: &impl ResourceExt) -> Belongs {
        let label = object.labels().get(labels::JOBSET_NAME);
        match (controller(object), label) {
            (Some(owner), _) if self.jobset.metadata.uid.as_ref() != Some(&owner.uid) => {
                Belongs::Another(format!("{} {}", owner.kind, owner.name))
            }
            (_, Some(label)) if *label == self.key.name => Belongs::Seen,
            // The Go JobSet gives its Services no label.
            (Some(_), _) => Belongs::Unlabelled,
            (None, _) => Belongs::Nobody,
        }
    }
}

enum Created<K> {
    New(K),
    Existing(K),
}

/// To whom something that exists belongs.
enum Belongs {
    /// To the JobSet, and it carries the label by which it is watched.
    Seen,
    /// To the JobSet, without that label.
    Unlabelled,
    /// To this other object.
    Another(String),
    /// To nobody.
    Nobody,
}

fn service_written(service: &Service) -> Done {
    Done::Written(Versions::of(Kind::Service, version(service)))
}

fn claim_written(claim: &PersistentVolumeClaim) -> Done {
    Done::Written(Versions::of(Kind::Claim, version(claim)))
}

fn role_binding_written(binding: &RoleBinding) -> Done {
    Done::Written(Versions::of(Kind::RoleBinding, version(binding)))
}
