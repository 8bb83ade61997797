//! What the engine does when requests fail, when it panics, and when events come in between.

use std::collections::HashSet;

use jobset_api::JobSet;
use jobset_rules::{Action, Settings};
use jobset_store::pods::{Epoch, PodFailure, PodView};
use jobset_store::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::schedule::{TestEngine, key};
use crate::places::PLACES;
use crate::*;

/// Name of a Job on which the engine panics.
const PANICS: &str = "panics";

impl TestEngine {
    /// A Job is observed, on which the engine panics.
    fn panic(&mut self, millis: u64) {
        let view = View::Job(JobView { version: 1, ..JobView::default() });
        let event = WatchEvent::child(key(&format!("a/{PANICS}")), &key("a/1"), view);
        self.engine.apply_by(event, self.now(millis).instant, |store, event| {
            store.apply(event);
            std::panic::resume_unwind(Box::new("a Job on which the engine panics"));
        });
    }
}

#[test]
fn event_during_slices_is_planned_after_last_slice() {
    let mut world = TestEngine::new(&["a/1"], 40);
    (0..40).for_each(|index| world.put_job("a/1", index, JobView::default()));
    let mut jobset = JobSet::clone(world.engine.store.jobset(&key("a/1")).unwrap());
    jobset.status = Some(
        serde_json::from_value(json!({"restarts": 1, "groupRestarts": 1, "restartsCountTowardsMax": 1,
        "jobsReady": "0/40", "replicatedJobsStatus": [{"name": "w"}]}))
        .unwrap(),
    );
    world.observe(jobset);
    // Somebody deletes the Jobs while the rest of their deletions waits. Those are answered with 404, and no event follows.
    let work = world.engine.next(world.now(0)).unwrap();
    world.accept(&work);
    (0..40).for_each(|index| {
        world.engine.apply(WatchEvent::Gone(Kind::Job, key(&format!("a/1-w-{index}")), 99), world.start);
    });
    let work = world.engine.next(world.now(10)).unwrap();
    assert!(matches!(work.actions[..], [Action::DeleteJob { .. }, ..]), "{work:?}");
    world.accept(&work);
    let next = world.engine.next(world.now(1_000)).unwrap();
    assert!(matches!(next.actions[..], [Action::CreateJob(_), ..]), "{next:?}");
}

#[rstest::rstest]
#[case::transient(Failure::Transient)]
#[case::refused(Failure::Refused)]
fn failing_requests_leave_other_requests_alone(#[case] failure: Failure) {
    let mut world = TestEngine::new(&["a/1"], 12);
    let mut created = HashSet::new();
    for second in 0..30 {
        // What is accepted is not observed, and planned again.
        if let Some(work) = world.engine.next(world.now(second * 1_000)) {
            let names = work.actions.iter().filter_map(|action| match action {
                Action::CreateJob(job) => Some((Request::of(action), job.name.clone())),
                _ => None,
            });
            // Eight of them fail for as long as the others are not sent.
            let fails = |name: &str| (0..8).any(|index| name == format!("1-w-{index}"));
            let (failed, accepted): (Vec<_>, Vec<_>) = names.partition(|(_, name)| fails(name));
            created.extend(accepted.iter().map(|(_, name)| name.clone()));
            let error = RequestError { failure, note: None };
            let failures = failed.into_iter().map(|(request, _)| (request, error.clone())).collect();
            let accepted = accepted.into_iter().map(|(request, _)| request).collect();
            let status = Some(Ok(work.status.is_some()));
            let outcome = Outcome { failures, accepted, status, ..Outcome::default() };
            world.engine.finish(&work.key, work.number, outcome, world.now(second * 1_000));
        }
    }
    assert_eq!(created.len(), 4, "{created:?}");
}

#[test]
fn panic_while_entry_is_rebuilt_is_not_repeated_at_once() {
    let mut world = TestEngine::new(&["a/1"], 1);
    world.panic(0);
    let mut lists = 0;
    for millis in [0, 1, 2, 299_999, 300_000, 300_001] {
        for key in world.engine.take_relist() {
            lists += 1;
            world.panic(millis);
            world.engine.rebuild(&key, Vec::new(), world.now(millis).instant);
        }
        while let Some(work) = world.engine.next(world.now(millis)) {
            world.succeed(work, millis);
        }
    }
    assert_eq!(lists, 2, "once, and again after 5 minutes");
}

#[test]
fn finish_report_of_a_panic_that_conflicts_is_written_again() {
    let mut world = TestEngine::new(&["a/1"], 1);
    let is_caught = std::cell::Cell::new(false);
    let panics = |_: &Observed<'_>, _: &Settings, _: &Time| {
        is_caught.set(catches_panics());
        std::panic::resume_unwind(Box::new("a panic"))
    };
    let work = world.engine.next_by(world.now(0), panics).unwrap();
    assert!(is_caught.get() && !catches_panics(), "a hook for panics would end the process");
    world.fail(&work, Failure::Outdated, 2);
    let again = world.engine.next_by(world.now(1_000), panics).unwrap();
    assert!(again.status.is_some(), "{again:?}");
    world.succeed(again, 1_000);
    assert!(world.engine.next(world.now(200_000)).is_none(), "it is reported once");
}

#[test]
fn jobset_created_after_job_panic_has_one_work() {
    let mut world = TestEngine::new(&[], 0);
    world.panic(0);
    world.engine.apply(WatchEvent::Gone(Kind::Job, key(&format!("a/{PANICS}")), 2), world.start);
    world.create("a/1", 1);
    let works = std::iter::from_fn(|| world.engine.next(world.now(0))).count();
    assert_eq!(works, 1);
}

