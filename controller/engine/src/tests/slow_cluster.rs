//! The engine with a shell and an API server that answers in its own time.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use jobset_store::*;

use super::schedule::{TestEngine, key};
use crate::places::WorkClass;
use crate::refusals::Refusals;
use crate::*;

/// The limit of the client for one request, in milliseconds.
pub(super) const GIVEN_UP: u64 = 65_000;
/// How long a request takes that does not hang.
const QUICK: u64 = 20;
pub(super) const SLOW_MILLIS: u64 = 1_000;
pub(super) const JOBS: usize = 3;

/// How long the API server takes for the requests of a namespace, in milliseconds. What takes [`GIVEN_UP`] fails.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delays {
    pub status: u64,
    pub creation: u64,
}

pub(super) const NO_DELAY: Delays = Delays { status: QUICK, creation: QUICK };
pub(super) const CREATIONS_HANG: Delays = Delays { creation: GIVEN_UP, ..NO_DELAY };
pub(super) const STATUS_HANGS: Delays = Delays { status: GIVEN_UP, ..NO_DELAY };
pub(super) const ALL_HANG: Delays = Delays { status: GIVEN_UP, creation: GIVEN_UP };

/// A rule of the engine that is broken, for the tests to notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EngineMutation {
    /// A work holds its place until its slow requests are answered.
    SlowKeepsPlace,
    /// No slow request is cut short, however many there are.
    SlowUnbounded,
    /// What was slow and failed is sent again as if nobody knew.
    HangsForgotten,
}

/// The engine with a shell and an API server that answers in its own time.
pub(super) struct SlowCluster {
    pub world: TestEngine,
    broken: Option<EngineMutation>,
    pub millis: u64,
    events: BTreeMap<(u64, u64), Event>,
    scheduled: u64,
    delays: HashMap<String, Delays>,
    /// Slow requests that are neither answered nor cut short.
    pub slow: HashSet<RequestId>,
    pub most_slow: usize,
    /// When each JobSet was marked whose work has not begun.
    marked: HashMap<Key, u64>,
    created: HashMap<Key, u64>,
    /// How long each JobSet waited when it was last marked.
    pub waits: HashMap<Key, u64>,
    /// How long each JobSet waited for its first work with actions.
    pub waits_for_actions: HashMap<Key, u64>,
}

enum Event {
    Finish(Box<Work>),
    Answer(RequestId, Arc<Work>),
    Wake,
}

impl SlowCluster {
    pub(super) fn new(broken: Option<EngineMutation>) -> Self {
        Self {
            world: TestEngine::new(&[], 0),
            broken,
            millis: 0,
            events: BTreeMap::new(),
            scheduled: 0,
            delays: HashMap::new(),
            slow: HashSet::new(),
            most_slow: 0,
            marked: HashMap::new(),
            created: HashMap::new(),
            waits: HashMap::new(),
            waits_for_actions: HashMap::new(),
        }
    }

    /// So many namespaces of this prefix, each with one JobSet.
    pub(super) fn create_namespaces(&mut self, prefix: &str, namespaces: usize, delays: Delays) {
        for index in 0..namespaces {
            self.set_delays(&format!("{prefix}{index}"), delays);
            self.create(&format!("{prefix}{index}/train"));
        }
    }

    pub(super) fn set_delays(&mut self, namespace: &str, delays: Delays) {
        self.delays.insert(namespace.to_owned(), delays);
    }

    pub(super) fn create(&mut self, name: &str) {
        self.marked.insert(key(name), self.millis);
        self.created.insert(key(name), self.millis);
        self.world.create(name, JOBS);
    }

    pub(super) fn delete(&mut self, name: &str) {
        self.marked.remove(&key(name));
        self.created.remove(&key(name));
        self.world.delete(name);
        self.cut();
    }

    /// Something happens to the JobSet that is urgent.
    pub(super) fn mark(&mut self, name: &str) {
        let Some(jobset) = self.world.engine.store.jobset(&key(name)) else { return };
        let mut jobset = jobset_api::JobSet::clone(jobset);
        jobset.metadata.labels = Some([("changed".to_owned(), self.scheduled.to_string())].into());
        self.marked.entry(key(name)).or_insert(self.millis);
        self.world.observe(jobset);
    }

    fn schedule(&mut self, millis: u64, event: Event) {
        self.scheduled += 1;
        self.events.insert((millis, self.scheduled), event);
    }

    /// Lets everything happen until this time.
    pub(super) fn run(&mut self, until: u64) {
        loop {
            self.begin_works();
            let due = self.world.engine.next_due();
            let due = due.map(|due| u64::try_from(due.duration_since(self.world.start).as_millis()).unwrap() + 1);
            if let Some(due) = due.filter(|due| self.events.first_key_value().is_none_or(|(first, _)| *due < first.0)) {
                self.schedule(due.max(self.millis), Event::Wake);
            }
            let Some(next) = self.events.first_entry().filter(|event| event.key().0 <= until) else { break };
            self.millis = next.key().0;
            match next.remove() {
                Event::Wake => {}
                Event::Finish(work) => self.finish(*work),
                Event::Answer(id, work) => self.answer(&id, &work),
            }
            self.cut();
        }
        self.millis = until;
    }

