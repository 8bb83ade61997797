//! The sums that [`super::JobPods`] keeps, and what one slot adds to them.

use std::collections::{BTreeMap, BTreeSet};

use super::super::slot::{Share, Trust};

/// Sums over the slots that count. Sets hold indexes of what is rare while workers run.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) reports: BTreeMap<i32, usize>,
    /// The newcomers among them, by index.
    pub(super) newcomers: BTreeMap<i32, BTreeSet<i32>>,
    /// Those of them whose worker runs.
    pub(super) running: BTreeMap<i32, usize>,
    pub(super) suspects: BTreeMap<i32, BTreeSet<i32>>,
    /// How many of the suspects are members.
    pub(super) suspect_members: BTreeMap<i32, usize>,
    /// Those whose Pod reports nothing that is a number.
    pub(super) unreported: BTreeSet<i32>,
    pub(super) alone: BTreeSet<i32>,
    pub(super) malformed: BTreeSet<i32>,
    pub(super) mute: BTreeSet<i32>,
    pub(super) succeeded: usize,
    pub(super) broken: BTreeMap<i32, BTreeSet<i32>>,
    /// Those whose Pod has ended, by the epoch that it reports.
    pub(super) ended: BTreeMap<i32, BTreeSet<i32>>,
    pub(super) blocked: BTreeSet<i32>,
    /// How many got their address in a second, the members before the newcomers.
    pub(super) addresses: BTreeMap<(bool, i64), usize>,
    pub(super) domains: BTreeMap<Box<str>, BTreeSet<i32>>,
    /// Those whose Pod has succeeded, wherever they are.
    pub(super) done: BTreeSet<i32>,
    /// Those whose worker was not observed to start, by the epoch that their Pod reports.
    pub(super) waits: BTreeMap<i32, BTreeSet<i32>>,
    pub(super) stuck: BTreeSet<i32>,
    /// Those with failed Pods that may delay a successor.
    pub(super) held: BTreeSet<i32>,
    /// Losses count wherever they are: their index is completed.
    pub(super) lost: BTreeSet<i32>,
    /// The member that first reported the newest epoch.
    pub(super) first_to_report: Option<(i32, i32)>,
}

impl Counts {
    /// Adds what the slot of this index adds.
    pub(super) fn add(&mut self, index: i32, share: &Share) {
        if let Some(epoch) = share.report {
            if share.trust == Trust::Sure {
                *self.reports.entry(epoch).or_default() += 1;
                if share.runs {
                    *self.running.entry(epoch).or_default() += 1;
                }
                if share.newcomer {
                    self.newcomers.entry(epoch).or_default().insert(index);
                }
            } else {
                self.suspects.entry(epoch).or_default().insert(index);
                if !share.newcomer {
                    *self.suspect_members.entry(epoch).or_default() += 1;
                }
            }
            if !share.newcomer && self.first_to_report.is_none_or(|(newest, _)| newest < epoch) {
                self.first_to_report = Some((epoch, index));
            }
        }
        if let Some(epoch) = share.broken {
            self.broken.entry(epoch).or_default().insert(index);
        }
        if let Some(epoch) = share.ended {
            self.ended.entry(epoch).or_default().insert(index);
        }
        if let Some(epoch) = share.waits {
            self.waits.entry(epoch).or_default().insert(index);
        }
        if let Some(second) = share.address {
            *self.addresses.entry((share.newcomer, second)).or_default() += 1;
        }
        if let Some(domain) = &share.domain {
            self.domains.entry(domain.clone()).or_default().insert(index);
        }
        self.succeeded += usize::from(share.succeeded);
        for (set, holds) in self.sets(share) {
            if holds {
                set.insert(index);
            }
        }
    }

    /// Takes away what it has added.
    pub(super) fn remove(&mut self, index: i32, share: &Share) {
        match share.report {
            Some(epoch) if share.trust != Trust::Sure => {
                take(&mut self.suspects, &epoch, index);
                if !share.newcomer {
                    count_down(&mut self.suspect_members, &epoch);
                }
            }
            Some(epoch) => {
                count_down(&mut self.reports, &epoch);
                if share.runs {
                    count_down(&mut self.running, &epoch);
                }
                if share.newcomer {
                    take(&mut self.newcomers, &epoch, index);
                }
            }
            None => {}
        }
        if let Some(epoch) = &share.broken {
            take(&mut self.broken, epoch, index);
        }
        if let Some(epoch) = &share.ended {
            take(&mut self.ended, epoch, index);
        }
        if let Some(epoch) = &share.waits {
            take(&mut self.waits, epoch, index);
        }
        if let Some(second) = share.address {
            count_down(&mut self.addresses, &(share.newcomer, second));
        }
        if let Some(domain) = &share.domain {
            take(&mut self.domains, domain, index);
        }
        self.succeeded -= usize::from(share.succeeded);
        for (set, holds) in self.sets(share) {
            if holds {
                set.remove(&index);
            }
        }
    }

    fn sets(&mut self, share: &Share) -> [(&mut BTreeSet<i32>, bool); 9] {
        [
            (&mut self.unreported, share.unreported),
            (&mut self.alone, share.trust == Trust::Alone),
            (&mut self.malformed, share.malformed),
            (&mut self.mute, share.mute),
            (&mut self.lost, share.lost),
            (&mut self.done, share.done),
            (&mut self.stuck, share.stuck),
            (&mut self.held, share.held.pods > 0),
            (&mut self.blocked, share.blocked != (0, 0, 0)),
        ]
    }
}

fn count_down<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(key);
        }
    }
}

fn take<K: Ord>(sets: &mut BTreeMap<K, BTreeSet<i32>>, key: &K, index: i32) {
    if let Some(set) = sets.get_mut(key) {
        set.remove(&index);
        if set.is_empty() {
            sets.remove(key);
        }
    }
}
