//! What is next, as answers come in.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jobset_api::{JobSet, JobSetStatus};
use jobset_rules::{Action, Note, Plan, plan};
use jobset_store::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use crate::*;

/// An engine with one JobSet for each name, as `namespace/name`, of so many Jobs each.
pub(super) struct TestEngine {
    pub engine: Engine,
    pub start: Instant,
    version: u64,
}

pub(super) fn key(text: &str) -> Key {
    let (namespace, name) = text.split_once('/').unwrap();
    Key { namespace: namespace.to_owned(), name: name.to_owned() }
}

impl TestEngine {
    pub(super) fn new(names: &[&str], jobs: usize) -> Self {
        let mut world = Self { engine: Engine::default(), start: Instant::now(), version: 0 };
        for name in names {
            world.create(name, jobs);
        }
        world
    }

    pub(super) fn now(&self, millis: u64) -> Now {
        Now { instant: self.start + Duration::from_millis(millis), time: Timestamp::UNIX_EPOCH }
    }

    pub(super) fn create(&mut self, name: &str, jobs: usize) {
        let key = key(name);
        let template = json!({"spec": {"template": {"spec": {"containers": []}}}});
        self.observe(
            serde_json::from_value(json!({
                "metadata": {"namespace": key.namespace, "name": key.name, "uid": name, "generation": 1,
                             "annotations": {(jobset_api::labels::RESTART_BUDGET): "Shared"}},
                "spec": {"network": {"enableDNSHostnames": false},
                         "replicatedJobs": [{"name": "w", "replicas": jobs, "template": template}]},
            }))
            .unwrap(),
        );
    }

    pub(super) fn observe(&mut self, mut jobset: JobSet) {
        self.version += 1;
        jobset.metadata.resource_version = Some(self.version.to_string());
        self.engine.apply(WatchEvent::jobset(Arc::new(jobset)), self.start);
    }

    pub(super) fn delete(&mut self, name: &str) {
        self.version += 1;
        self.engine.apply(WatchEvent::Gone(Kind::JobSet, key(name), self.version), self.start);
    }

    /// A Job of the replicatedJob `w` was observed.
    pub(super) fn put_job(&mut self, jobset: &str, index: i32, view: JobView) {
        let controller = ControllerRef { kind: "JobSet".to_owned(), name: key(jobset).name, uid: jobset.to_owned() };
        self.version += 1;
        let view = JobView {
            uid: format!("job{index}"),
            version: self.version,
            controller: Some(controller),
            replicated_job: "w".to_owned(),
            index: Some(index),
            attempt: Some(0),
            pods: view.pods.max(1),
            ..view
        };
        let event = WatchEvent::child(key(&format!("{jobset}-w-{index}")), &key(jobset), View::Job(view));
        self.engine.apply(event, self.start);
    }

    /// The status that the work writes is stored and observed, and its actions are accepted.
    pub(super) fn succeed(&mut self, work: Work, millis: u64) -> Effects {
        let accepted: HashSet<Request> = work.actions.iter().map(Request::of).collect();
        let mut written = Versions::NONE;
        let has_status = work.status.is_some();
        if let Some(status) = work.status {
            let mut jobset = JobSet::clone(&work.jobset);
            jobset.status = Some(status);
            self.observe(jobset);
            written = Versions::of(Kind::JobSet, self.version);
        }
        let outcome = Outcome { written, accepted, status: Some(Ok(has_status)), ..Outcome::default() };
        self.engine.finish(&work.key, work.number, outcome, self.now(millis))
    }

    /// The actions of the work are accepted, and nothing is observed of them.
    pub(super) fn accept(&mut self, work: &Work) {
        let accepted = work.actions.iter().map(Request::of).collect();
        let outcome = Outcome { accepted, status: Some(Ok(false)), ..Outcome::default() };
        self.engine.finish(&work.key, work.number, outcome, self.now(0));
    }

    pub(super) fn fail(&mut self, work: &Work, failure: Failure, millis: u64) -> Effects {
        let status = Err(RequestError { failure, note: Some(Note::warning("Refused", "no".to_owned())) });
        let outcome = Outcome { status: Some(status), ..Outcome::default() };
        self.engine.finish(&work.key, work.number, outcome, self.now(millis))
    }
}

impl Engine {
    pub(crate) fn plan_now(&self, key: &Key, now: Now) -> Option<(Arc<JobSet>, Plan)> {
        let observed = Observed::of(&self.store, key)?;
        Some((observed.jobset.clone(), plan(&observed, &self.settings, &Time(now.time))))
    }
}

#[test]
fn long_plan_is_sent_in_slices_later_ones_bulk() {
    let mut world = TestEngine::new(&["a/big"], 120);
    let mut slices = Vec::new();
    for _ in 0..4 {
        let work = world.engine.next(world.now(0)).unwrap();
        let creates = work.actions.iter().all(|action| matches!(action, Action::CreateJob(_)));
        assert!(creates, "{:?}", work.actions);
        slices.push((work.actions.len(), work.urgency));
        world.accept(&work);
    }
    assert_eq!(slices, [(8, Urgency::Urgent), (50, Urgency::Bulk), (50, Urgency::Bulk), (12, Urgency::Bulk)]);
}

#[test]
fn urgent_jobset_precedes_rest_of_big_plan() {
    let mut world = TestEngine::new(&["a/big"], 120);
    let work = world.engine.next(world.now(0)).unwrap();
    world.succeed(work, 0);
    world.create("b/small", 1);
    let order: Vec<String> = (0..2).map(|_| world.engine.next(world.now(0)).unwrap().key.to_string()).collect();
    assert_eq!(order, ["a/big", "b/small"].map(ToOwned::to_owned), "each has urgent work, in turn");
    assert!(world.engine.next(world.now(0)).is_none());
}

