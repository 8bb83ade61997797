//! Requests that have no answer for a while: they leave their work, and are answered after it has ended.

use std::sync::Arc;
use std::time::Duration;

use jobset_api::JobSet;

use super::cluster::SimulatedCluster;
use super::controller::WorkUnderWay;
use super::requests::name;
use super::scenario::key;
use crate::engine::{Failure, Outcome, Part, Request, RequestError, RequestId};
use crate::plan::Action;
use crate::proof::{CheckResult, Violation};

/// One of this many actions is slow.
const RARELY: u8 = 24;

/// A slow request.
#[derive(Debug)]
pub(super) struct SlowRequest {
    id: RequestId,
    action: Action,
    base: Arc<JobSet>,
}

impl SimulatedCluster {
    /// The next action of a work may be slow, with those behind it that are under way. What is not under way is not sent.
    pub(super) fn slow_down(&mut self, work: &mut WorkUnderWay) -> Result<bool, Violation> {
        if work.actions.front().is_none_or(Action::is_on_jobset) || work.order.u8(..RARELY) > 0 {
            return Ok(false);
        }
        let under_way = work.order.usize(1..=work.actions.len());
        let sent: Vec<Action> = work.actions.drain(..).take(under_way).collect();
        for action in sent {
            self.check_request(&action, work)?;
            let part = Part::Action(Request::of(&action));
            work.unanswered.push(part.clone());
            let (id, base) = (RequestId { work: work.number, part }, Arc::clone(&work.base));
            self.controller.slow.push_back(SlowRequest { id, action, base });
        }
        self.trace(|| format!("{under_way} requests are slow"));
        Ok(true)
    }

    /// A slow request is answered, or fails: then it may have been carried out all the same.
    pub(super) fn answer_slow(&mut self) -> CheckResult {
        let Some(SlowRequest { id, action, base }) = self.controller.slow.pop_front() else { return Ok(()) };
        self.worked = true;
        let (own, shared) = (Request::of(&action), Request::shared(&action));
        let (fails, is_carried_out) = (self.rng.u8(..4) == 0, self.rng.bool());
        self.trace(|| format!("slow request: {}{}", name(&action), if fails { ", which fails" } else { "" }));
        let mut work = WorkUnderWay::new(id.work, base);
        if !fails || is_carried_out {
            self.note_shrink(&action);
            self.carry_out(action, &mut work);
        }
        let mut outcome = Outcome { failures: work.failures, accepted: work.accepted, ..Outcome::default() };
        if fails {
            let error = RequestError { failure: Failure::Transient, note: None };
            (outcome.failures, outcome.accepted) = (vec![(shared.unwrap_or(own), error)], [].into());
        } else {
            outcome.written = work.written;
        }
        self.controller.note_failing(&outcome);
        let now = self.controller_now(Duration::ZERO);
        let effects = self.controller.engine.answer(key(), &id, outcome, now);
        self.controller.note_lifts(&effects.confirmed);
        Ok(())
    }

    /// All slow requests are answered.
    pub(super) fn answer_all_slow(&mut self) -> CheckResult {
        while !self.controller.slow.is_empty() {
            self.answer_slow()?;
        }
        Ok(())
    }
}
