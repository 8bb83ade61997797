//! Requests that have no answer for a while: they leave their work, and are answered after it has ended.

use std::sync::Arc;
use std::time::Duration;

use jobset_api::JobSet;
use jobset_rules::Action;

use super::cluster::SimulatedCluster;
use super::controller::WorkUnderWay;
use super::requests::name;
use super::scenario::key;
use crate::proof::CheckResult;
use crate::{Failure, Outcome, Part, Request, RequestError, RequestId};

#[derive(Debug)]
pub(super) struct SlowRequest {
    work: u64,
    action: Action,
    base: Arc<JobSet>,
}

impl SlowRequest {
    pub(super) fn part(&self) -> Part {
        Part::Action(Request::of(&self.action))
    }
}

impl SimulatedCluster {
    /// The next action of a work is slow, with those behind it that are under way. What is not under way is not sent.
    pub(super) fn slow_down(&mut self) -> CheckResult {
        let Some(mut work) = self.controller.work.take() else { return Ok(()) };
        if work.actions.front().is_some_and(|action| !action.is_on_jobset()) {
            let under_way = work.order.usize(1..=work.actions.len());
            let sent: Vec<Action> = work.actions.drain(..).take(under_way).collect();
            for action in sent {
                self.check_request(&action, &work)?;
                work.slow.push(SlowRequest { work: work.number, action, base: Arc::clone(&work.base) });
            }
            self.trace(|| format!("{under_way} requests are slow"));
        }
        self.controller.work = Some(work);
        Ok(())
    }

    /// A slow request is answered, or fails: then it may have been carried out all the same.
    pub(super) fn answer_slow(&mut self, may_fail: bool) {
        let Some(slow) = self.controller.slow.pop_front() else { return };
        let id = RequestId { work: slow.work, part: slow.part() };
        let SlowRequest { action, base, .. } = slow;
        self.worked = true;
        let (own, shared) = (Request::of(&action), Request::shared(&action));
        let (fails, is_carried_out) = (may_fail && self.rng.u8(..4) == 0, self.rng.bool());
        self.trace(|| format!("slow request: {}{}", name(&action), if fails { ", which fails" } else { "" }));
        let mut work = WorkUnderWay::new(id.work, base);
        if !fails || is_carried_out {
            self.note_shrink(&action);
            self.carry_out(action, &mut work);
        }
        let WorkUnderWay { failures, accepted, provided, written, .. } = work;
        let mut outcome = Outcome { failures, provided, accepted, ..Outcome::default() };
        if fails {
            let error = RequestError { failure: Failure::Transient, note: None };
            outcome = Outcome { failures: vec![(shared.unwrap_or(own), error)], ..Outcome::default() };
        } else {
            outcome.written = written;
        }
        self.controller.failing.retain(|request| !outcome.accepted.contains(request));
        let now = self.controller_now(Duration::ZERO);
        let effects = self.controller.engine.answer(key(), &id, outcome, now);
        self.controller.note_lifts(&effects.confirmed);
    }

    /// All slow requests are answered.
    pub(super) fn answer_all_slow(&mut self) {
        while !self.controller.slow.is_empty() {
            self.answer_slow(false);
        }
    }
}
