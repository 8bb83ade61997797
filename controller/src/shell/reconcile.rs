//! The loop: whatever is seen goes into the store and marks its JobSet; whatever is due is planned and applied, while this
//! replica leads. One that stands by does all of it but the last.
//!
//! One task owns store, queue and the rest of [`Reconciler`]; only the requests run beside it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use jobset_api::JobSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use prometheus::Registry;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::apply::{Applied, Applier};
use super::coalesce::{Writes, urgent};
use super::error::{Error, RequestFailure};
use super::feed::{self, Listed};
use super::installed;
use super::lease::Leadership;
use super::metrics::{Ledger, ObjectMetrics, PassResult, Passes};
use super::notes::{Notes, Stored};
use super::postponed::Postponed;
use super::queue::{LONGEST_IN_BAD_WEATHER, LONGEST_WHEN_REFUSED, Queue};
use super::retry_log::RetryLog;
use super::serve::Health;
use crate::observe::Observed;
use crate::plan::{Fact, Note, Plan, Settings, barrier, plan};
use crate::store::{Change, Key, Store, Versions, WatchEvent, dialect};

/// JobSets that are worked on at once.
const CONCURRENT_JOBSETS: usize = 16;
/// Events that are stored before the next pass is started, if so many are there: a burst of thousands costs few passes,
/// and no pass waits for the end of the burst.
const EVENTS_AT_ONCE: usize = 512;
/// How long a JobSet waits for its own writes to be seen. They are seen at once; a watch that began anew after one of
/// them was undone might never show it.
const CATCH_UP: Duration = Duration::from_secs(5);
/// How long the loop waits when nothing is delayed, and the longest time until a JobSet that asks for another pass gets it:
/// the clock by which it asks may be set in between.
const IDLE: Duration = Duration::from_hours(1);
/// How long passes that are under way may take when the controller shall stop.
const DRAIN: Duration = Duration::from_secs(20);

/// What the loop works on.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The only namespace to look at; all of them without.
    pub namespace: Option<String>,
    /// How to work.
    pub settings: Settings,
    /// Whether the metrics have the state of each JobSet.
    pub metrics_per_jobset: bool,
}

/// How one reconciliation ended.
struct ReconciliationOutcome {
    key: Key,
    jobset: Arc<JobSet>,
    /// Of the status that it writes.
    planned: Stored,
    notes: Vec<Note>,
    facts: Vec<Fact>,
    /// Whether it had nothing to write before it goes on.
    settled: bool,
    /// When the JobSet is due again although nothing has changed.
    due: Option<Instant>,
    began: Instant,
    applied: Applied,
}

/// Runs until `stop`; requests that are under way then are finished.
///
/// # Errors
/// If a metric is registered already, the CRD is older than this build, or the passes under way do not end in time.
pub async fn run(
    client: Client,
    options: Options,
    health: Health,
    registry: &Registry,
    mut leadership: watch::Receiver<Leadership>,
    stop: CancellationToken,
) -> Result<(), Error> {
    match stop.run_until_cancelled(installed::check(&client)).await {
        Some(checked) => checked?,
        None => return Ok(()),
    }
    let mut feed = feed::feed(&client, options.namespace.as_deref()).ready_chunks(EVENTS_AT_ONCE);
    let mut listed = Listed::default();
    let mut running: FuturesUnordered<BoxFuture<'static, ReconciliationOutcome>> = FuturesUnordered::new();
    let mut state = Reconciler::new(client, options.settings, options.metrics_per_jobset, registry)?;
    loop {
        let leads = leadership.borrow_and_update().holds(Instant::now());
        let works = leads && listed.all();
        state.passes.works(works);
        while works
            && running.len() < CONCURRENT_JOBSETS
            && let Some(pass) = state.start_next()
        {
            running.push(pass);
        }
        // While another leads, nothing waits here.
        state.passes.waiting(if leads { state.queue.depth() } else { 0 });
        // With all places taken, nothing that becomes due can be started.
        let free = works && running.len() < CONCURRENT_JOBSETS;
        let due = state.queue.next_due().filter(|_| free).unwrap_or_else(|| Instant::now() + IDLE);
        tokio::select! {
            events = feed.next() => {
                let Some(events) = events else { break };
                for seen in events {
                    listed.note(&seen);
                    if let WatchEvent::Namespace(Change::Gone(namespace, _)) = &seen {
                        state.ledger.forget_namespace(&namespace.name);
                    }
                    let changed = state.store.see(seen);
                    state.mark(changed);
                }
                if listed.all() {
                    health.set_ready();
                }
            }
            Some(pass) = running.next() => state.finish(pass),
            // Without a sender the election is over, and so is this program.
            Ok(()) = leadership.changed() => {}
            () = tokio::time::sleep_until(due.into()) => {}
            () = stop.cancelled() => break,
        }
    }
    info!(under_way = running.len(), "stopping");
    state.passes.works(false);
    let drained = async {
        while let Some(pass) = running.next().await {
            state.finish(pass);
        }
        state.notes.sent().await;
    };
    tokio::time::timeout(DRAIN, drained).await.map_err(|_| Error::NotDrained)
}