#[test]
fn disrupted_pod_of_deleted_big_jobset_is_urgent() {
    let mut world = TestEngine::new(&["a/1"], 51);
    (0..51).for_each(|index| world.put_job("a/1", index, JobView::default()));
    let mut jobset = JobSet::clone(world.engine.store.jobset(&key("a/1")).unwrap());
    jobset.status = Some(serde_json::from_value(json!({"syncedEpoch": 1})).unwrap());
    world.observe(jobset);
    let disrupted = json!({"status": {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}});
    let failure = PodFailure::of(&serde_json::from_value(disrupted).unwrap());
    let pod = PodView {
        name: "pod".to_owned(),
        uid: "pod".to_owned(),
        job_uid: Some("job0".to_owned()),
        index: Some(0),
        epoch: Epoch::Reported(1),
        workers: 7,
        version: 1,
        ..PodView::default()
    };
    let deleted_at = Some(k8s_openapi::jiff::Timestamp::UNIX_EPOCH);
    let going = PodView { deleted_at, failure: Some(Box::new(failure)), version: 2, ..pod.clone() };
    for view in [pod, going] {
        world.engine.store.apply(WatchEvent::child(key("a/pod"), &key("a/1"), View::Pod(view)));
    }
    let changes = world.engine.store.apply(WatchEvent::Gone(Kind::Pod, key("a/pod"), 3));
    assert_eq!(changes.changed, [(key("a/1"), Change::Decision)]);
}

#[test]
fn hanging_requests_of_namespace_leave_places_for_another() {
    let names: Vec<String> = (0..PLACES).map(|index| format!("a/{index}")).collect();
    let mut world = TestEngine::new(&names.iter().map(String::as_str).collect::<Vec<_>>(), 120);
    let under_way: Vec<Work> = std::iter::from_fn(|| world.engine.next(world.now(0))).collect();
    let with_actions = under_way.iter().filter(|work| !work.actions.is_empty()).count();
    world.create("b/train", 1);
    let next = world.engine.next(world.now(30_000)).map(|work| (work.key, work.actions.is_empty()));
    assert_eq!((with_actions, next), (12, Some((key("b/train"), false))));
}

/// A Pod that the specification does not have any more runs in the synced epoch, because its Job cannot be resized.
#[test]
fn pod_outside_size_does_not_delay_restart() {
    let mut settings = Settings::default();
    (settings.gates.elastic_job_set, settings.gates.in_place_restart) = (true, true);
    let mut world = TestEngine::new(&[], 0);
    world.engine = Engine::new(settings);
    let rules = json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0]}}]);
    let pod = json!({"restartPolicy": "Never",
        "initContainers": [{"name": "agent", "restartPolicy": "Always", "restartPolicyRules": rules}],
        "containers": [{"name": "worker", "restartPolicy": "Never", "restartPolicyRules": rules}]});
    let template = json!({"spec": {"parallelism": 2, "completions": 2, "completionMode": "Indexed", "template": {"spec": pod},
        "backoffLimit": i32::MAX, "podReplacementPolicy": "Failed"}});
    world.observe(serde_json::from_value(json!({
        "metadata": {"namespace": "a", "name": "1", "uid": "a/1", "generation": 3,
            "annotations": {(jobset_api::labels::RESTART_BUDGET): "Shared"}},
        "spec": {"network": {"enableDNSHostnames": false},
            "failurePolicy": {"maxRestarts": 5, "restartStrategy": "InPlaceRestart"},
            "replicatedJobs": [{"name": "w", "replicas": 1, "template": template}]},
        "status": {"syncedEpoch": 2, "deprecatedEpoch": 1, "groupRestarts": 1, "restartsCountTowardsMax": 1, "jobsReady": "0/1",
            "replicatedJobsStatus": [{"name": "w", "active": 1, "syncedPods": "0-1", "syncedParallelism": 2}]},
    })).unwrap());
    let size =
        JobView { parallelism: 3, completions: Some(3), active: 3, restarts_in_place: true, ..JobView::default() };
    world.put_job("a/1", 0, size);
    // Pod 0 has failed and reports epoch 3, Pod 1 runs, and Pod 2 is outside of the size.
    for (index, epoch, workers) in [(0, 3, 0), (1, 2, 5), (2, 2, 6)] {
        let name = format!("pod{index}");
        let (uid, job_uid, index) = (name.clone(), Some("job0".to_owned()), Some(index));
        let view = PodView {
            name,
            uid,
            job_uid,
            index,
            epoch: Epoch::Reported(epoch),
            workers,
            version: 1,
            ..PodView::default()
        };
        world
            .engine
            .apply(WatchEvent::child(key(&format!("a/{}", view.name)), &key("a/1"), View::Pod(view)), world.start);
    }
    for second in 0..60 {
        if let Some(work) = world.engine.next(world.now(second * 1_000)) {
            let error = RequestError { failure: Failure::Refused, note: None };
            let refused = work.actions.iter().map(|action| (Request::of(action), error.clone())).collect();
            let status = Some(Ok(work.status.is_some()));
            if let Some(status) = work.status.clone() {
                let mut jobset = JobSet::clone(&work.jobset);
                jobset.status = Some(status);
                world.observe(jobset);
            }
            let outcome = Outcome { failures: refused, status, ..Outcome::default() };
            world.engine.finish(&work.key, work.number, outcome, world.now(second * 1_000));
        }
    }
    let status = world.engine.store.jobset(&key("a/1")).unwrap().status.clone().unwrap();
    assert_eq!((status.deprecated_epoch, status.group_restarts), (2, 2));
}
