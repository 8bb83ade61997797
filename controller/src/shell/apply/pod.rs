//! Deletes Pods, each for its reason.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::{Done, NOTHING, Of};
use crate::engine::dialect;
use crate::plan::PodDeletion;
use crate::shell::error::{Error, is_gone};

/// Reason of the condition of a misplaced Pod, as the Go JobSet gives it: podFailurePolicies may not read it, people do.
const MISPLACED: &str = "ExclusivePlacementViolation";

impl Of<'_> {
    pub(super) async fn delete_pod(&self, name: &str, uid: String, reason: PodDeletion) -> Result<Done, Error> {
        let mut resource_version = None;
        match reason {
            PodDeletion::EpochAbove(max) => match self.pod_above(name, &uid, max).await? {
                // Only as it was read: its agent may be about to report another epoch.
                Some(version) if self.is_up_to_date().await? => resource_version = Some(version),
                // By the epochs that there are now, the report may be the right one.
                _ => return Ok(NOTHING),
            },
            PodDeletion::Misplaced => {
                if !self.mark_misplaced(name, &uid).await? {
                    return Ok(NOTHING);
                }
            }
            PodDeletion::AgentAlone | PodDeletion::Unreachable => {}
        }
        let api: Api<Pod> = self.api();
        let params = DeleteParams {
            preconditions: Some(Preconditions { uid: Some(uid), resource_version }),
            grace_period_seconds: (reason == PodDeletion::Unreachable).then_some(0),
            ..DeleteParams::default()
        };
        match api.delete(name, &params).await {
            Ok(_) => Ok(NOTHING),
            Err(error) if is_gone(&error) => Ok(NOTHING),
            Err(error) => Err(Error::DeletePod(self.child(name), error)),
        }
    }

    /// The version at which this Pod reports an epoch above the maximum, if it still does: what the API server holds now,
    /// not what a watch has shown.
    async fn pod_above(&self, name: &str, uid: &str, max: i32) -> Result<Option<String>, Error> {
        let api: Api<Pod> = self.api();
        let pod = api.get_metadata_opt(name).await.map_err(|error| Error::ReadPod(self.child(name), error))?;
        let pod = pod.filter(|pod| pod.metadata.uid.as_deref() == Some(uid));
        let pod = pod.filter(|pod| dialect::reported(pod.annotations()).number().is_some_and(|epoch| epoch > max));
        Ok(pod.and_then(|pod| pod.resource_version()))
    }

    /// Marks the Pod as disrupted, so that a podFailurePolicy can tell its end from a failure. Whether it is still there.
    async fn mark_misplaced(&self, name: &str, uid: &str) -> Result<bool, Error> {
        let api: Api<Pod> = self.api();
        let condition = json!({
            "type": "DisruptionTarget",
            "status": "True",
            "reason": MISPLACED,
            "message": "placed in another topology domain than the leader of its Job",
            "lastTransitionTime": Timestamp::now(),
        });
        let patch = json!({"metadata": {"uid": uid}, "status": {"conditions": [condition]}});
        match api.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch)).await {
            Ok(_) => Ok(true),
            Err(error) if is_gone(&error) => Ok(false),
            Err(error) => Err(Error::MarkPod(self.child(name), error)),
        }
    }
}
