//! Restarts on request: in a quarter of the lives, somebody asks for restarts at any time, whoever leads. A request may be overwritten
//! before anybody has read it, come back from an earlier manifest, or name a Pod that is gone. Now and then, a release that does not know
//! the list of requests writes the status.

use std::collections::BTreeSet;

use fastrand::Rng;
use jobset_api::restart_request::{KEPT, outcome};
use jobset_api::{HandledRestartRequest, JobSetStatus, RestartRequest, labels};
use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::cluster::{SimulatedCluster, pick};
use crate::proof::{CheckResult, Property, ensure};

/// One in so many lives has requests.
const LIVES: u8 = 4;
/// Steps in which one request is expected.
const STEPS: u32 = 60;
/// Shortest time between two uncounted restarts, as the controller limits them.
const UNCOUNTED_PERIOD: SignedDuration = SignedDuration::from_mins(10);

/// Who asks for restarts, and what has become of that.
#[derive(Debug)]
pub(super) struct Requester {
    rng: Rng,
    is_on: bool,
    asked: u32,
    carried_out: BTreeSet<String>,
    /// The requests that were carried out since the list began, the newest last: none of them is carried out again, however many others
    /// were noted since.
    kept: Vec<String>,
    last_uncounted: Option<Timestamp>,
}

impl Requester {
    pub(super) fn new(seed: u64) -> Self {
        let mut rng = Rng::with_seed(!seed.rotate_left(17));
        let is_on = rng.u8(..LIVES) == 0;
        Self { rng, is_on, asked: 0, carried_out: BTreeSet::new(), kept: Vec::new(), last_uncounted: None }
    }
}

impl SimulatedCluster {
    /// The JobSet may be created with a request.
    pub(super) fn begin_requests(&mut self) {
        if self.requester.is_on && self.requester.rng.u8(..4) == 0 {
            self.ask(&RestartRequest { id: "found".to_owned(), ..RestartRequest::default() });
        }
    }

    pub(super) fn step_requests(&mut self) {
        if !self.requester.is_on || self.requester.rng.u32(..STEPS) != 0 {
            return;
        }
        let rng = &mut self.requester.rng;
        match rng.u8(..12) {
            0 => {
                self.trace(|| "a release that knows no requests writes the status".to_owned());
                // It forgets when the last uncounted restart was.
                self.requester.last_uncounted = None;
                self.requester.kept.clear();
                self.api.edit(|jobset| {
                    if let Some(status) = &mut jobset.status {
                        status.restart_requests = None;
                    }
                });
            }
            1..=2 => {
                let noted = self.api.status().restart_requests.unwrap_or_default();
                let noted = noted.into_iter().filter(HandledRestartRequest::is_noted).map(|it| it.id);
                let ids: Vec<String> = noted.chain(self.requester.kept.iter().rev().take(KEPT / 2).cloned()).collect();
                if let Some(id) = pick(rng, ids.iter()) {
                    self.ask(&RestartRequest { id, ..RestartRequest::default() });
                }
            }
            what => {
                let pod = match what {
                    3 => Some("train-a-0-0-gone".to_owned()),
                    4..=6 => pick(rng, self.api.pods.keys()),
                    _ => None,
                };
                let uncounted = rng.bool();
                self.requester.asked += 1;
                let id = format!("request-{}", self.requester.asked);
                self.ask(&RestartRequest { id, reason: Some("hangs".to_owned()), pod, uncounted });
            }
        }
    }

    fn ask(&mut self, request: &RestartRequest) {
        let text = request.to_text();
        self.trace(|| format!("somebody asks for a restart: {text}"));
        self.api.edit(|jobset| {
            let annotations = jobset.metadata.annotations.get_or_insert_default();
            annotations.insert(labels::RESTART_REQUEST.to_owned(), text);
        });
    }

    /// What has just become of the request that is stored, if this write says so.
    fn just_handled<'a>(before: &JobSetStatus, after: &'a JobSetStatus) -> Option<&'a HandledRestartRequest> {
        let known = before.restart_requests.iter().flatten();
        let newest = after.restart_requests.as_ref()?.last()?;
        (!known.into_iter().any(|it| it == newest)).then_some(newest)
    }

    /// The restart that has just been carried out on request, if any.
    pub(super) fn requested_restart<'a>(
        before: &JobSetStatus,
        after: &'a JobSetStatus,
    ) -> Option<&'a HandledRestartRequest> {
        Self::just_handled(before, after).filter(|it| it.restart.is_some())
    }

    /// Whether the JobSet has just failed because a restart on request would be one too many.
    pub(super) fn fails_on_request(before: &JobSetStatus, after: &JobSetStatus) -> bool {
        Self::just_handled(before, after).is_some_and(|it| it.outcome == outcome::BUDGET_SPENT && !it.uncounted)
    }

    /// A request is carried out once or noted, by the write that begins its restart, and counts as it asks for.
    pub(super) fn check_requests(&mut self, before: &JobSetStatus, after: &JobSetStatus) -> CheckResult {
        let Some(handled) = Self::just_handled(before, after) else { return Ok(()) };
        let stored = self.api.jobset.restart_request().and_then(Result::ok);
        let restarts = after.group_restarts - before.group_restarts;
        let counted = after.restarts_count_towards_max - before.restarts_count_towards_max;
        let fails = || format!("{handled:?} of {stored:?}: {restarts} restarts more, {counted} counted");
        let is_its = stored.as_ref().is_some_and(|it| it.id == handled.id && it.uncounted == handled.uncounted);
        ensure(is_its, Property::RequestsOnce, fails)?;
        ensure(before.restart_requests.is_some() || handled.outcome == outcome::FOUND, Property::RequestsOnce, fails)?;
        if handled.restart.is_none() {
            return Ok(());
        }
        let is_exact = restarts == 1 && counted == i32::from(!handled.uncounted);
        let is_first = self.requester.carried_out.insert(handled.id.clone());
        self.requester.kept.push(handled.id.clone());
        ensure(is_exact && is_first && !before.is_finished(), Property::RequestsOnce, fails)?;
        if handled.uncounted {
            let last = self.requester.last_uncounted.replace(handled.time.0);
            let is_rare = last.is_none_or(|last| handled.time.0.duration_since(last) >= UNCOUNTED_PERIOD);
            ensure(is_rare, Property::RequestsOnce, || {
                format!("uncounted restarts on request at {last:?} and {:?}", handled.time)
            })?;
        }
        Ok(())
    }

    /// Whether the controller still has to deal with the request that is stored.
    pub(super) fn owes_request(&self) -> bool {
        let jobset = &self.api.jobset;
        let knows = jobset.status.as_ref().is_some_and(|status| status.restart_requests.is_some());
        knows && jobset.pending_restart_request().is_some()
    }
}
