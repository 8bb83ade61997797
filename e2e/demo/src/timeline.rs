//! From what is seen of Pods and of the JobSet to the lines of a timeline. Pure.

use std::collections::{BTreeMap, HashSet};
use std::fmt;

use jobset_api::{JobSet, labels};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::ResourceExt;

use jobset_harness::journal::Entry;

/// The columns of [`Line`].
pub(super) const HEADER: &str = "seconds  pod                              node     UID   epoch    S    D  what";

/// Reasons of the kubelet for not starting a container.
const IMAGE_REASONS: [&str; 4] = ["ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"];

/// One line: a change that a person can follow.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    pub(super) pod: String,
    pub(super) node: String,
    pub(super) uid: &'static str,
    pub(super) epoch: String,
    pub(super) synced: i32,
    pub(super) deprecated: i32,
    pub(super) what: String,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pod, node, uid, epoch, synced, deprecated, what } = self;
        write!(f, "{pod:<32} {node:<8} {uid:<5} {epoch:>5} {synced:>4} {deprecated:>4}  {what}")
    }
}

/// What was seen last.
#[derive(Debug, Default)]
pub(super) struct Timeline {
    pods: BTreeMap<String, PodState>,
    /// UIDs of the Pods that ran before the failure.
    before: HashSet<String>,
    synced: i32,
    deprecated: i32,
    restarts: i32,
}

#[derive(Clone, Debug, Default, PartialEq)]
struct PodState {
    uid: String,
    node: String,
    epoch: String,
    what: String,
}

impl Timeline {
    /// From now on, Pods seen so far have kept their UID, and others are new.
    pub(super) fn mark(&mut self) {
        self.before = self.pods.values().map(|pod| pod.uid.clone()).collect();
    }

    /// Whether this UID is of a Pod that ran before the failure.
    pub(super) fn is_kept(&self, uid: &str) -> bool {
        self.before.contains(uid)
    }

    /// A Pod was seen.
    pub(super) fn pod(&mut self, pod: &Pod) -> Option<Line> {
        let name = pod.name_any();
        let state = PodState {
            uid: pod.uid().unwrap_or_default(),
            node: pod.spec.as_ref().and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
            epoch: pod.annotations().get(labels::EPOCH).cloned().unwrap_or_default(),
            what: describe(pod),
        };
        let changed = self.pods.get(&name) != Some(&state);
        self.pods.insert(name.clone(), state.clone());
        changed.then(|| self.line(&name, &state, &state.what))
    }

    pub(super) fn gone(&mut self, pod: &Pod) -> Option<Line> {
        let name = pod.name_any();
        let state = self.pods.remove(&name)?;
        Some(self.line(&name, &state, "deleted"))
    }

    /// The JobSet was seen.
    pub(super) fn jobset(&mut self, jobset: &JobSet) -> Option<Line> {
        let status = jobset.status.as_ref()?;
        let mut what = Vec::new();
        if status.deprecated_epoch != self.deprecated {
            what.push(format!("deprecatedEpoch = {}", status.deprecated_epoch));
        }
        if status.synced_epoch != self.synced {
            what.push(format!("syncedEpoch = {}: barrier lifted", status.synced_epoch));
        }
        if status.restarts != self.restarts {
            what.push(format!("restarts = {}: recreating all Jobs", status.restarts));
        }
        (self.deprecated, self.synced, self.restarts) = (status.deprecated_epoch, status.synced_epoch, status.restarts);
        let state = PodState::default();
        (!what.is_empty()).then(|| self.line(&format!("jobset/{}", jobset.name_any()), &state, &what.join(", ")))
    }

    /// A worker wrote something down.
    pub(super) fn journal(&self, entry: &Entry) -> Line {
        let what = match entry.code {
            Some(code) => format!("worker ended, exit code {code}"),
            None => "WORKER STARTED".to_owned(),
        };
        let state = self.pods.get(&entry.pod).cloned().unwrap_or_default();
        let node = entry.node.clone().unwrap_or_default();
        self.line(&entry.pod, &PodState { uid: entry.uid.clone(), node, ..state }, &what)
    }

    fn line(&self, pod: &str, state: &PodState, what: &str) -> Line {
        let uid = match state.uid.as_str() {
            "" => "",
            uid if self.is_kept(uid) => "kept",
            _ => "new",
        };
        Line {
            pod: pod.to_owned(),
            node: state.node.clone(),
            uid,
            epoch: state.epoch.clone(),
            synced: self.synced,
            deprecated: self.deprecated,
            what: what.to_owned(),
        }
    }
}

