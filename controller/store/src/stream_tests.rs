//! Reports over the stream and annotations of the same Pods, in whatever order they come.

use serde_json::json;

use crate::pods::{Epoch, PodView, StreamReport};
use crate::tests::{broken, key, pod, reports, see_job, see_jobset, see_pod};
use crate::{JobView, Kind, Store, WatchEvent};

/// An store that has observed a JobSet in epoch 1, and two Pods that report it.
fn store() -> Store {
    let mut store = Store::default();
    see_jobset(&mut store, &json!({"syncedEpoch": 1}));
    see_job(&mut store, JobView { pods: 2, ..JobView::default() });
    see_pod(&mut store, pod(0, 1));
    see_pod(&mut store, pod(1, 1));
    store
}

fn report(index: i32, epoch: i32) -> StreamReport {
    StreamReport {
        pod: format!("pod-{index}"),
        pod_uid: format!("uid-{index}"),
        epoch,
        exit: None,
        started: None,
        progress: None,
    }
}

/// Takes a report in. Returns whether the JobSet is to be reconciled because of it.
fn apply(store: &mut Store, report: StreamReport) -> bool {
    store.apply_report(&key("set"), report)
}

#[test]
fn report_before_annotation_counts_once() {
    let mut store = store();
    assert!(apply(&mut store, report(0, 2)));
    assert_eq!(reports(&store), [(1, 1), (2, 1)]);
    assert!(!apply(&mut store, report(0, 2)), "nothing is new");
    assert_eq!(see_pod(&mut store, PodView { version: 1, ..pod(0, 1) }), [], "a status changes nothing");
    assert_eq!(reports(&store), [(1, 1), (2, 1)]);
    assert_eq!(see_pod(&mut store, PodView { version: 2, ..pod(0, 2) }), [], "the annotation follows");
    assert_eq!(reports(&store), [(1, 1), (2, 1)]);
}

#[test]
fn report_after_newer_annotation_is_ignored() {
    let mut store = store();
    see_pod(&mut store, PodView { version: 1, ..pod(0, 2) });
    assert!(!apply(&mut store, report(0, 1)));
    assert!(!apply(&mut store, report(0, 2)));
    assert_eq!(see_pod(&mut store, PodView { version: 2, ..pod(0, 2) }), []);
    assert_eq!(reports(&store), [(1, 1), (2, 1)]);
}

#[test]
fn report_of_replaced_pod_is_ignored() {
    let mut store = store();
    see_pod(&mut store, PodView { version: 1, uid: "another".to_owned(), epoch: Epoch::Absent, ..pod(0, 0) });
    store.apply(WatchEvent::Gone(Kind::Pod, key("pod-0"), 2));
    see_pod(&mut store, PodView { version: 3, uid: "another".to_owned(), epoch: Epoch::Absent, ..pod(0, 0) });
    assert!(!apply(&mut store, report(0, 2)));
    see_pod(&mut store, PodView { version: 4, uid: "another".to_owned(), epoch: Epoch::Absent, ..pod(0, 0) });
    assert_eq!(reports(&store), [(1, 1)]);
}

#[test]
fn report_of_another_jobset_is_ignored() {
    let mut store = store();
    store.apply_report(&key("other"), report(0, 2));
    assert_eq!(reports(&store), [(1, 2)]);
    assert!(store.entry(&key("other")).is_none(), "nothing is kept of a JobSet that does not exist");
}

#[test]
fn report_before_its_pod_counts_when_the_pod_appears() {
    let mut store = store();
    see_job(&mut store, JobView { pods: 3, version: 1, ..JobView::default() });
    assert!(!apply(&mut store, report(2, 2)));
    assert_eq!(reports(&store), [(1, 2)]);
    see_pod(&mut store, PodView { epoch: Epoch::Absent, ..pod(2, 0) });
    assert_eq!(reports(&store), [(1, 2), (2, 1)]);
}

#[test]
fn report_before_its_pod_is_dropped_with_its_connection() {
    let mut store = store();
    see_job(&mut store, JobView { pods: 3, version: 1, ..JobView::default() });
    apply(&mut store, report(2, 2));
    apply(&mut store, report(0, 2));
    store.agent_gone(&key("set"), "uid-2");
    store.agent_gone(&key("set"), "uid-0");
    see_pod(&mut store, PodView { epoch: Epoch::Absent, ..pod(2, 0) });
    see_pod(&mut store, PodView { version: 1, ..pod(0, 1) });
    assert_eq!(reports(&store), [(1, 1), (2, 1)], "that of a known Pod stays");
}

#[test]
fn report_ends_with_its_pod() {
    let mut store = store();
    apply(&mut store, report(0, 2));
    store.apply(WatchEvent::Gone(Kind::Pod, key("pod-0"), 2));
    see_pod(&mut store, PodView { version: 3, uid: "another".to_owned(), ..pod(0, 1) });
    assert_eq!(reports(&store), [(1, 2)]);
    store.apply(WatchEvent::Gone(Kind::Pod, key("pod-0"), 4));
    see_pod(&mut store, PodView { version: 5, ..pod(0, 1) });
    assert_eq!(reports(&store), [(1, 2)], "nothing is kept of what is gone");
}

#[test]
fn report_above_the_next_epoch_waits_for_the_status() {
    let mut store = store();
    assert!(!apply(&mut store, report(0, 3)), "the agent may have read a newer status");
    assert_eq!(reports(&store), [(1, 2)]);
    see_jobset(&mut store, &json!({"syncedEpoch": 2, "deprecatedEpoch": 1}));
    assert_eq!(reports(&store), [(1, 1), (3, 1)]);
}

#[test]
fn report_tells_how_the_worker_ended() {
    let mut store = store();
    let exit = Some(r#"{"epoch":1,"code":3,"message":"disk"}"#.to_owned());
    apply(&mut store, StreamReport { exit, ..report(0, 2) });
    assert_eq!(broken(&store, 1), ["pod-0"]);
    let pods = store.entry(&key("set")).and_then(|group| group.pods.of_job("job")).unwrap();
    let exit = pods.broken_in(1).next().and_then(|failed| failed.failure.exit.clone()).unwrap();
    assert_eq!((exit.code, exit.message.as_str()), (3, "disk"));
}

#[test]
fn report_survives_the_rebuilding_of_the_entry() {
    let mut store = store();
    apply(&mut store, report(0, 2));
    store.drop_entry(&key("set"));
    see_job(&mut store, JobView { pods: 2, version: 2, ..JobView::default() });
    see_pod(&mut store, PodView { version: 2, ..pod(0, 1) });
    see_pod(&mut store, PodView { version: 2, ..pod(1, 1) });
    see_jobset(&mut store, &json!({"syncedEpoch": 1}));
    assert_eq!(reports(&store), [(1, 1), (2, 1)]);
}