    fn begin_works(&mut self) {
        while let Some(work) = self.world.engine.next(self.world.now(self.millis)) {
            if let Some(marked) = self.marked.remove(&work.key) {
                self.waits.insert(work.key.clone(), self.millis - marked);
            }
            if let Some(created) = self.created.get(&work.key).filter(|_| !work.actions.is_empty()) {
                self.waits_for_actions.entry(work.key.clone()).or_insert(self.millis - created);
            }
            let slowest = parts(&work).iter().map(|part| self.delay(&work, part)).max().unwrap_or(0);
            self.schedule(self.millis + slowest.min(SLOW_MILLIS), Event::Finish(Box::new(work)));
        }
    }

    fn delay(&self, work: &Work, part: &Part) -> u64 {
        let delays = self.delays[&work.key.namespace];
        if *part == Part::Status { delays.status } else { delays.creation }
    }

    fn finish(&mut self, work: Work) {
        let (slow, answered): (Vec<Part>, Vec<Part>) =
            parts(&work).into_iter().partition(|part| self.delay(&work, part) > SLOW_MILLIS);
        let mut outcome = Outcome { unanswered: slow.clone(), ..Outcome::default() };
        if work.status.is_none() {
            outcome.status = Some(Ok(false));
        }
        let work = Arc::new(work);
        for part in &answered {
            self.accept(&work, part, &mut outcome);
        }
        for part in slow {
            let at = self.millis + self.delay(&work, &part) - SLOW_MILLIS;
            let id = RequestId { work: work.number, part };
            self.slow.insert(id.clone());
            self.schedule(at, Event::Answer(id, Arc::clone(&work)));
        }
        let keeps_place = self.broken == Some(EngineMutation::SlowKeepsPlace) && !outcome.unanswered.is_empty();
        self.world.engine.finish(&work.key, work.number, outcome, self.world.now(self.millis));
        if keeps_place {
            let class = if work.actions.is_empty() { WorkClass::Status } else { WorkClass::Actions };
            self.world.engine.places.take(work.number, class, work.urgency, &work.key.namespace);
        }
    }

    fn answer(&mut self, id: &RequestId, work: &Work) {
        if !self.slow.remove(id) {
            return;
        }
        let mut outcome = Outcome::default();
        if self.delay(work, &id.part) < GIVEN_UP {
            self.accept(work, &id.part, &mut outcome);
        } else {
            fail(work, &id.part, &mut outcome);
        }
        self.tell(id, work, outcome);
    }

    /// Tells the engine of the answer to a slow request.
    fn tell(&mut self, id: &RequestId, work: &Work, outcome: Outcome) {
        if self.broken == Some(EngineMutation::SlowKeepsPlace) {
            self.world.engine.places.give_back(id.work);
        }
        self.world.engine.answer(&work.key, id, outcome, self.world.now(self.millis));
        if self.broken == Some(EngineMutation::HangsForgotten)
            && let Some(progress) = self.world.engine.progress.get_mut(&work.key)
        {
            (progress.refusals, progress.status_hangs) = (Refusals::default(), false);
        }
    }

    /// Cuts requests short, as the engine says.
    fn cut(&mut self) {
        let mut cut = self.world.engine.take_cut();
        if self.broken == Some(EngineMutation::SlowUnbounded) {
            cut.clear();
        }
        for id in cut {
            assert!(self.slow.remove(&id), "{id:?} is cut short, and is not slow");
            let find = |event: &Event| match event {
                Event::Answer(other, work) if *other == id => Some(Arc::clone(work)),
                _ => None,
            };
            let work = self.events.values().find_map(find).unwrap();
            let mut outcome = Outcome::default();
            fail(&work, &id.part, &mut outcome);
            self.tell(&id, &work, outcome);
        }
        self.most_slow = self.most_slow.max(self.slow.len());
    }

    /// The request is carried out, and observed.
    fn accept(&mut self, work: &Work, part: &Part, outcome: &mut Outcome) {
        let is_there = self.world.engine.store.jobset(&work.key).is_some();
        match part {
            Part::Status => {
                outcome.status = Some(Ok(true));
                if is_there {
                    let mut jobset = jobset_api::JobSet::clone(&work.jobset);
                    jobset.status.clone_from(&work.status);
                    self.world.observe(jobset);
                }
            }
            Part::Action(request) => {
                outcome.accepted.insert(request.clone());
                if is_there {
                    let index = request.name().rsplit('-').next().unwrap().parse().unwrap();
                    let view = JobView { parallelism: 1, ..JobView::default() };
                    self.world.put_job(&work.key.to_string(), index, view);
                }
            }
        }
    }
}

fn parts(work: &Work) -> Vec<Part> {
    let actions = work.actions.iter().map(|action| Part::Action(Request::of(action)));
    actions.chain(work.status.iter().map(|_| Part::Status)).collect()
}

fn fail(work: &Work, part: &Part, outcome: &mut Outcome) {
    let error = RequestError { failure: Failure::Transient, note: None };
    match part {
        Part::Status => outcome.status = Some(Err(error)),
        Part::Action(request) => {
            let action = work.actions.iter().find(|action| Request::of(action) == *request).unwrap();
            outcome.failures.push((Request::shared(action).unwrap_or_else(|| request.clone()), error));
        }
    }
}
