//! Writes the Events that the controller would write.

use anyhow::Result;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::PostParams;
use serde_json::json;

use crate::fixture::Space;

/// The Events of a restart, and when each was written, in milliseconds after the first failure.
pub(crate) const RESTART: [(&str, i64); 3] = [("Restarting", 500), ("BarrierLifted", 2000), ("Restarted", 3500)];

impl Space {
    /// Writes an Event about the second restart of the JobSet with this name and UID, whose first worker failed at `start`.
    pub(crate) async fn event(
        &self,
        (jobset, uid): (&str, &str),
        start: Timestamp,
        (reason, millis): (&str, i64),
    ) -> Result<()> {
        // Events have microseconds.
        let at = Timestamp::from_microsecond(start.as_microsecond() + millis * 1000)?;
        let event = json!({
            "metadata": {"generateName": "train-", "annotations": {
                "jobset.sigs.k8s.io/group-restarts": "2", "jobset.sigs.k8s.io/restarts-count-towards-max": "1",
                "jobset.sigs.k8s.io/synced-epoch": if reason == "Restarting" { "2" } else { "3" }, "jobset.sigs.k8s.io/failed-at": start.to_string()}},
            "eventTime": format!("{at:.6}"), "reason": reason, "note": "in place, from epoch 2 to 3: Pod train-workers-0-0-4z7hv on node node-1 failed in epoch 2, disrupted (EvictionByEvictionAPI: drained); not counted by rule maintenance",
            "type": "Normal", "action": "Reconcile", "reportingController": "jobset-controller", "reportingInstance": "a",
            "regarding": {"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "name": jobset, "namespace": self.namespace, "uid": uid},
        });
        let events: Api<Event> = Api::default_namespaced(self.client.clone());
        events.create(&PostParams::default(), &serde_json::from_value(event)?).await?;
        Ok(())
    }
}
