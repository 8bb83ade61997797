//! The loop around the engine. The engine takes in the events of the watches, and the loop sends the requests of its work while
//! this replica leads. A standby replica only takes in the events.
//!
//! One task owns the engine. Only the requests run beside it. Those that are slow leave their work ([`LateAnswers`]).

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use futures::StreamExt;
use futures::future::{self, BoxFuture};
use futures::stream::FuturesUnordered;
use jobset_api::JobSet;
use jobset_engine::{Confirmed, Effects, Engine, Failure, Now, Outcome, Work};
use jobset_store::{Key, Kind, WatchEvent};
use kube::Client;
use prometheus::Registry;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};

use super::apply::{Answers, Applier, LateAnswer, LateAnswers};
use super::client::Workers;
use super::error::ApplyError;
use super::events::Events;
use super::lease::Leadership;
use super::metrics::{Ledger, NodeMetrics, ObjectMetrics, Reconciliations};
use super::retry_log::RetryLog;
use super::serve::Health;
use super::stream::Stream;
use super::{feed, installed};
use crate::args::Args;

/// Most events that are taken in before the next work begins. A burst of thousands costs few plans, and no work waits for its end.
const EVENTS_AT_ONCE: usize = 512;
/// Longest time between two turns of the loop, also if no work is due: `/healthz` and the watchdog of the Lease ask for the last
/// turn.
pub(super) const TICK: Duration = Duration::from_secs(1);
/// Time between two attempts to list the objects of a JobSet.
const LIST_AGAIN: Duration = Duration::from_secs(5);
/// How long requests under way may take when the controller stops.
const DRAIN: Duration = Duration::from_secs(20);

type Ended = (Key, u64, Arc<JobSet>, Answers);

/// Runs until `stop`, and then until the requests under way have ended.
pub async fn run(
    workers: Workers,
    args: &Args,
    health: Health,
    registry: &Registry,
    mut leadership: watch::Receiver<Leadership>,
    stop: CancellationToken,
) -> anyhow::Result<()> {
    let stream = Stream::of(args, &workers, registry)?;
    match stop.run_until_cancelled(installed::check(&workers.urgent)).await {
        Some(checked) => checked?,
        None => return Ok(()),
    }
    let mut feed = feed::feed(&workers.urgent, args.namespace.as_deref()).ready_chunks(EVENTS_AT_ONCE);
    let mut running: FuturesUnordered<BoxFuture<'static, Ended>> = FuturesUnordered::new();
    let mut late = LateAnswers::default();
    let mut listing: FuturesUnordered<BoxFuture<'static, (Key, Vec<WatchEvent>)>> = FuturesUnordered::new();
    let mut state = Reconciler::new(workers.clone(), args, registry, stream)?;
    loop {
        let now = Instant::now();
        health.begin_turn(now);
        let present = *leadership.borrow_and_update();
        let leads = present.holds(now);
        let works = leads && state.engine.store().is_complete();
        state.metrics.works(works);
        present.clock().into_iter().for_each(|clock| state.engine.set_stream_clock(clock));
        state.run_stream(works);
        // One plan at a time: events that arrive meanwhile may be more urgent than the next one.
        let work = if works { state.next(&health) } else { None };
        let more = work.is_some();
        running.extend(work.map(|work| state.start(work)));
        state.engine.take_cut().iter().for_each(|request| late.cut(request));
        listing.extend(state.engine.take_relist().into_iter().map(|key| list_again(workers.urgent.clone(), key)));
        state.measure(leads);
        let tick = now + TICK;
        let due = state.engine.next_due().filter(|_| works).map_or(tick, |due| due.min(tick));
        tokio::select! {
            events = feed.next() => {
                let Some(events) = events else { break };
                for event in events {
                    state.see(event);
                }
                if state.engine.store().is_complete() {
                    health.set_ready();
                }
            }
            Some(ended) = running.next() => state.finish(ended, &mut late),
            Some(answer) = late.next() => state.answer(answer),
            event = state.stream.next() => state.engine.hear(event, Now::read()),
            Some((key, objects)) = listing.next() => state.engine.rebuild(&key, objects, Instant::now()),
            // Without a sender the election has ended, and the program ends.
            Ok(()) = leadership.changed() => {}
            () = future::ready(()), if more => {}
            () = tokio::time::sleep_until(due.into()) => {}
            () = stop.cancelled() => break,
        }
    }
    info!(under_way = running.len(), "stopping");
    state.metrics.works(false);
    let drained = async {
        // Nobody waits for what is slow. The next leader reads what has become of it.
        while let Some(ended) = running.next().await {
            state.finish(ended, &mut LateAnswers::default());
            state.send();
        }
        state.events.sent().await;
    };
    let drained = tokio::time::timeout(DRAIN, taking_turns(&health, drained)).await;
    drained.context("the requests under way did not end in time; the Lease expires by itself")
}

/// Waits for the work. The loop goes on meanwhile.
async fn taking_turns<T>(health: &Health, work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    loop {
        health.begin_turn(Instant::now());
        if let Ok(done) = tokio::time::timeout(TICK, &mut work).await {
            return done;
        }
    }
}

/// Lists the objects of a JobSet again, until that succeeds.
fn list_again(client: Client, key: Key) -> BoxFuture<'static, (Key, Vec<WatchEvent>)> {
    Box::pin(async move {
        info!(jobset = %key, "the objects of the JobSet are listed again: after a panic, or since there is memory for it");
        loop {
            match feed::list(&client, &key).await {
                Ok(objects) => return (key, objects),
                Err(error) => debug!(jobset = %key, error = &error as &dyn std::error::Error, "a list failed"),
            }
            tokio::time::sleep(LIST_AGAIN).await;
        }
    })
}