#[test]
fn next_bulk_work_leaves_half_of_the_places() {
    let names: Vec<String> = (0..PLACES + 2).map(|index| format!("{}/{index}", index % 2)).collect();
    let mut world = TestEngine::new(&names.iter().map(String::as_str).collect::<Vec<_>>(), 120);
    let first: Vec<Work> = std::iter::from_fn(|| world.engine.next(world.now(0))).collect();
    assert_eq!(first.iter().filter(|work| !work.actions.is_empty()).count(), PLACES);
    for work in &first {
        world.accept(work);
    }
    let next: Vec<Urgency> = std::iter::from_fn(|| world.engine.next(world.now(0))).map(|work| work.urgency).collect();
    let count = |urgency| next.iter().filter(|it| **it == urgency).count();
    assert_eq!((count(Urgency::Urgent), count(Urgency::Bulk)), (2, PLACES / 2));
}

#[test]
fn jobset_waits_five_seconds_to_observe_its_write() {
    let mut world = TestEngine::new(&["a/1"], 1);
    let work = world.engine.next(world.now(0)).unwrap();
    let accepted = work.actions.iter().map(Request::of).collect();
    let written = Versions::of(Kind::Job, 7);
    let outcome = Outcome { written, accepted, status: Some(Ok(true)), ..Outcome::default() };
    world.engine.finish(&work.key, work.number, outcome, world.now(0));
    world.create("a/1", 1);
    assert!(world.engine.next(world.now(10)).is_none(), "its Job was not observed");
    assert_eq!(world.engine.next_due(), Some(world.now(5_000).instant));
    assert!(world.engine.next(world.now(5_000)).is_some());
}

#[test]
fn finish_of_a_jobset_that_is_gone_has_no_effects() {
    let mut world = TestEngine::new(&["a/1"], 1);
    let work = world.engine.next(world.now(0)).unwrap();
    world.engine.apply(WatchEvent::Gone(Kind::JobSet, key("a/1"), 9), world.start);
    world.create("a/1", 1);
    let effects = world.fail(&work, Failure::Transient, 0);
    assert!(effects.failure.is_none() && effects.began.is_none(), "{effects:?}");
    assert!(world.engine.next(world.now(0)).is_some(), "another one of its name is not held");
}

#[test]
fn lost_answer_decision_is_told_once_status_is_observed() {
    let mut world = TestEngine::new(&["a/1"], 1);
    let work = world.engine.next(world.now(0)).unwrap();
    world.succeed(work, 0);
    // Its only Job fails, and there is no failure policy.
    let at = Timestamp::UNIX_EPOCH;
    let failed = Finished::Failed { reason: "BackoffLimitExceeded".to_owned(), message: String::new(), at };
    world.put_job("a/1", 0, JobView { finished: Some(failed), ..JobView::default() });
    // The API server stores whole seconds.
    let now = Now { time: Timestamp::new(1_700_000_000, 123_456_789).unwrap(), ..world.now(1_000) };
    let work = world.engine.next(now).unwrap();
    let status: JobSetStatus = work.status.clone().unwrap();
    assert_eq!(status.terminal_state, "Failed");
    let effects = world.fail(&work, Failure::Transient, 1_000);
    assert_eq!(effects.confirmed, Confirmed::default(), "nobody knows whether it is stored");
    let mut jobset = JobSet::clone(&work.jobset);
    jobset.status = Some(serde_json::from_value(serde_json::to_value(&status).unwrap()).unwrap());
    world.observe(jobset);
    let works: Vec<Work> = std::iter::from_fn(|| world.engine.next(world.now(2_000))).collect();
    let confirmed: Vec<&Confirmed> = works.iter().filter_map(|work| work.confirmed.as_ref()).collect();
    assert_eq!(confirmed.len(), 1, "{works:?}");
    assert_eq!((confirmed[0].facts.len(), confirmed[0].events.len()), (1, 1), "{confirmed:?}");
}

/// To compare one message with the patterns of a failure policy can take a tenth of a second.
#[test]
fn one_turn_compares_one_message_with_patterns() {
    const JOBS: i32 = 5;
    let mut world = TestEngine::new(&["a/1", "b/1"], 1);
    for name in ["a/1", "b/1"] {
        let mut jobset = JobSet::clone(world.engine.store.jobset(&key(name)).unwrap());
        jobset.spec.failure_policy = serde_json::from_value(json!({
            "maxRestarts": 3, "rules": [{"action": "FailJobSet", "onJobFailureMessagePatterns": ["x+"]}],
        }))
        .unwrap();
        world.observe(jobset);
        for index in 0..JOBS {
            let (reason, message) = ("BackoffLimitExceeded".to_owned(), "y".to_owned());
            let failed = Finished::Failed { reason, message, at: Timestamp::UNIX_EPOCH };
            world.put_job(name, index, JobView { finished: Some(failed), ..JobView::default() });
        }
    }
    let compared = |world: &TestEngine| {
        let of = |name| world.engine.store.entry(&key(name)).unwrap().noted_own_rules();
        of("a/1") + of("b/1")
    };
    let mut before = 0;
    while before < 2 * usize::try_from(JOBS).unwrap() {
        world.engine.next(world.now(10_000));
        let after = compared(&world);
        assert!(after <= before + 1, "{before}, then {after}");
        before = after;
    }
}
