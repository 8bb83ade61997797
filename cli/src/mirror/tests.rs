//! The mirror is told events and asked what exists.

use std::time::Duration;

use jobset_objects::PartialPod;
use kube::runtime::watcher::Event;
use rstest::rstest;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::trim::trimmed_pod;
use super::{JobSetKey, Mirror, ObjectKind, WatchEvent};
use crate::error::Error;

fn read<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

fn key() -> JobSetKey {
    JobSetKey::new("ml", "train")
}

fn jobset(uid: &str) -> Value {
    json!({"metadata": {"name": "train", "namespace": "ml", "uid": uid}, "spec": {"replicatedJobs": []}})
}

/// A Pod of the JobSet `train`, on a node.
fn pod(name: &str, node: &str) -> PartialPod {
    read(json!({"metadata": {"name": name, "namespace": "ml", "labels": {"jobset.sigs.k8s.io/jobset-name": "train"}},
                "spec": {"nodeName": node}}))
}

/// A mirror with a JobSet and the Pods a, b and c.
fn mirror() -> Mirror {
    let mut mirror = Mirror::default();
    mirror.apply(WatchEvent::JobSet(Event::Apply(read(jobset("u1")))));
    mirror.apply(WatchEvent::Pod(Event::Init));
    for name in ["a", "b", "c"] {
        mirror.apply(WatchEvent::Pod(Event::InitApply(pod(name, "n1"))));
    }
    mirror.apply(WatchEvent::Pod(Event::InitDone));
    mirror.take_changed();
    mirror
}

fn node(mirror: &Mirror, name: &str) -> Option<String> {
    mirror.pod(&key(), name)?.spec.node_name.clone()
}

#[test]
fn pod_is_replaced_and_deleted_by_name() {
    let mut mirror = mirror();
    mirror.apply(WatchEvent::Pod(Event::Apply(pod("a", "n2"))));
    mirror.apply(WatchEvent::Pod(Event::Delete(pod("b", "n1"))));
    assert_eq!(["a", "b", "c"].map(|name| node(&mirror, name)), [Some("n2".into()), None, Some("n1".into())]);
    assert_eq!(mirror.take_changed().into_iter().collect::<Vec<_>>(), [key()]);
    assert!(mirror.take_changed().is_empty());
}

#[test]
fn pod_not_listed_again_is_gone() {
    let mut mirror = mirror();
    mirror.apply(WatchEvent::Pod(Event::Init));
    mirror.apply(WatchEvent::Pod(Event::InitApply(pod("b", "n3"))));
    assert_eq!(node(&mirror, "a").as_deref(), Some("n1"), "until the list is complete");
    mirror.apply(WatchEvent::Pod(Event::InitDone));
    assert_eq!(["a", "b", "c"].map(|name| node(&mirror, name)), [None, Some("n3".into()), None]);
}

#[test]
fn jobset_deleted_does_not_exist_though_its_pods_do() {
    let mut mirror = mirror();
    mirror.apply(WatchEvent::JobSet(Event::Delete(read(jobset("u1")))));
    assert!(mirror.jobset(&key()).is_none());
    assert_eq!(mirror.take_changed().len(), 1);
    mirror.apply(WatchEvent::JobSet(Event::Apply(read(jobset("u2")))));
    assert_eq!(mirror.jobset(&key()).unwrap().jobset.metadata.uid.as_deref(), Some("u2"));
}

#[test]
fn mirror_is_complete_after_a_list_of_each_kind() {
    let mut mirror = mirror();
    assert!(!mirror.is_complete());
    mirror.apply(WatchEvent::JobSet(Event::InitDone));
    mirror.apply(WatchEvent::Job(Event::InitDone));
    assert!(mirror.is_complete());
    // The JobSet was not in the list.
    assert!(mirror.jobset(&key()).is_none());
}

#[test]
fn problem_lasts_until_the_next_event_of_its_kind() {
    let mut mirror = mirror();
    let now = Instant::now();
    mirror.apply(WatchEvent::Failed(ObjectKind::Pod, Error::NoKind, now));
    mirror.apply(WatchEvent::JobSet(Event::Init));
    assert_eq!(mirror.problems(now).count(), 1);
    mirror.apply(WatchEvent::Pod(Event::Apply(pod("a", "n1"))));
    assert_eq!(mirror.problems(now).count(), 0);
}

#[test]
fn problem_that_is_not_repeated_is_over() {
    let mut mirror = mirror();
    let (start, minute) = (Instant::now(), Duration::from_mins(1));
    mirror.apply(WatchEvent::Failed(ObjectKind::Pod, Error::NoKind, start));
    assert_eq!(mirror.problems(start + minute).count(), 1);
    mirror.apply(WatchEvent::Failed(ObjectKind::Pod, Error::NoKind, start + minute));
    assert_eq!(mirror.problems(start + 2 * minute).count(), 1);
    assert_eq!(mirror.problems(start + 3 * minute).count(), 0);
}

/// An Event of the controller about the JobSet with this UID.
fn restart(reason: &str, uid: &str) -> Value {
    json!({"metadata": {"name": format!("{reason}-{uid}"), "namespace": "ml"}, "reason": reason,
           "eventTime": "2026-11-22T10:00:00.000000Z", "reportingController": "jobset-controller", "note": "in place, a failed",
           "regarding": {"kind": "JobSet", "namespace": "ml", "name": "train", "uid": uid}})
}

#[rstest]
#[case::own("Restarting", "u1", 1)]
#[case::of_earlier_jobset("Restarting", "u0", 0)]
#[case::about_something_else("AllJobsCompleted", "u1", 0)]
fn restart_is_known_by_events_about_the_jobset(#[case] reason: &str, #[case] uid: &str, #[case] expected: usize) {
    let mut mirror = mirror();
    mirror.apply(WatchEvent::Event(Event::Apply(read(restart(reason, uid)))));
    let report = mirror.restarts(&key()).unwrap();
    assert_eq!(report.restarts.len(), expected);
}

#[test]
fn pod_keeps_only_what_reports_read() {
    let pod = trimmed_pod(read(json!({
        "metadata": {
            "name": "a", "resourceVersion": "7",
            "labels": {"jobset.sigs.k8s.io/jobset-name": "train", "app": "trainer"},
            "annotations": {"jobset.sigs.k8s.io/epoch": "3", "example.com/config": "{}"},
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u"}],
        },
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}, {"type": "Initialized", "status": "True"}],
            "containerStatuses": [{"name": "worker", "containerID": "containerd://1", "ready": true}],
        },
    })));
    let keys = |map: &Option<std::collections::BTreeMap<String, String>>| map.iter().flatten().count();
    assert_eq!((keys(&pod.metadata.labels), keys(&pod.metadata.annotations)), (1, 1));
    assert_eq!((pod.metadata.owner_references, pod.metadata.resource_version), (None, None));
    assert!(pod.status.conditions.len() == 1 && pod.status.container_statuses[0].container_id.is_empty());
}
