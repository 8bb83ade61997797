//! What the controller was shown, kept plainly: the store has to be worth as much as one that is filled with it anew.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jobset_api::JobSet;

use super::api::child;
use super::cluster::{Checked, SimulatedCluster};
use super::properties::{SimulationProperty, SimulationViolation};
use super::scenario::key;
use crate::observe::Observed;
use crate::store::pods::{JobPods, PodView};
use crate::store::{Change, JobView, Store, WatchEvent};

#[derive(Debug, Default)]
pub(super) struct Shown {
    jobset: Option<Arc<JobSet>>,
    jobs: OfKind<JobView>,
    pods: OfKind<PodView>,
}

/// Objects by name.
#[derive(Debug)]
struct OfKind<V> {
    objects: BTreeMap<String, V>,
    listed: BTreeSet<String>,
}

impl<V> Default for OfKind<V> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), listed: BTreeSet::new() }
    }
}

impl<V: Clone> OfKind<V> {
    /// Whether a listing has ended.
    fn note(&mut self, change: &Change<V>) -> bool {
        match change {
            Change::Put { object, view, .. } => {
                self.objects.insert(object.name.clone(), view.clone());
                self.listed.insert(object.name.clone());
            }
            Change::Gone(object, _) => {
                self.objects.remove(&object.name);
            }
            Change::ListingBegins => self.listed.clear(),
            Change::ListingEnded => self.objects.retain(|name, _| self.listed.contains(name)),
        }
        matches!(change, Change::ListingEnded)
    }
}

impl Shown {
    /// Notes an event. Whether a listing has ended with it.
    pub(super) fn note(&mut self, seen: &WatchEvent) -> bool {
        match seen {
            WatchEvent::JobSet(Change::Put { view, .. }) => {
                self.jobset = Some(view.clone());
                false
            }
            WatchEvent::JobSet(change) => matches!(change, Change::ListingEnded),
            WatchEvent::Job(change) => self.jobs.note(change),
            WatchEvent::Pod(change) => self.pods.note(change),
            WatchEvent::Service(change) => matches!(change, Change::ListingEnded),
            WatchEvent::Claim(_)
            | WatchEvent::RoleBinding(_)
            | WatchEvent::Namespace(_)
            | WatchEvent::Node(_)
            | WatchEvent::PriorityClass(_) => false,
        }
    }

    /// A store that has seen all this for the first time.
    fn afresh(&self) -> Store {
        let mut store = Store::default();
        let jobset = self.jobset.iter().map(|view| {
            WatchEvent::JobSet(Change::Put { object: key().clone(), owner: Some(key().clone()), view: view.clone() })
        });
        let jobs = self.jobs.objects.iter().map(|(name, view)| {
            WatchEvent::Job(Change::Put { object: child(name), owner: Some(key().clone()), view: view.clone() })
        });
        let pods = self.pods.objects.iter().map(|(name, view)| {
            WatchEvent::Pod(Change::Put { object: child(name), owner: Some(key().clone()), view: view.clone() })
        });
        for seen in jobset.chain(jobs).chain(pods) {
            store.see(seen);
        }
        store
    }
}

/// The counts of a Job's Pods that follow from what its Pods are, and not from what was seen before.
fn counts(pods: &JobPods, synced: i32) -> String {
    let alone: Vec<&str> = pods.alone().map(|pod| pod.name.as_str()).collect();
    let suspects: Vec<(i32, usize)> = pods.suspects().collect();
    let running: Vec<usize> = (0..=synced + 1).map(|epoch| pods.running_in(epoch)).collect();
    let (reports, mute, succeeded, empty) = (pods.reports(), pods.mute(), pods.succeeded(), pods.is_empty());
    format!(
        "reports {reports:?}, running {running:?}, suspects {suspects:?}, alone {alone:?}, mute {mute}, succeeded \
         {succeeded}, empty {empty}"
    )
}

impl SimulatedCluster {
    /// The sums that are kept are those of what they are sums of.
    pub(super) fn check_counts(&self) -> Checked {
        let store = &self.controller.store;
        let Some(seen) = Observed::of(store, key()) else { return Ok(()) };
        for (name, job) in seen.jobs() {
            if let Some(wrong) = seen.pods_of(job).and_then(JobPods::miscounted) {
                return Err(SimulationViolation::new(SimulationProperty::Counts, format!("of Job {name}: {wrong}")));
            }
        }
        Ok(())
    }

    /// A store that sees for the first time what was shown holds the same.
    pub(super) fn check_store(&self) -> Checked {
        let (held, fresh) = (&self.controller.store, self.controller.shown.afresh());
        let (Some(held), Some(fresh)) = (Observed::of(held, key()), Observed::of(&fresh, key())) else {
            return Ok(());
        };
        if !held.jobs().eq(fresh.jobs()) {
            return Err(SimulationViolation::new(
                SimulationProperty::Counts,
                "the Jobs are not those that were shown".to_owned(),
            ));
        }
        let synced = held.status().synced_epoch;
        for (name, job) in held.jobs() {
            let counts = |seen: &Observed<'_>| seen.pods_of(job).map(|pods| counts(pods, synced));
            let (kept, anew) = (counts(&held), counts(&fresh));
            if kept != anew {
                let message = format!("of Job {name} the store holds {kept:?}, and what was shown is {anew:?}");
                return Err(SimulationViolation::new(SimulationProperty::Counts, message));
            }
        }
        Ok(())
    }
}
