//! Pods, Jobs and JobSets in whatever order they are seen.

use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::*;
use crate::store::{Change, ControllerRef, JobView, Ranges, Store, WatchEvent};

fn key(name: &str) -> Key {
    Key { namespace: "ml".to_owned(), name: name.to_owned() }
}

fn pod(index: i32, epoch: i32) -> PodView {
    PodView {
        name: format!("pod-{index}"),
        uid: format!("uid-{index}"),
        job_uid: Some("job".to_owned()),
        index: Some(index),
        epoch: Epoch::Reported(epoch),
        ..PodView::default()
    }
}

fn see_pod(store: &mut Store, view: PodView) -> Vec<Key> {
    store.see(WatchEvent::Pod(Change::Put { object: key(&view.name), owner: Some(key("set")), view }))
}

fn see_job(store: &mut Store, view: JobView) -> Vec<Key> {
    let controller = ControllerRef { kind: "JobSet".to_owned(), name: "set".to_owned(), uid: "u".to_owned() };
    let view = JobView { uid: "job".to_owned(), controller: Some(controller), ..view };
    store.see(WatchEvent::Job(Change::Put { object: key("set-w-0"), owner: Some(key("set")), view }))
}

/// Reports of the Job, as `epoch: slots`.
fn reports(store: &Store) -> Vec<(i32, usize)> {
    let pods = store.pods.of(&key("set")).and_then(|group| group.of_job("job"));
    pods.map(|pods| pods.reports().iter().map(|(epoch, count)| (*epoch, *count)).collect()).unwrap_or_default()
}

/// Pods of the Job that failed in this epoch.
fn broken(store: &Store, epoch: i32) -> Vec<String> {
    let pods = store.pods.of(&key("set")).and_then(|group| group.of_job("job"));
    pods.map(|pods| pods.broken_in(epoch).map(|broken| broken.pod.clone()).collect()).unwrap_or_default()
}

#[test]
fn pods_that_are_seen_before_their_job_count_once_it_is_seen() {
    let mut store = Store::default();
    see_pod(&mut store, pod(0, 1));
    see_pod(&mut store, pod(1, 1));
    assert_eq!(reports(&store), []);
    see_job(&mut store, JobView { pods: 2, ..JobView::default() });
    assert_eq!(reports(&store), [(1, 2)]);
}

#[test]
fn slots_outside_of_the_size_and_completed_ones_do_not_count() {
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
fn the_pods_of_a_job_that_is_gone_count_no_more_and_are_still_there() {
    let mut store = Store::default();
    see_job(&mut store, JobView { pods: 1, ..JobView::default() });
    see_pod(&mut store, pod(0, 1));
    store.see(WatchEvent::Job(Change::Gone(key("set-w-0"), 1)));
    assert_eq!(reports(&store), []);
    assert!(store.pods.of(&key("set")).is_some_and(|group| group.has_others_than(|_| false)));
    store.see(WatchEvent::Pod(Change::Gone(key("pod-0"), 2)));
    assert!(store.pods.of(&key("set")).is_none(), "nothing is kept of what is gone");
}

#[test]
fn a_job_keeps_its_size_while_it_has_no_pods() {
    let mut store = Store::default();
    see_job(&mut store, JobView { pods: 1, ..JobView::default() });
    see_pod(&mut store, pod(0, 1));
    store.see(WatchEvent::Pod(Change::Gone(key("pod-0"), 1)));
    see_pod(&mut store, PodView { uid: "another".to_owned(), ..pod(0, 2) });
    assert_eq!(reports(&store), [(2, 1)]);
}

#[test]
fn what_a_listing_does_not_show_is_gone() {
    let mut store = Store::default();
    see_job(&mut store, JobView { pods: 2, ..JobView::default() });
    see_pod(&mut store, pod(0, 1));
    see_pod(&mut store, pod(1, 1));
    store.see(WatchEvent::Pod(Change::ListingBegins));
    see_pod(&mut store, pod(1, 1));
    assert_eq!(reports(&store), [(1, 2)], "a running listing hides nothing");
    assert_eq!(store.see(WatchEvent::Pod(Change::ListingEnded)), [key("set")]);
    assert_eq!(reports(&store), [(1, 1)]);
    store.see(WatchEvent::Job(Change::ListingBegins));
    store.see(WatchEvent::Job(Change::ListingEnded));
    assert_eq!(reports(&store), []);
}

#[test]
fn pods_are_found_by_their_node() {
    let mut store = Store::default();
    let on = |node: &str, index| PodView { node: Some(node.into()), ..pod(index, 1) };
    see_pod(&mut store, on("a", 0));
    see_pod(&mut store, on("a", 1));
    see_pod(&mut store, on("b", 2));
    let names = |store: &Store, node| {
        let mut names: Vec<_> = store.pods.on_node(node).map(|(pod, _)| pod.name.clone()).collect();
        names.sort();
        names
    };
    assert_eq!(names(&store, "a"), ["pod-0", "pod-1"]);
    store.see(WatchEvent::Pod(Change::Gone(key("pod-0"), 1)));
    assert_eq!((names(&store, "a"), names(&store, "b")), (vec!["pod-1".to_owned()], vec!["pod-2".to_owned()]));
}

#[test]
fn the_first_failure_of_a_slot_is_remembered_when_its_pod_is_gone() {
    let mut store = Store::default();
    see_job(&mut store, JobView { pods: 2, ..JobView::default() });
    store.pods.set_epochs(&key("set"), ObservedEpochs { synced: 1, deprecated: 0 });
    see_pod(&mut store, PodView { workers: 7, ..pod(0, 1) });
    see_pod(&mut store, PodView { phase: PodPhase::Failed, version: 2, ..pod(0, 1) });
    store.see(WatchEvent::Pod(Change::Gone(key("pod-0"), 3)));
    see_pod(&mut store, PodView { uid: "another".to_owned(), ..pod(0, 2) });
    assert_eq!((broken(&store, 1), broken(&store, 2)), (vec!["pod-0".to_owned()], vec![]));
}

#[test]
fn a_pod_that_is_gone_after_its_disruption_was_told_has_ended_in_its_epoch() {
    let mut store = Store::default();
    see_job(&mut store, JobView { pods: 4, ..JobView::default() });
    store.pods.set_epochs(&key("set"), ObservedEpochs { synced: 1, deprecated: 0 });
    let lost_node = json!({"status": {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}});
    let failure = Some(Box::new(PodFailure::of(&serde_json::from_value(lost_node).unwrap())));
    let running = |index| PodView { workers: 7, ..pod(index, 1) };
    let deleted = |index| PodView { deleted_at: Some(Timestamp::UNIX_EPOCH), version: 2, ..running(index) };
    let disrupted = |index| PodView { failure: failure.clone(), ..deleted(index) };
    for index in 0..4 {
        see_pod(&mut store, running(index));
    }
    see_pod(&mut store, disrupted(0));
    see_pod(&mut store, PodView { phase: PodPhase::Succeeded, workers: 0, ..disrupted(1) });
    see_pod(&mut store, deleted(2));
    assert_eq!(broken(&store, 1), [""; 0], "their workers run on, or have succeeded");
    for index in 0..4 {
        store.see(WatchEvent::Pod(Change::Gone(key(&format!("pod-{index}")), 3)));
    }
    assert_eq!(broken(&store, 1), ["pod-0"]);
}
