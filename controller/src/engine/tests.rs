//! Pods, Jobs and JobSets in whatever order they are observed.

use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::pods::{Epoch, PodPhase, PodView};
use super::*;

pub(super) fn key(name: &str) -> Key {
    Key { namespace: "ml".to_owned(), name: name.to_owned() }
}

pub(super) fn pod(index: i32, epoch: i32) -> PodView {
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
fn marked(engine: &mut Engine, event: WatchEvent) -> Vec<Key> {
    engine.observe(event).into_iter().map(|(key, _)| key).collect()
}

pub(super) fn see_pod(engine: &mut Engine, view: PodView) -> Vec<Key> {
    marked(engine, WatchEvent::child(key(&view.name), &key("set"), View::Pod(view)))
}

pub(super) fn see_job(engine: &mut Engine, view: JobView) -> Vec<Key> {
    let controller = ControllerRef { kind: "JobSet".to_owned(), name: "set".to_owned(), uid: "u".to_owned() };
    let view = JobView { uid: "job".to_owned(), controller: Some(controller), ..view };
    marked(engine, WatchEvent::child(key("set-w-0"), &key("set"), View::Job(view)))
}

pub(super) fn see_jobset(engine: &mut Engine, status: &serde_json::Value) -> Vec<Key> {
    let jobset = json!({"metadata": {"name": "set", "namespace": "ml", "uid": "u"}, "spec": {}, "status": status});
    marked(engine, WatchEvent::jobset(Arc::new(serde_json::from_value(jobset).unwrap())))
}

/// Reports of the Job, as `epoch: slots`.
pub(super) fn reports(engine: &Engine) -> Vec<(i32, usize)> {
    let pods = engine.group(&key("set")).and_then(|group| group.pods.of_job("job"));
    pods.map(|pods| pods.reports().iter().map(|(epoch, count)| (*epoch, *count)).collect()).unwrap_or_default()
}

/// Pods of the Job that failed in this epoch.
pub(super) fn broken(engine: &Engine, epoch: i32) -> Vec<String> {
    let pods = engine.group(&key("set")).and_then(|group| group.pods.of_job("job"));
    pods.map(|pods| pods.broken_in(epoch).map(|broken| broken.pod.clone()).collect()).unwrap_or_default()
}

#[test]
fn pods_that_are_seen_before_their_job_count_once_it_is_seen() {
    let mut engine = Engine::default();
    see_pod(&mut engine, pod(0, 1));
    see_pod(&mut engine, pod(1, 1));
    assert_eq!(reports(&engine), []);
    see_job(&mut engine, JobView { pods: 2, ..JobView::default() });
    assert_eq!(reports(&engine), [(1, 2)]);
}

#[test]
fn slots_outside_of_the_size_and_completed_ones_do_not_count() {
    let mut engine = Engine::default();
    see_job(&mut engine, JobView { pods: 3, ..JobView::default() });
    for index in 0..4 {
        see_pod(&mut engine, pod(index, 1));
    }
    assert_eq!(reports(&engine), [(1, 3)]);
    see_job(&mut engine, JobView { pods: 3, completed: Ranges::parse("1"), ..JobView::default() });
    assert_eq!(reports(&engine), [(1, 2)]);
    see_job(&mut engine, JobView { pods: 4, completed: Ranges::parse("1"), ..JobView::default() });
    assert_eq!(reports(&engine), [(1, 3)]);
}

#[test]
fn an_event_that_changes_no_count_marks_nothing() {
    let mut engine = Engine::default();
    see_job(&mut engine, JobView { pods: 1, ..JobView::default() });
    assert_eq!(see_pod(&mut engine, pod(0, 1)), [key("set")]);
    assert_eq!(see_pod(&mut engine, PodView { version: 1, ..pod(0, 1) }), []);
    assert_eq!(see_pod(&mut engine, PodView { version: 2, ..pod(0, 2) }), [key("set")]);
    assert_eq!(see_pod(&mut engine, PodView { version: 1, ..pod(0, 1) }), [], "an older version than the one held");
    assert_eq!(reports(&engine), [(2, 1)]);
}

#[test]
fn the_pods_of_a_job_that_is_gone_count_no_more_and_are_still_there() {
    let mut engine = Engine::default();
    see_job(&mut engine, JobView { pods: 1, ..JobView::default() });
    see_pod(&mut engine, pod(0, 1));
    engine.observe(WatchEvent::Gone(Kind::Job, key("set-w-0"), 1));
    assert_eq!(reports(&engine), []);
    assert!(engine.group(&key("set")).is_some_and(|group| group.pods.has_others_than(|_| false)));
    engine.observe(WatchEvent::Gone(Kind::Pod, key("pod-0"), 2));
    assert!(engine.groups.is_empty(), "nothing is kept of what is gone");
}

#[test]
fn a_job_keeps_its_size_while_it_has_no_pods() {
    let mut engine = Engine::default();
    see_job(&mut engine, JobView { pods: 1, ..JobView::default() });
    see_pod(&mut engine, pod(0, 1));
    engine.observe(WatchEvent::Gone(Kind::Pod, key("pod-0"), 1));
    see_pod(&mut engine, PodView { uid: "another".to_owned(), ..pod(0, 2) });
    assert_eq!(reports(&engine), [(2, 1)]);
}

#[test]
fn what_a_listing_does_not_show_is_gone() {
    let mut engine = Engine::default();
    see_job(&mut engine, JobView { pods: 2, ..JobView::default() });
    see_pod(&mut engine, pod(0, 1));
    see_pod(&mut engine, pod(1, 1));
    engine.observe(WatchEvent::ListingBegins(Kind::Pod));
    see_pod(&mut engine, pod(1, 1));
    assert_eq!(reports(&engine), [(1, 2)], "a running listing hides nothing");
    assert_eq!(marked(&mut engine, WatchEvent::ListingEnded(Kind::Pod)), [key("set")]);
    assert_eq!(reports(&engine), [(1, 1)]);
    engine.observe(WatchEvent::ListingBegins(Kind::Job));
    engine.observe(WatchEvent::ListingEnded(Kind::Job));
    assert_eq!(reports(&engine), []);
}

#[test]
fn node_changes_jobsets_with_pods_on_it_are_marked() {
    let mut engine = Engine::default();
    let on = |node: &str, index| PodView { node: Some(node.into()), ..pod(index, 1) };
    let taint = |name: &str, version: u64| {
        let taints = json!([{"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}]);
        let metadata = json!({"name": name, "resourceVersion": version.to_string()});
        let node = serde_json::from_value(json!({"metadata": metadata, "spec": {"taints": taints}})).unwrap();
        WatchEvent::shared(Key { namespace: String::new(), name: name.to_owned() }, View::Node(Box::new(node)))
    };
    see_jobset(&mut engine, &json!({}));
    see_pod(&mut engine, on("a", 0));
    see_pod(&mut engine, on("a", 1));
    engine.observe(WatchEvent::Gone(Kind::Pod, key("pod-0"), 1));
    assert_eq!(marked(&mut engine, taint("a", 1)), [key("set")]);
    assert_eq!(marked(&mut engine, taint("a", 2)), [], "nothing has changed");
    assert_eq!(marked(&mut engine, taint("b", 3)), [], "it has no Pod there");
    let names = |node: &str| -> Vec<String> {
        let group = engine.group(&key("set")).unwrap();
        group.pods.on_nodes(|it| it == node).into_iter().map(|(_, pod)| pod.name.clone()).collect()
    };
    assert_eq!((names("a"), names("b")), (vec!["pod-1".to_owned()], vec![]));
}

#[test]
fn namespace_is_deleted_its_jobsets_are_marked_once() {
    let mut engine = Engine::default();
    let namespace = |deleted: bool, version: u64| {
        let deleted = deleted.then_some("2026-01-01T00:00:00Z");
        let metadata = json!({"name": "ml", "resourceVersion": version.to_string(), "deletionTimestamp": deleted});
        let view = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        WatchEvent::shared(Key { namespace: String::new(), name: "ml".to_owned() }, View::Namespace(Box::new(view)))
    };
    see_jobset(&mut engine, &json!({}));
    assert_eq!(marked(&mut engine, namespace(false, 1)), []);
    assert_eq!(marked(&mut engine, namespace(true, 2)), [key("set")]);
    assert_eq!(marked(&mut engine, namespace(true, 3)), []);
    engine.observe(namespace(false, 4));
    assert!(!engine.cluster.terminating.contains("ml"), "another namespace of this name");
}

#[test]
fn service_is_gone_all_jobsets_that_share_it_are_marked() {
    let mut engine = Engine::default();
    see_jobset(&mut engine, &json!({}));
    engine.observe(WatchEvent::child(key("set"), &key("other"), View::Owned(Kind::Service, OwnedView::default())));
    assert_eq!(marked(&mut engine, WatchEvent::Gone(Kind::Service, key("set"), 2)), [key("set"), key("other")]);
}

#[test]
fn pod_without_job_is_an_orphan_until_it_is_adopted() {
    let mut engine = Engine::default();
    see_job(&mut engine, JobView { pods: 1, ..JobView::default() });
    let orphans = |engine: &Engine| engine.group(&key("set")).unwrap().orphans.len();
    see_pod(&mut engine, PodView { job_uid: None, ..pod(0, 1) });
    assert_eq!((orphans(&engine), reports(&engine)), (1, vec![]));
    see_pod(&mut engine, pod(0, 1));
    assert_eq!((orphans(&engine), reports(&engine)), (0, vec![(1, 1)]));
}

#[test]
fn refusals_change_rules_look_again_and_forget_them_with_the_jobset() {
    let mut engine = Engine::default();
    see_jobset(&mut engine, &json!({}));
    let refused = |what: &str| vec![what.to_owned()];
    let changes = [vec![], refused("a"), refused("a"), refused("b")].map(|it| engine.set_refused(&key("set"), it));
    assert_eq!(changes, [false, true, false, true]);
    engine.observe(WatchEvent::Gone(Kind::JobSet, key("set"), 1));
    assert!(!engine.set_refused(&key("set"), refused("c")));
    let earlier = json!({"conditions": [{"type": "ChildRefused", "status": "True", "reason": "Refused", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    see_jobset(&mut engine, &earlier);
    assert_eq!([(); 2].map(|()| engine.set_refused(&key("set"), vec![])), [true, false]);
}

#[test]
fn the_first_failure_of_a_slot_is_remembered_when_its_pod_is_gone() {
    let mut engine = Engine::default();
    see_job(&mut engine, JobView { pods: 2, ..JobView::default() });
    see_jobset(&mut engine, &json!({"syncedEpoch": 1}));
    see_pod(&mut engine, PodView { workers: 7, ..pod(0, 1) });
    see_pod(&mut engine, PodView { phase: PodPhase::Failed, version: 2, ..pod(0, 1) });
    engine.observe(WatchEvent::Gone(Kind::Pod, key("pod-0"), 3));
    see_pod(&mut engine, PodView { uid: "another".to_owned(), ..pod(0, 2) });
    assert_eq!((broken(&engine, 1), broken(&engine, 2)), (vec!["pod-0".to_owned()], vec![]));
}

#[test]
fn worker_of_the_running_epoch_has_ended_when_its_pod_is_gone() {
    let mut engine = Engine::default();
    see_job(&mut engine, JobView { pods: 4, ..JobView::default() });
    see_jobset(&mut engine, &json!({"syncedEpoch": 1}));
    let running = |index| PodView { workers: 7, ..pod(index, 1) };
    let deleted = |index| PodView { deleted_at: Some(Timestamp::UNIX_EPOCH), version: 2, ..running(index) };
    for index in 0..4 {
        see_pod(&mut engine, running(index));
    }
    see_pod(&mut engine, deleted(0));
    see_pod(&mut engine, PodView { phase: PodPhase::Succeeded, workers: 0, ..deleted(1) });
    see_pod(&mut engine, PodView { epoch: Epoch::Reported(2), ..deleted(2) });
    assert_eq!(broken(&engine, 1), [""; 0], "their workers run on, or have succeeded");
    for index in 0..4 {
        engine.observe(WatchEvent::Gone(Kind::Pod, key(&format!("pod-{index}")), 3));
    }
    assert_eq!(broken(&engine, 1), ["pod-0", "pod-3"]);
}
