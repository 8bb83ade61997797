//! Pods, Jobs and JobSets in whatever order they are observed.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use crate::pods::{Epoch, PodPhase, PodView};
use crate::*;

pub(crate) fn key(name: &str) -> Key {
    Key { namespace: "ml".to_owned(), name: name.to_owned() }
}

pub(crate) fn pod(index: i32, epoch: i32) -> PodView {
    PodView {
        name: format!("pod-{index}"),
        uid: format!("uid-{index}"),
        job_uid: Some("job".to_owned()),
        index: Some(index),
        epoch: Epoch::Reported(epoch),
        ..PodView::default()
    }
}

/// Takes an event in. The JobSets that it concerns.
fn marked(store: &mut Store, event: WatchEvent) -> Vec<Key> {
    store.apply(event).changed.into_iter().map(|(key, _)| key).collect()
}

pub(crate) fn see_pod(store: &mut Store, view: PodView) -> Vec<Key> {
    marked(store, WatchEvent::child(key(&view.name), &key("set"), View::Pod(view)))
}

pub(crate) fn see_job(store: &mut Store, view: JobView) -> Vec<Key> {
    let controller = ControllerRef { kind: "JobSet".to_owned(), name: "set".to_owned(), uid: "u".to_owned() };
    let view = JobView { uid: "job".to_owned(), controller: Some(controller), ..view };
    marked(store, WatchEvent::child(key("set-w-0"), &key("set"), View::Job(view)))
}

pub(crate) fn see_jobset(store: &mut Store, status: &serde_json::Value) -> Vec<Key> {
    let jobset = json!({"metadata": {"name": "set", "namespace": "ml", "uid": "u"}, "spec": {}, "status": status});
    marked(store, WatchEvent::jobset(Arc::new(serde_json::from_value(jobset).unwrap())))
}

/// Reports of the Job, as `epoch: slots`.
pub(crate) fn reports(store: &Store) -> Vec<(i32, usize)> {
    let pods = store.entry(&key("set")).and_then(|group| group.pods.of_job("job"));
    pods.map(|pods| pods.reports().iter().map(|(epoch, count)| (*epoch, *count)).collect()).unwrap_or_default()
}

/// Pods of the Job that failed in this epoch.
pub(crate) fn broken(store: &Store, epoch: i32) -> Vec<String> {
    let pods = store.entry(&key("set")).and_then(|group| group.pods.of_job("job"));
    pods.map(|pods| pods.broken_in(epoch).map(|broken| broken.pod.clone()).collect()).unwrap_or_default()
}

#[test]
fn pods_observed_before_their_job_count_with_it() {
    let mut store = Store::default();
    see_pod(&mut store, pod(0, 1));
    see_pod(&mut store, pod(1, 1));
    assert_eq!(reports(&store), []);
    see_job(&mut store, JobView { pods: 2, ..JobView::default() });
    assert_eq!(reports(&store), [(1, 2)]);
}

#[test]
fn slots_outside_size_or_completed_do_not_count() {
    let mut store = Store::default();
    see_job(&mut store, JobView { pods: 3, ..JobView::default() });
    for index in 0..4 {
        see_pod(&mut store, pod(index, 1));
    }
    assert_eq!(reports(&store), [(1, 3)]);
    see_job(&mut store, JobView { pods: 3, completed: Ranges::parse("1"), ..JobView::default() });
    assert_eq!(reports(&store), [(1, 2)]);
    see_job(&mut store, JobView { pods: 4, completed: Ranges::parse("1"), ..JobView::default() });
    assert_eq!(reports(&store), [(1, 3)]);
}

#[test]
fn an_event_that_changes_no_count_marks_nothing() {
    let mut store = Store::default();
    see_job(&mut store, JobView { pods: 1, ..JobView::default() });
    assert_eq!(see_pod(&mut store, pod(0, 1)), [key("set")]);
    assert_eq!(see_pod(&mut store, PodView { version: 1, ..pod(0, 1) }), []);
    assert_eq!(see_pod(&mut store, PodView { version: 2, ..pod(0, 2) }), [key("set")]);
    assert_eq!(see_pod(&mut store, PodView { version: 1, ..pod(0, 1) }), [], "an older version than the one held");
    assert_eq!(reports(&store), [(2, 1)]);
}

