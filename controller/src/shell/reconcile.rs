//! The loop: whatever is seen goes into the store and marks its JobSet; whatever is due is planned and applied.
//!
//! One task owns store, queue and notes; only the requests run beside it.

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
use tracing::{debug, info, warn};

use super::apply::apply;
use super::error::Error;
use super::feed::{self, Listed};
use super::health::Health;
use super::notes::Notes;
use super::queue::Queue;
use crate::observe::Observed;
use crate::plan::{Note, Settings, plan};
use crate::store::{Key, Store, Versions};

/// JobSets that are worked on at once.
const CONCURRENT_JOBSETS: usize = 16;
/// How long a JobSet waits for its own writes to be seen. They are seen at once; a watch that began anew after one of
/// them was undone might never show it.
const CATCH_UP: Duration = Duration::from_secs(5);
/// How long the loop waits when nothing is delayed.
const IDLE: Duration = Duration::from_hours(1);

/// What the loop works on.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// The only namespace to look at; all of them without.
    pub namespace: Option<String>,
    /// How to work.
    pub settings: Settings,
}

/// How one pass ended.
struct Pass {
    key: Key,
    jobset: Arc<JobSet>,
    notes: Vec<Note>,
    written: Versions,
    result: Result<(), Error>,
}

/// Runs until `stop` is done; requests that are under way then are finished.
pub async fn run(client: Client, options: Options, health: Health, stop: impl Future<Output = ()>) {
    let mut feed = feed::feed(&client, options.namespace.as_deref());
    let mut listed = Listed::default();
    let mut running: FuturesUnordered<BoxFuture<'static, Pass>> = FuturesUnordered::new();
    let mut state = State {
        store: Store::default(),
        queue: Queue::default(),
        awaited: HashMap::new(),
        notes: Notes::new(client.clone()),
        settings: options.settings,
    };
    let mut stop = std::pin::pin!(stop);
    loop {
        if listed.all() {
            while running.len() < CONCURRENT_JOBSETS
                && let Some(pass) = state.start_next(&client)
            {
                running.push(pass);
            }
        }
        // With all places taken, nothing that becomes due can be started.
        let free = running.len() < CONCURRENT_JOBSETS;
        let due = state.queue.next_due().filter(|_| free).unwrap_or_else(|| Instant::now() + IDLE);
        tokio::select! {
            seen = feed.next() => {
                let Some(seen) = seen else { break };
                listed.note(&seen);
                if listed.all() {
                    health.set_ready();
                }
                let changed = state.store.see(seen);
                state.mark(changed);
            }
            Some(pass) = running.next() => state.finish(pass),
            () = tokio::time::sleep_until(due.into()) => {}
            () = &mut stop => break,
        }
    }
    info!(under_way = running.len(), "stopping");
    while let Some(pass) = running.next().await {
        state.finish(pass);
    }
}

struct State {
    store: Store,
    queue: Queue,
    /// What the last pass wrote, and until when the next one waits for it: a pass that has not seen what the one before
    /// wrote would write it again.
    awaited: HashMap<Key, (Versions, Instant)>,
    notes: Notes,
    settings: Settings,
}

impl State {
    fn mark(&mut self, keys: Vec<Key>) {
        for key in keys {
            self.queue.mark(key);
        }
    }

    /// Plans the next JobSet that is due; what comes back applies the plan.
    fn start_next(&mut self, client: &Client) -> Option<BoxFuture<'static, Pass>> {
        loop {
            let now = Instant::now();
            let key = self.queue.pop(now)?;
            if let Some((written, until)) = self.awaited.get(&key)
                && !self.store.has_seen(*written)
                && now < *until
            {
                // Its own writes will mark it.
                self.queue.postpone(&key, *until);
                continue;
            }
            self.awaited.remove(&key);
            let Some(seen) = Observed::of(&self.store, &key) else {
                self.notes.forget(&key);
                self.queue.succeeded(&key);
                continue;
            };
            let mut plan = plan(&seen, &self.settings, &Time(Timestamp::now()));
            let notes = std::mem::take(&mut plan.notes);
            debug!(jobset = %key, actions = plan.actions.len(), "planned");
            let (client, jobset) = (client.clone(), seen.jobset.clone());
            if let Some(at) = plan.requeue {
                let wait = Duration::try_from(at.duration_since(Timestamp::now())).unwrap_or_default();
                self.queue.mark_at(&key, now + wait);
            }
            return Some(Box::pin(async move {
                let mut written = Versions::default();
                let result = apply(&client, &key, &jobset, plan, &mut written).await;
                Pass { key, jobset, notes, written, result }
            }));
        }
    }

    /// Reports, and lets the JobSet be due again.
    fn finish(&mut self, pass: Pass) {
        let Pass { key, jobset, notes, written, result } = pass;
        if !self.store.has_seen(written) {
            self.awaited.insert(key.clone(), (written, Instant::now() + CATCH_UP));
        }
        match result {
            Ok(()) => {
                self.notes.report(&key, &jobset, notes);
                self.queue.succeeded(&key);
            }
            Err(error) => {
                let now = Instant::now();
                let outdated = error.is_conflict();
                let delay = if outdated { self.queue.outdated(&key, now) } else { self.queue.failed(&key, now) };
                let cause = &error as &dyn std::error::Error;
                if outdated {
                    debug!(jobset = %key, error = cause, ?delay, "outdated view, trying again");
                    return;
                }
                warn!(jobset = %key, error = cause, ?delay, "pass failed, trying again");
                // What was not stored has not happened.
                let stored = !matches!(error, Error::WriteStatus(..));
                let mut notes = if stored { notes } else { Vec::new() };
                notes.extend(error.note());
                self.notes.report(&key, &jobset, notes);
            }
        }
    }
}