struct Reconciler {
    store: Store,
    queue: Queue,
    /// What the last pass wrote, and until when the next one waits for it: a pass that has not seen what the one before
    /// wrote would write it again.
    awaited: HashMap<Key, (Versions, Instant)>,
    writes: Writes,
    postponed: Postponed,
    notes: Notes,
    ledger: Ledger,
    objects: Option<ObjectMetrics>,
    passes: Passes,
    retry_log: RetryLog,
    applier: Applier,
    settings: Settings,
}

impl Reconciler {
    fn new(client: Client, settings: Settings, per_jobset: bool, registry: &Registry) -> Result<Self, Error> {
        Ok(Self {
            store: Store::default(),
            queue: Queue::default(),
            awaited: HashMap::new(),
            writes: Writes::default(),
            postponed: Postponed::default(),
            notes: Notes::new(client.clone()),
            ledger: Ledger::register(registry)?,
            objects: per_jobset.then(|| ObjectMetrics::register(registry)).transpose()?,
            passes: Passes::register(registry)?,
            retry_log: RetryLog::default(),
            applier: Applier::new(client),
            settings,
        })
    }

    fn mark(&mut self, keys: Vec<Key>) {
        for key in keys {
            if self.exists(&key) {
                self.queue.mark(key);
            } else {
                self.forget(&key);
            }
        }
    }

    fn exists(&self, key: &Key) -> bool {
        self.store.jobset(key).is_some()
    }

    fn forget(&mut self, key: &Key) {
        self.queue.forget(key);
        self.awaited.remove(key);
        self.writes.forget(key);
        self.postponed.forget(key);
        self.notes.forget(key);
        self.ledger.forget(key);
        if let Some(objects) = &self.objects {
            objects.forget(key);
        }
    }

