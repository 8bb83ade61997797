//! The plans of the simulated controller: those of the rules, with what a broken rule changes in them.

use std::cell::{Cell, RefCell};
use std::panic::resume_unwind;

use jobset_rules::{Plan, Settings, plan};
use jobset_store::Observed;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::blames::{self, TrueEnd};
use super::extremes;
use super::scenario::JOBSET;
use crate::proof::RuleMutation;
use crate::proof::mutation::edit_plan;

/// Makes the plans.
#[derive(Debug, Default)]
pub(super) struct Planner {
    pub broken: Option<RuleMutation>,
    /// Whether the numbers of the JobSet are as large as they may be.
    pub has_extremes: bool,
    /// Whether the next plan panics.
    pub panics: Cell<bool>,
    /// How a plan was larger than the children that exist allow.
    pub oversize: RefCell<Option<String>>,
    /// The workers that have failed.
    pub ends: RefCell<Vec<TrueEnd>>,
    /// On whom a plan has blamed what somebody else has begun.
    pub wrong_blame: RefCell<Option<String>>,
}

impl Planner {
    pub(super) fn plan(&self, observed: &Observed<'_>, settings: &Settings, now: &Time) -> Plan {
        let mut plan = plan(observed, settings, now);
        if observed.jobset.metadata.name.as_deref() != Some(JOBSET) {
            return plan;
        }
        if self.panics.take() {
            resume_unwind(Box::new("a panic of the simulation"));
        }
        edit_plan(self.broken, observed, &mut plan);
        if let Some(larger) = extremes::oversize(observed, &plan, self.has_extremes) {
            self.oversize.replace(Some(larger));
        }
        if let Some(wrong) = blames::wrong(observed, &plan, &self.ends.borrow()) {
            self.wrong_blame.replace(Some(wrong));
        }
        plan
    }
}
