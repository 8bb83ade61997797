//! Deletes Pods, and releases failed Pods.

use jobset_api::event::{EXCLUSIVE_PLACEMENT_VIOLATION, LEAVES_CORDONED_NODE, NODE_AVOIDED, NODE_LOST};
use jobset_objects::{JOB_TRACKING, PartialPod};
use jobset_rules::PodDeletion;
use jobset_store::{Kind, dialect};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, Preconditions};
use serde_json::{Value, json};

use super::objects::Objects;
use super::{Actor, Done, NOTHING};
use crate::shell::error::ApplyError;

impl Actor {
    fn pods(&self) -> Objects<'_, PartialPod> {
        self.objects(Kind::Pod)
    }

    pub(super) async fn delete_pod(&self, name: &str, uid: String, reason: PodDeletion) -> Result<Done, ApplyError> {
        let resource_version = match reason {
            PodDeletion::EpochAbove(max) => match self.version_above(name, &uid, max).await? {
                // The precondition protects a Pod whose agent reports another epoch in the meantime.
                Some(version) if self.is_up_to_date().await? => Some(version),
                // The epochs have changed: the report may be right now.
                _ => return Ok(NOTHING),
            },
            // The next epoch may have begun, and the worker of the Pod may run in it.
            PodDeletion::LeavesCordoned | PodDeletion::Moved | PodDeletion::Unschedulable
                if !self.is_up_to_date().await? =>
            {
                return Ok(NOTHING);
            }
            PodDeletion::Misplaced
            | PodDeletion::Moved
            | PodDeletion::Unschedulable
            | PodDeletion::LeavesCordoned
            | PodDeletion::AgentAlone
            | PodDeletion::CannotReturn
            | PodDeletion::FailsBeforeWorker
            | PodDeletion::NodeLost => None,
        };
        if let Some(mark) = mark_of(reason)
            && !self.mark(name, &uid, mark).await?
        {
            return Ok(NOTHING);
        }
        let params = DeleteParams {
            preconditions: Some(Preconditions { uid: Some(uid), resource_version }),
            grace_period_seconds: (reason == PodDeletion::NodeLost).then_some(0),
            ..DeleteParams::default()
        };
        self.pods().delete(name, &params).await?;
        Ok(NOTHING)
    }

    /// Removes the finalizer of the Job controller, and no other one.
    pub(super) async fn release_pod(&self, name: &str, uid: &str) -> Result<Done, ApplyError> {
        let metadata = json!({"uid": uid, "$deleteFromPrimitiveList/finalizers": [JOB_TRACKING]});
        let released = self.pods().patch(name, &Patch::Strategic(json!({"metadata": metadata}))).await;
        Ok(self.pods().written(released.map_err(ApplyError::of_release)?.as_ref()))
    }

    /// Reads the Pod. Returns its version if it still reports an epoch above the maximum.
    async fn version_above(&self, name: &str, uid: &str, max: i32) -> Result<Option<String>, ApplyError> {
        let pod = self.pods().get(name).await?.filter(|pod| pod.metadata.uid.as_deref() == Some(uid));
        let pod = pod.filter(|pod| dialect::reported(pod.annotations()).number().is_some_and(|epoch| epoch > max));
        Ok(pod.and_then(|pod| pod.resource_version()))
    }

    /// Changes the status of the Pod. Returns whether the Pod still exists.
    async fn mark(&self, name: &str, uid: &str, status: Value) -> Result<bool, ApplyError> {
        let patch = Patch::Strategic(json!({"metadata": {"uid": uid}, "status": status}));
        Ok(self.pods().patch_status(name, &patch).await?.is_some())
    }
}

/// What the status of a Pod says of its deletion beforehand, so that a podFailurePolicy can tell that from a failure. A Pod whose node is
/// lost is marked as failed, too, as the garbage collector of Pods does: a Job that replaces only failed Pods waits for the phase, which
/// no kubelet writes any more.
fn mark_of(deletion: PodDeletion) -> Option<Value> {
    let (reason, message) = match deletion {
        PodDeletion::Misplaced => {
            (EXCLUSIVE_PLACEMENT_VIOLATION, "placed in another topology domain than the leader of its Job")
        }
        PodDeletion::Moved => (NODE_AVOIDED, "its JobSet avoids the node"),
        PodDeletion::LeavesCordoned => (LEAVES_CORDONED_NODE, "leaves its node, which is cordoned"),
        PodDeletion::NodeLost => (NODE_LOST, "given up: its node is unreachable"),
        _ => return None,
    };
    let now = Timestamp::now();
    let disruption = json!({"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message, "lastTransitionTime": now});
    let mut status = json!({ "conditions": [disruption] });
    if deletion == PodDeletion::NodeLost {
        status["phase"] = json!("Failed");
    }
    Some(status)
}