struct Reconciler {
    engine: Engine,
    applier: Applier,
    events: Events,
    ledger: Ledger,
    objects: Option<ObjectMetrics>,
    nodes: NodeMetrics,
    metrics: Reconciliations,
    retry_log: RetryLog,
    stream: Stream,
}

impl Reconciler {
    fn new(workers: Workers, args: &Args, registry: &Registry, stream: Stream) -> prometheus::Result<Self> {
        Ok(Self {
            engine: Engine::new(args.settings()).in_namespace(args.namespace.clone()),
            events: Events::new(workers.bulk.clone(), registry)?,
            applier: Applier::new(workers),
            ledger: Ledger::register(registry)?,
            objects: args.metrics_per_jobset.then(|| ObjectMetrics::register(registry)).transpose()?,
            nodes: NodeMetrics::register(registry)?,
            metrics: Reconciliations::register(registry)?,
            retry_log: RetryLog::default(),
            stream,
        })
    }

    /// The next work. Others learn for which JobSet a plan is made.
    fn next(&mut self, health: &Health) -> Option<Work> {
        let work = self.engine.next_by(Now::read(), |observed, settings, now| {
            health.begin_plan(&Key::of(observed.jobset.as_ref()));
            jobset_rules::plan(observed, settings, now)
        });
        health.end_plan();
        work
    }

    fn measure(&self, leads: bool) {
        // No work of a standby replica waits.
        let waiting = Some(&self.engine).filter(|_| leads);
        self.metrics.waiting(waiting.map_or(0, Engine::depth), waiting.and_then(Engine::oldest_urgent));
        self.metrics.slow_requests(self.engine.slow_requests());
        self.metrics.internal_errors(self.engine.internal_errors());
        self.stream.measure(self.engine.stream_counts());
    }

    fn see(&mut self, event: WatchEvent) {
        if let WatchEvent::Gone(Kind::Namespace, namespace, _) = &event {
            self.ledger.forget_namespace(&namespace.name);
        }
        for key in self.engine.apply(event, Instant::now()) {
            self.ledger.forget(&key, Now::read().time);
            self.nodes.forget(&key);
            if let Some(objects) = &self.objects {
                objects.forget(&key);
            }
        }
    }

    /// Does what is due on the stream, which is open while this replica works.
    fn run_stream(&mut self, works: bool) {
        self.stream.work(works);
        if !works {
            self.engine.forget_relays();
        }
        self.send();
    }

    /// Hands what the engine says to the sockets.
    fn send(&mut self) {
        self.stream.carry_out(self.engine.take_stream_work(Instant::now()));
    }

    fn start(&mut self, mut work: Work) -> BoxFuture<'static, Ended> {
        let (key, number, jobset) = (work.key.clone(), work.number, Arc::clone(&work.jobset));
        debug!(jobset = %key, actions = work.actions.len(), status = work.status.is_some(), "planned");
        self.ledger.see(&key, &jobset);
        self.nodes.see(&key, &jobset);
        if let Some(objects) = &self.objects {
            objects.see(&key, &jobset, self.engine.barrier(&key, Now::read()));
        }
        if let Some(confirmed) = work.confirmed.take() {
            self.record(&key, &jobset, confirmed);
        }
        let applier = self.applier.clone();
        Box::pin(async move { (key, number, jobset, applier.apply(work).await) })
    }

    /// Takes the answers to a work in. Its slow requests go on.
    fn finish(&mut self, (key, number, jobset, mut answers): Ended, late: &mut LateAnswers) {
        late.extend(&key, number, &jobset, std::mem::take(&mut answers.slow));
        let outcome = self.take_in(&key, &mut answers);
        let now = Now::read();
        let effects = self.engine.finish(&key, number, outcome, now);
        self.carry_out(&key, &jobset, effects, now);
    }

    /// Takes the answer to a slow request in.
    fn answer(&mut self, LateAnswer { key, id, jobset, mut answers }: LateAnswer) {
        let outcome = self.take_in(&key, &mut answers);
        let now = Now::read();
        let effects = self.engine.answer(&key, &id, outcome, now);
        self.carry_out(&key, &jobset, effects, now);
    }

    /// What of answers the engine needs. The log has the rest.
    fn take_in(&mut self, key: &Key, answers: &mut Answers) -> Outcome {
        // The program ends after the loss of the leadership, and logs that.
        if !answers.errors.iter().any(ApplyError::is_not_leading) {
            self.log(key, &answers.errors);
        }
        self.ledger.released(key, answers.released);
        std::mem::take(&mut answers.outcome)
    }

    fn carry_out(&mut self, key: &Key, jobset: &JobSet, effects: Effects, now: Now) {
        if let Some(began) = effects.began {
            self.metrics.ended(effects.failure, now.instant.duration_since(began));
        }
        self.record(key, jobset, effects.confirmed);
    }

    fn record(&mut self, key: &Key, jobset: &JobSet, confirmed: Confirmed) {
        self.ledger.written(key, &confirmed.facts, Now::read().time);
        self.events.send(jobset, confirmed.events);
    }

    fn log(&mut self, key: &Key, errors: &[ApplyError]) {
        match errors.iter().find(|error| error.failure() == Failure::Transient) {
            Some(error) => self.retry_log.failed("reconciliations", error),
            None => self.retry_log.succeeded("reconciliations"),
        }
        for error in errors.iter().filter(|error| error.failure() != Failure::Transient) {
            debug!(jobset = %key, error = error as &dyn std::error::Error, "a request failed");
        }
    }
}
