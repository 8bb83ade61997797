//! Other tenants: JobSets in another namespace, of more Jobs than one work creates.

use std::sync::Arc;
use std::time::Duration;

use jobset_api::{JobSet, labels};
use jobset_rules::{Action, build};
use jobset_store::{JobView, Key, Kind, OwnedView, Versions, View};
use kube::ResourceExt;
use serde_json::json;

use super::cluster::SimulatedCluster;
use crate::{Outcome, Request, SLICE, Work};

/// Most JobSets of other tenants.
const MOST: usize = 3;

impl SimulatedCluster {
    /// Another tenant creates a suspended JobSet.
    pub(super) fn create_other(&mut self) {
        if self.tenants >= MOST {
            return;
        }
        let name = format!("other-{}", self.tenants);
        self.tenants += 1;
        self.trace(|| format!("another tenant creates {name}"));
        let template = json!({"spec": {"template": {"spec": {"containers": []}}}});
        let jobset: JobSet = serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "elsewhere", "uid": name, "generation": 1,
                         "annotations": {(labels::RESTART_BUDGET): "Shared"}},
            "spec": {"suspend": true, "replicatedJobs": [{"name": "w", "replicas": SLICE + 10, "template": template}]},
        }))
        .unwrap();
        self.put_other_jobset(jobset);
    }

    fn put_other_jobset(&mut self, mut jobset: JobSet) -> u64 {
        let key = Key::of(&jobset);
        self.api.put_other(key.clone(), &key, |version| {
            jobset.metadata.resource_version = Some(version);
            View::JobSet(Arc::new(jobset))
        })
    }

    /// The requests of the oldest work on another tenant's JobSet end.
    pub(super) fn finish_other(&mut self) -> bool {
        let Some(Work { key, number, jobset, actions, status, .. }) = self.controller.others.pop_front() else {
            return false;
        };
        let mut written = Versions::NONE;
        let accepted = actions.iter().map(Request::of).collect();
        for action in actions {
            let (kind, version) = match action {
                Action::CreateJob(job) => {
                    let mut job = build::job(&jobset, &job);
                    let object = Key::of(&job);
                    job.metadata.uid = Some(job.name_any());
                    let version = self.api.put_other(object, &key, |version| {
                        job.metadata.resource_version = Some(version);
                        View::Job(JobView::of(&job))
                    });
                    (Kind::Job, version)
                }
                Action::CreateService { .. } => {
                    let view = |version: String| {
                        let version = version.parse().unwrap_or_default();
                        View::Owned(Kind::Service, OwnedView { version, ..OwnedView::default() })
                    };
                    (Kind::Service, self.api.put_other(key.clone(), &key, view))
                }
                _ => continue,
            };
            written.raise(Versions::of(kind, version));
        }
        let has_status = status.is_some();
        if has_status {
            let version = self.put_other_jobset(JobSet { status, ..JobSet::clone(&jobset) });
            written.raise(Versions::of(Kind::JobSet, version));
        }
        let now = self.controller_now(Duration::ZERO);
        let outcome = Outcome { written, accepted, status: Some(Ok(has_status)), ..Outcome::default() };
        self.controller.engine.finish(&key, number, outcome, now);
        self.worked = true;
        true
    }
}
