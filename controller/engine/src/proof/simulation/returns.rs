//! Pods that do not come back: their sandbox is gone for good, or a sidecar of theirs ends whenever it starts. Only those are
//! replaced.

use jobset_objects::{ContainerRunning, ContainerState, PartialContainerStatus};
use jobset_rules::{Action, PodDeletion};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::cluster::{SimulatedCluster, pick};
use super::machine::{SimulatedMachine, container_status, terminated, waiting};
use crate::proof::{CheckResult, Property, ensure};

/// First back-off of a container that ends by itself, in milliseconds. It doubles.
const BACKOFF: i64 = 10_000;
const LONGEST_BACKOFF: i64 = 40_000;

/// A sidecar that runs until its Pod restarts, and ends whenever it starts from then on: it finds a mount, a lock or a port taken.
#[derive(Debug, Default)]
pub(super) struct BrokenSidecar {
    /// Whether it starts before the agent.
    pub comes_first: bool,
    /// Whether its Pod has restarted since.
    pub has_restarted: bool,
    /// When it ended last.
    ended: Option<Time>,
    restarts: i32,
    /// When the kubelet starts it again, in milliseconds.
    retry_at: i64,
}

impl BrokenSidecar {
    pub(super) fn status(&self) -> PartialContainerStatus {
        let (state, last_state) = match &self.ended {
            Some(at) => (waiting("CrashLoopBackOff"), terminated(1, at, at)),
            None if self.has_restarted => (waiting("PodInitializing"), ContainerState::default()),
            None => {
                let running = Some(ContainerRunning::default());
                (ContainerState { running, ..ContainerState::default() }, ContainerState::default())
            }
        };
        let container = u32::try_from(self.restarts).map_or(1, |restarts| restarts + 1);
        let status = container_status("sidecar", container, self.restarts, state);
        PartialContainerStatus { last_state, ..status }
    }
}

impl SimulatedCluster {
    /// A worker fails, and a sidecar does not come back with it.
    pub(super) fn break_sidecar(&mut self) {
        let breaks = |it: &SimulatedMachine| it.has_agent && !it.supervised && it.runs() && it.broken_sidecar.is_none();
        let all = self.machines_where(breaks);
        let Some(uid) = pick(&mut self.nodes.rng, all.iter()) else { return };
        let comes_first = self.nodes.rng.bool();
        self.exit_worker(&uid, 1);
        if let Some(machine) = self.machines.get_mut(&uid) {
            machine.broken_sidecar = Some(BrokenSidecar { comes_first, ..BrokenSidecar::default() });
        }
        let order = if comes_first { "before" } else { "after" };
        self.trace(|| format!("{uid}: a sidecar {order} its agent does not come back"));
    }

    /// Whether a broken sidecar keeps the containers after it from their start. The kubelet starts it again from time to time.
    pub(super) fn is_blocked_by_sidecar(&mut self, uid: &str, before_agent: bool) -> bool {
        let (clock, now) = (self.clock, self.now());
        let Some(machine) = self.machines.get_mut(uid) else { return false };
        let blocks = |it: &&mut BrokenSidecar| it.has_restarted && it.comes_first == before_agent;
        let Some(sidecar) = machine.broken_sidecar.as_mut().filter(blocks) else { return false };
        if sidecar.retry_at > clock {
            return true;
        }
        let backoff = BACKOFF << sidecar.restarts.clamp(0, 8);
        sidecar.retry_at = clock + backoff.min(LONGEST_BACKOFF);
        sidecar.restarts += 1;
        sidecar.ended = Some(now.clone());
        machine.make_sandbox(&now);
        machine.status_is_outdated = true;
        let (slot, pod) = (machine.slot(), machine.pod.clone());
        self.truth.struck(slot, None, false);
        self.trace(|| format!("{pod}: its sidecar ends again"));
        self.worked = true;
        true
    }

    /// No Pod is replaced that may come back.
    pub(super) fn check_replacement(&self, action: &Action) -> CheckResult {
        let Action::DeletePod { name, uid, reason: PodDeletion::CannotReturn } = action else { return Ok(()) };
        let machine = self.machines.get(uid).filter(|machine| !machine.cannot_return());
        ensure(machine.is_none(), Property::HealthyPodsStay, || format!("{name} is replaced, and may come back"))
    }
}

impl SimulatedMachine {
    /// Whether its worker will never run again.
    fn cannot_return(&self) -> bool {
        self.is_given_up || self.broken_sidecar.as_ref().is_some_and(|sidecar| sidecar.has_restarted)
    }
}