#[test]
fn pods_of_gone_job_remain_and_do_not_count() {
    let mut store = Store::default();
    see_job(&mut store, JobView { pods: 1, ..JobView::default() });
    see_pod(&mut store, pod(0, 1));
    store.apply(WatchEvent::Gone(Kind::Job, key("set-w-0"), 1));
    assert_eq!(reports(&store), []);
    assert!(store.entry(&key("set")).is_some_and(|group| group.pods.has_others_than(|_| false)));
    store.apply(WatchEvent::Gone(Kind::Pod, key("pod-0"), 2));
    assert!(store.entries.is_empty(), "nothing is kept of what is gone");
}

#[test]
fn a_job_keeps_its_size_while_it_has_no_pods() {
    let mut store = Store::default();
    see_job(&mut store, JobView { pods: 1, ..JobView::default() });
    see_pod(&mut store, pod(0, 1));
    store.apply(WatchEvent::Gone(Kind::Pod, key("pod-0"), 1));
    see_pod(&mut store, PodView { uid: "another".to_owned(), ..pod(0, 2) });
    assert_eq!(reports(&store), [(2, 1)]);
}

#[test]
fn what_a_listing_does_not_show_is_gone() {
    let mut store = Store::default();
    see_job(&mut store, JobView { pods: 2, ..JobView::default() });
    see_pod(&mut store, pod(0, 1));
    see_pod(&mut store, pod(1, 1));
    store.apply(WatchEvent::ListingBegins(Kind::Pod));
    see_pod(&mut store, pod(1, 1));
    assert_eq!(reports(&store), [(1, 2)], "a running listing hides nothing");
    assert_eq!(marked(&mut store, WatchEvent::ListingEnded(Kind::Pod)), [key("set")]);
    assert_eq!(reports(&store), [(1, 1)]);
    store.apply(WatchEvent::ListingBegins(Kind::Job));
    store.apply(WatchEvent::ListingEnded(Kind::Job));
    assert_eq!(reports(&store), []);
}

#[test]
fn node_changes_jobsets_with_pods_on_it_are_marked() {
    let mut store = Store::default();
    let on = |node: &str, index| PodView { node: Some(node.into()), ..pod(index, 1) };
    let taint = |name: &str, version: u64| {
        let taints = json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}]);
        let metadata = json!({"name": name, "resourceVersion": version.to_string()});
        let node = serde_json::from_value(json!({"metadata": metadata, "spec": {"taints": taints}})).unwrap();
        WatchEvent::shared(Key { namespace: String::new(), name: name.to_owned() }, View::Node(Box::new(node)))
    };
    see_jobset(&mut store, &json!({}));
    see_pod(&mut store, on("a", 0));
    see_pod(&mut store, on("a", 1));
    store.apply(WatchEvent::Gone(Kind::Pod, key("pod-0"), 1));
    assert_eq!(marked(&mut store, taint("a", 1)), [key("set")]);
    assert_eq!(marked(&mut store, taint("a", 2)), [], "nothing has changed");
    assert_eq!(marked(&mut store, taint("b", 3)), [], "it has no Pod there");
    let names = |node: &str| -> Vec<String> {
        let group = store.entry(&key("set")).unwrap();
        group.pods.on_nodes(|it| it == node).into_iter().map(|(_, pod)| pod.name.clone()).collect()
    };
    assert_eq!((names("a"), names("b")), (vec!["pod-1".to_owned()], vec![]));
}

#[test]
fn namespace_is_deleted_its_jobsets_are_marked_once() {
    let mut store = Store::default();
    let namespace = |deleted: bool, version: u64| {
        let deleted = deleted.then_some("2026-01-01T00:00:00Z");
        let metadata = json!({"name": "ml", "resourceVersion": version.to_string(), "deletionTimestamp": deleted});
        let view = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        WatchEvent::shared(Key { namespace: String::new(), name: "ml".to_owned() }, View::Namespace(Box::new(view)))
    };
    see_jobset(&mut store, &json!({}));
    assert_eq!(marked(&mut store, namespace(false, 1)), []);
    assert_eq!(marked(&mut store, namespace(true, 2)), [key("set")]);
    assert_eq!(marked(&mut store, namespace(true, 3)), []);
    store.apply(namespace(false, 4));
    assert!(!store.cluster.terminating.contains("ml"), "another namespace of this name");
}