    /// Plans the next JobSet that is due; what comes back applies the plan.
    fn start_next(&mut self) -> Option<BoxFuture<'static, ReconciliationOutcome>> {
        loop {
            let began = Instant::now();
            let key = self.queue.pop(began)?;
            if let Some((written, until)) = self.awaited.get(&key)
                && !self.store.has_seen(*written)
                && began < *until
            {
                // Its own writes will mark it.
                self.queue.postpone(&key, *until);
                continue;
            }
            self.awaited.remove(&key);
            let Some(seen) = Observed::of(&self.store, &key) else {
                self.queue.succeeded(&key, None);
                continue;
            };
            let jobset = seen.jobset.clone();
            self.ledger.see(&key, &jobset);
            let now = Timestamp::now();
            if let Some(objects) = &self.objects {
                objects.see(&key, &jobset, barrier(&seen, &self.settings, &Time(now)));
            }
            let report_attempts = seen.report_attempts();
            let mut plan = plan(&seen, &self.settings, &Time(now));
            let due = self.withhold(&key, &jobset, &mut plan, began, now);
            let settled = jobset.status.clone().unwrap_or_default() == plan.status;
            let planned = Stored::of(&plan.status);
            let (notes, facts) = (std::mem::take(&mut plan.notes), std::mem::take(&mut plan.facts));
            debug!(jobset = %key, actions = plan.actions.len(), ?due, "planned");
            let requests = self.applier.clone();
            return Some(Box::pin(async move {
                let status = (!settled).then(|| dialect::encode(plan.status, report_attempts));
                let applied = requests.apply(&jobset, plan.actions, status).await;
                ReconciliationOutcome { key, jobset, planned, notes, facts, settled, due, began, applied }
            }));
        }
    }

    /// Takes out of the plan what shall wait; when the JobSet is due again.
    fn withhold(
        &mut self,
        key: &Key,
        jobset: &JobSet,
        plan: &mut Plan,
        now: Instant,
        time: Timestamp,
    ) -> Option<Instant> {
        let asked = plan.requeue.map(|at| {
            let wait = Duration::try_from(at.duration_since(time)).unwrap_or_default();
            now + wait.min(IDLE)
        });
        let stored = jobset.status.clone().unwrap_or_default();
        let paused = if plan.facts.is_empty() && !urgent(&stored, &plan.status) && plan.status != stored {
            self.writes.pause(key, now)
        } else {
            None
        };
        let settled = paused.is_some() || plan.status == stored;
        if paused.is_some() {
            plan.status = stored;
        }
        let postponed = self.postponed.withhold(key, jobset.metadata.generation, &mut plan.actions, settled, now);
        [asked, paused, postponed].into_iter().flatten().min()
    }

    /// Reports, and lets the JobSet be due again.
    fn finish(&mut self, pass: ReconciliationOutcome) {
        let key = pass.key.clone();
        self.conclude(pass);
        // It may have gone while it was worked on.
        if !self.exists(&key) {
            self.forget(&key);
        }
    }

    fn conclude(&mut self, pass: ReconciliationOutcome) {
        let ReconciliationOutcome { key, jobset, planned, notes, facts, settled, mut due, began, applied } = pass;
        let now = Instant::now();
        let generation = jobset.metadata.generation;
        let Applied { written, failures, provided, accepted, status } = applied;
        if matches!(status, Ok(true)) {
            self.writes.written(&key, now);
            self.ledger.written(&key, &facts, Timestamp::now());
        }
        if !self.store.has_seen(written) {
            self.awaited.insert(key.clone(), (written, now + CATCH_UP));
        }
        let mut soonest = |at: Instant| due = Some(due.map_or(at, |due| due.min(at)));
        for request in provided {
            soonest(self.postponed.provided(&key, generation, request, now));
        }
        let mut worst = Worst::default();
        for (request, error) in failures {
            if error.failure() == RequestFailure::Refused {
                soonest(self.postponed.refused(&key, generation, request, error.note(), now));
            }
            worst.add(error);
        }
        for request in accepted {
            self.postponed.accepted(&key, &request, now);
        }
        self.keep_refused(&key, &worst, settled);
        let stored = match status {
            Ok(_) => Some(planned),
            Err(error) => {
                worst.status_refused = error.failure() == RequestFailure::Refused;
                worst.add(error);
                None
            }
        };
        self.passes.ended(worst.result(), now.duration_since(began));
        self.report(&key, &jobset, notes, stored, &worst);
        match &worst.error {
            Some((RequestFailure::Weather, _)) => {
                self.queue.failed(&key, now, LONGEST_IN_BAD_WEATHER);
            }
            _ if worst.status_refused => {
                self.queue.failed(&key, now, LONGEST_WHEN_REFUSED);
            }
            Some((RequestFailure::Outdated, _)) => {
                self.queue.outdated(&key, now);
            }
            _ => self.queue.succeeded(&key, due),
        }
    }

    /// Lets the rules see what is refused at present. In bad weather nobody knows that nothing is, nor after a pass that had
    /// something to write before it could go on.
    fn keep_refused(&mut self, key: &Key, worst: &Worst, settled: bool) {
        let refused: Vec<String> = self.postponed.notes(key).into_iter().map(|(note, _)| note.message).collect();
        let unknown = refused.is_empty() && (!settled || matches!(worst.error, Some((RequestFailure::Weather, _))));
        if !unknown && self.store.set_refused(key, refused) {
            self.queue.mark(key.clone());
        }
    }

    fn report(&mut self, key: &Key, jobset: &JobSet, mut notes: Vec<Note>, stored: Option<Stored>, worst: &Worst) {
        match &worst.error {
            // This program is about to end, and says so.
            Some((_, error)) if error.is_not_leading() => return,
            Some((RequestFailure::Weather, error)) => self.retry_log.failed("passes", error),
            Some((_, error)) => {
                self.retry_log.succeeded("passes");
                debug!(jobset = %key, error = error as &dyn std::error::Error, "not everything was carried out");
            }
            None => self.retry_log.succeeded("passes"),
        }
        if stored.is_none() {
            if !worst.status_refused {
                // What was not stored has not happened; what was told before still holds.
                return;
            }
            notes.clear();
            notes.extend(worst.error.as_ref().and_then(|(_, error)| error.note()));
        }
        let refused = self.postponed.notes(key);
        let stored = stored.unwrap_or_else(|| jobset.status.as_ref().map_or_else(Stored::default, Stored::of));
        self.notes.report(key, jobset, stored, notes, refused);
    }
}

/// The failure of a pass that decides when the next one comes; of several alike, the first.
#[derive(Default)]
struct Worst {
    error: Option<(RequestFailure, Error)>,
    status_refused: bool,
}

impl Worst {
    fn add(&mut self, error: Error) {
        let failure = error.failure();
        if self.error.as_ref().is_none_or(|(worst, _)| *worst < failure) {
            self.error = Some((failure, error));
        }
    }

    fn result(&self) -> PassResult {
        self.error.as_ref().map_or(PassResult::Success, |(failure, _)| PassResult::Failure(*failure))
    }
}
