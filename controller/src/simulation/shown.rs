//! What the controller was shown, kept plainly: the engine has to be worth as much as one that is filled with it anew.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::cluster::{Checked, SimulatedCluster};
use super::properties::{SimulationProperty, SimulationViolation};
use super::scenario::key;
use crate::engine::pods::JobPods;
use crate::engine::{Engine, Kind, WatchEvent};
use crate::observe::Observed;

/// The observed objects by kind and name.
#[derive(Debug, Default)]
pub(super) struct Shown {
    objects: BTreeMap<(Kind, String), WatchEvent>,
    listed: BTreeSet<(Kind, String)>,
}

impl Shown {
    /// Notes an event.
    pub(super) fn note(&mut self, event: &WatchEvent) {
        match event {
            WatchEvent::Put { object, view, .. } => {
                let place = (view.kind(), object.name.clone());
                self.listed.insert(place.clone());
                self.objects.insert(place, event.clone());
            }
            WatchEvent::Gone(kind, object, _) => {
                self.objects.remove(&(*kind, object.name.clone()));
            }
            WatchEvent::ListingBegins(kind) => self.listed.retain(|(listed, _)| listed != kind),
            WatchEvent::ListingEnded(kind) => {
                self.objects.retain(|place, _| place.0 != *kind || self.listed.contains(place));
            }
        }
    }

    /// Whether an event is about an object that was shown.
    pub(super) fn knows(&self, event: &WatchEvent) -> bool {
        let WatchEvent::Put { object, view, .. } = event else { return false };
        self.objects.contains_key(&(view.kind(), object.name.clone()))
    }

    /// An engine that observes all this for the first time.
    fn afresh(&self) -> Engine {
        let mut engine = Engine::default();
        for event in self.objects.values() {
            engine.see(event.clone(), Instant::now());
        }
        engine
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
        let Some(seen) = Observed::of(&self.controller.engine, key()) else { return Ok(()) };
        for (name, job) in seen.jobs() {
            if let Some(wrong) = seen.pods_of(job).and_then(JobPods::miscounted) {
                return Err(SimulationViolation::new(SimulationProperty::Counts, format!("of Job {name}: {wrong}")));
            }
        }
        Ok(())
    }

    /// An engine that observes for the first time what was shown holds the same.
    pub(super) fn check_engine(&self) -> Checked {
        let (held, fresh) = (&self.controller.engine, self.controller.shown.afresh());
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
                let message = format!("of Job {name} the engine holds {kept:?}, and what was shown is {anew:?}");
                return Err(SimulationViolation::new(SimulationProperty::Counts, message));
            }
        }
        Ok(())
    }
}