#[test]
fn service_is_gone_all_jobsets_that_share_it_are_marked() {
    let mut store = Store::default();
    see_jobset(&mut store, &json!({}));
    store.apply(WatchEvent::child(key("set"), &key("other"), View::Owned(Kind::Service, OwnedView::default())));
    assert_eq!(marked(&mut store, WatchEvent::Gone(Kind::Service, key("set"), 2)), [key("set"), key("other")]);
}

#[test]
fn pod_without_job_is_an_orphan_until_it_is_adopted() {
    let mut store = Store::default();
    see_job(&mut store, JobView { pods: 1, ..JobView::default() });
    let orphans = |store: &Store| store.entry(&key("set")).unwrap().orphans.len();
    see_pod(&mut store, PodView { job_uid: None, ..pod(0, 1) });
    assert_eq!((orphans(&store), reports(&store)), (1, vec![]));
    see_pod(&mut store, pod(0, 1));
    assert_eq!((orphans(&store), reports(&store)), (0, vec![(1, 1)]));
}

#[test]
fn refusals_that_change_trigger_rules_until_jobset_is_gone() {
    let mut store = Store::default();
    see_jobset(&mut store, &json!({}));
    let refused = |what: &str| vec![what.to_owned()];
    let changes = [vec![], refused("a"), refused("a"), refused("b")].map(|it| store.set_refused(&key("set"), it));
    assert_eq!(changes, [false, true, false, true]);
    store.apply(WatchEvent::Gone(Kind::JobSet, key("set"), 1));
    assert!(!store.set_refused(&key("set"), refused("c")));
    let earlier = json!({"conditions": [{"type": "ChildRefused", "status": "True", "reason": "Refused", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    see_jobset(&mut store, &earlier);
    assert_eq!([(); 2].map(|()| store.set_refused(&key("set"), vec![])), [true, false]);
}

#[test]
fn slot_remembers_first_failure_when_its_pod_is_gone() {
    let mut store = Store::default();
    see_job(&mut store, JobView { pods: 2, ..JobView::default() });
    see_jobset(&mut store, &json!({"syncedEpoch": 1}));
    see_pod(&mut store, PodView { workers: 7, ..pod(0, 1) });
    see_pod(&mut store, PodView { phase: PodPhase::Failed, version: 2, ..pod(0, 1) });
    store.apply(WatchEvent::Gone(Kind::Pod, key("pod-0"), 3));
    see_pod(&mut store, PodView { uid: "another".to_owned(), ..pod(0, 2) });
    assert_eq!((broken(&store, 1), broken(&store, 2)), (vec!["pod-0".to_owned()], vec![]));
}

#[test]
fn worker_of_running_epoch_ends_with_its_pod() {
    let mut store = Store::default();
    see_job(&mut store, JobView { pods: 4, ..JobView::default() });
    see_jobset(&mut store, &json!({"syncedEpoch": 1}));
    let running = |index| PodView { workers: 7, ..pod(index, 1) };
    let deleted = |index| PodView { deleted_at: Some(Timestamp::UNIX_EPOCH), version: 2, ..running(index) };
    for index in 0..4 {
        see_pod(&mut store, running(index));
    }
    see_pod(&mut store, deleted(0));
    see_pod(&mut store, PodView { phase: PodPhase::Succeeded, workers: 0, ..deleted(1) });
    see_pod(&mut store, PodView { epoch: Epoch::Reported(2), ..deleted(2) });
    assert_eq!(broken(&store, 1), [""; 0], "their workers run on, or have succeeded");
    for index in 0..4 {
        store.apply(WatchEvent::Gone(Kind::Pod, key(&format!("pod-{index}")), 3));
    }
    assert_eq!(broken(&store, 1), ["pod-0", "pod-3"]);
}