/// The state of a worker Pod in a few words.
fn describe(pod: &Pod) -> String {
    let Some(status) = &pod.status else { return "created".to_owned() };
    let phase = status.phase.as_deref().unwrap_or_default();
    if pod.metadata.deletion_timestamp.is_some() {
        return "terminating".to_owned();
    }
    if phase == "Succeeded" || phase == "Failed" {
        return phase.to_lowercase();
    }
    let find = |statuses: &Option<Vec<ContainerStatus>>, name: &str| {
        statuses.iter().flatten().find(|status| status.name == name).cloned()
    };
    let worker = find(&status.container_statuses, "worker").and_then(|worker| worker.state);
    if let Some(worker) = worker {
        if worker.running.is_some() {
            return "worker runs".to_owned();
        }
        if let Some(ended) = worker.terminated {
            return format!("seen: worker ended, exit code {}", ended.exit_code);
        }
    }
    let agent = find(&status.init_container_statuses, "agent");
    match agent {
        Some(agent) if agent.started == Some(true) => "barrier lifted".to_owned(),
        Some(agent) if agent.state.as_ref().is_some_and(|state| state.running.is_some()) => {
            "waits at the barrier".to_owned()
        }
        Some(_) => "agent starts".to_owned(),
        None => phase.to_lowercase(),
    }
}

/// What keeps a Pod from starting, if it is an image.
pub(super) fn image_trouble(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let inits = status.init_container_statuses.iter().flatten();
    let waiting = |status: &ContainerStatus| {
        let waiting = status.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.as_deref().filter(|reason| IMAGE_REASONS.contains(reason))?;
        Some(format!("{}: {reason} {}", pod.name_any(), status.image))
    };
    inits.chain(status.container_statuses.iter().flatten()).find_map(waiting)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_image_that_is_not_there_is_named() {
        let waits = |reason: &str| {
            let mut pod = json!({
                "metadata": {"name": "a"}, "spec": {"containers": []},
                "status": {"containerStatuses": [
                    {"name": "worker", "image": "localhost/w:dev", "imageID": "", "ready": false, "restartCount": 0},
                ]},
            });
            pod["status"]["containerStatuses"][0]["state"] = json!({"waiting": {"reason": reason}});
            image_trouble(&serde_json::from_value(pod).unwrap())
        };
        assert_eq!(waits("ErrImagePull").as_deref(), Some("a: ErrImagePull localhost/w:dev"));
        assert_eq!(waits("PodInitializing"), None);
    }

    fn pod(uid: &str, epoch: &str, running: bool) -> Pod {
        let state = if running { json!({"running": {}}) } else { json!({"terminated": {"exitCode": 3}}) };
        serde_json::from_value(json!({
            "metadata": {"name": "a", "uid": uid, "annotations": {"jobset.sigs.k8s.io/epoch": epoch}},
            "spec": {"nodeName": "node-1", "containers": []},
            "status": {"phase": "Running", "containerStatuses": [{
                "name": "worker", "state": state, "image": "", "imageID": "", "ready": running, "restartCount": 0,
            }]},
        }))
        .unwrap()
    }

    #[test]
    fn only_changes_become_lines_and_a_pod_is_kept_or_new() {
        let mut timeline = Timeline::default();
        assert!(timeline.pod(&pod("1", "1", true)).is_some());
        timeline.mark();
        assert_eq!(timeline.pod(&pod("1", "1", true)), None);
        let ended = timeline.pod(&pod("1", "1", false)).unwrap();
        assert_eq!((ended.uid, ended.what.as_str()), ("kept", "seen: worker ended, exit code 3"));
        let replaced = timeline.pod(&pod("2", "2", true)).unwrap();
        assert_eq!((replaced.uid, replaced.epoch.as_str()), ("new", "2"));
    }

    #[test]
    fn a_jobset_line_names_what_was_written() {
        let mut timeline = Timeline::default();
        let jobset: JobSet = serde_json::from_value(json!({
            "metadata": {"name": "train"}, "spec": {}, "status": {"syncedEpoch": 2, "deprecatedEpoch": 1},
        }))
        .unwrap();
        let line = timeline.jobset(&jobset).unwrap();
        assert_eq!(line.what, "deprecatedEpoch = 1, syncedEpoch = 2: barrier lifted");
        assert_eq!(timeline.jobset(&jobset), None);
    }
}
