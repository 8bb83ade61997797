//! What goes wrong, and what people do: the alphabet that the module's documentation lists.

use kube::ResourceExt;

use super::api::JobObject;
use super::cluster::{SimulatedCluster, pick};
use super::jobs::finished;
use super::machine::{SimulatedMachine, SimulatedWorker};
use super::scenario::FATAL;
use super::watches::KINDS;
use crate::proof::{CheckResult, RuleMutation};

/// Exit codes of workers that fail, as the Pods' own rules restart them for.
pub(super) const CODES: [i32; 4] = [1, 3, 137, 139];

/// The answer to a lift gets lost.
const LOST_ANSWER: u8 = 35;

impl SimulatedCluster {
    /// One event of the alphabet; what does not apply now, happens to nobody.
    pub(super) fn disturb(&mut self) -> CheckResult {
        let event = self.rng.u8(..39);
        // A rule about what is rare would take thousands of lives to be caught.
        let is_rare = self.broken == Some(RuleMutation::WriteRepeatedAfterALostAnswer);
        match if is_rare && event.is_multiple_of(2) { LOST_ANSWER } else { event } {
            0..=5 => self.workers_fail(1),
            6..=7 => {
                let several = self.rng.usize(2..=5);
                self.workers_fail(several);
            }
            8 => self.worker_exits(FATAL),
            9 => self.worker_exits(0),
            10..=12 => self.agent_restarts_alone(),
            13 => self.fails_at_the_barrier(),
            14..=15 => self.evict(),
            16..=17 => self.vanish(),
            18 => self.lose_node(),
            19..=20 => self.suspend_or_resume(),
            21..=22 => self.resize(),
            23 => self.reach_deadline(),
            24..=25 => self.crash(),
            26 => self.delete_job(),
            27..=28 => return self.race(),
            29 => {
                self.trace(|| "the next plan panics".to_owned());
                self.controller.planner.panics.set(true);
            }
            30 => self.set_full(!self.is_full),
            31..=32 => {
                self.set_full(true);
                self.resize();
            }
            34 => self.create_other(),
            33 | LOST_ANSWER => {
                self.trace(|| "the answer to the next lift gets lost".to_owned());
                self.controller.loses_answer = true;
            }
            _ => {
                let kind = KINDS[self.rng.usize(..KINDS.len())];
                self.trace(|| format!("the watch of {kind:?} begins again"));
                self.api.list(kind);
            }
        }
        Ok(())
    }

    fn pick_machine(&mut self, which: impl Fn(&SimulatedMachine) -> bool) -> Option<String> {
        let uids = self.machines_where(which);
        pick(&mut self.rng, uids.iter())
    }

    /// The UIDs of the Pods that a fault can strike.
    pub(super) fn machines_where(&self, which: impl Fn(&SimulatedMachine) -> bool) -> Vec<String> {
        let standing = self.standing_pods();
        let is_standing = |machine: &SimulatedMachine| standing.binary_search(&machine.pod).is_ok();
        let is_there = |it: &SimulatedMachine| !it.lost && !it.waits_for_node && it.ended.is_none() && is_standing(it);
        let machines = self.machines.iter().filter(|(_, it)| is_there(it));
        machines.filter(|(_, machine)| which(machine)).map(|(uid, _)| uid.clone()).collect()
    }

    fn workers_fail(&mut self, how_many: usize) {
        for _ in 0..how_many {
            let code = CODES[self.rng.usize(..CODES.len())];
            self.worker_exits(code);
        }
    }

    fn worker_exits(&mut self, code: i32) {
        if let Some(uid) = self.pick_machine(SimulatedMachine::runs) {
            self.exit_worker(&uid, code);
        }
    }

    pub(super) fn exit_worker(&mut self, uid: &str, code: i32) {
        if code == 0 {
            self.trace(|| format!("{uid}: its worker has done its work"));
        } else {
            self.strike(uid, false, &format!("its worker exits with {code}"));
            self.note_fault(uid);
            self.note_end(uid);
        }
        let now = self.now();
        if let Some(machine) = self.machines.get_mut(uid) {
            machine.end_worker(code, &now);
        }
    }

    /// The kubelet needs longer than a second to notice that a container has ended, and to start it again.
    fn agent_restarts_alone(&mut self) {
        let Some(uid) = self.pick_machine(|machine| {
            machine.agent.is_some() && !matches!(machine.worker, SimulatedWorker::Ended { .. })
        }) else {
            return;
        };
        self.strike(&uid, false, "its agent restarts alone");
        self.note_fault(&uid);
        self.note_end(&uid);
        self.pass(2_000);
        let now = self.now();
        if let Some(machine) = self.machines.get_mut(&uid) {
            if machine.supervised {
                // Its worker ends with it, and its container starts again.
                machine.kill_supervisor(137, now);
                return;
            }
            machine.agent_restarts += 1;
            self.start_agent(&uid);
        }
    }

    /// The agent, or an init container, fails before the worker could start.
    fn fails_at_the_barrier(&mut self) {
        let waits =
            |machine: &SimulatedMachine| machine.agent.is_some() && matches!(machine.worker, SimulatedWorker::NotYet);
        let Some(uid) = self.pick_machine(waits) else { return };
        self.strike(&uid, false, "it fails at the barrier");
        self.note_fault(&uid);
        self.note_end(&uid);
        let now = self.now();
        if let Some(machine) = self.machines.get_mut(&uid) {
            if machine.supervised {
                machine.kill_supervisor(1, now);
                return;
            }
            machine.agent = None;
            machine.must_reset = true;
            machine.status_is_outdated = true;
        }
    }

    fn evict(&mut self) {
        let Some(uid) = self.pick_machine(|_| true) else { return };
        let reasons = ["EvictionByEvictionAPI", "PreemptionByScheduler", "DeletionByTaintManager"];
        let reason = reasons[self.rng.usize(..reasons.len())];
        self.strike(&uid, true, reason);
        let (pod, now) = (self.machines[&uid].pod.clone(), self.now());
        self.disrupt(&pod, reason);
        self.api.delete_pod(&pod, &now);
    }

    /// By force: the object is gone at once, and its containers go when the kubelet sees that.
    fn vanish(&mut self) {
        let Some(uid) = self.pick_machine(|_| true) else { return };
        self.strike(&uid, false, "it is deleted by force");
        let machine = &self.machines[&uid];
        self.truth.lost(machine.epoch);
        let pod = machine.pod.clone();
        self.api.remove_pod(&pod);
    }

    fn lose_node(&mut self) {
        let Some(uid) = self.pick_machine(|_| true) else { return };
        let node = self.machines[&uid].node.clone();
        self.lost_nodes += 1;
        self.taint(&node);
        self.set_ready(&node, false);
        let there: Vec<String> = self
            .machines
            .iter()
            .filter(|(_, it)| it.node == node && !it.lost && !it.waits_for_node)
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in there {
            self.strike(&uid, true, "its node is lost");
            if let Some(machine) = self.machines.get_mut(&uid) {
                self.truth.work_was_lost |= machine.has_done_its_work();
                machine.lost = true;
                machine.agent = None;
                machine.worker = SimulatedWorker::NotYet;
            }
        }
    }

    /// While the cluster is full, Pods that the group did not have find no node.
    pub(super) fn set_full(&mut self, is_full: bool) {
        if self.is_full != is_full {
            self.trace(|| format!("the cluster is {}full", if is_full { "" } else { "no longer " }));
            self.is_full = is_full;
        }
        if !is_full {
            self.machines.values_mut().for_each(|machine| machine.waits_for_node = false);
        }
    }

    fn suspend_or_resume(&mut self) {
        let suspend = !self.api.jobset.spec.is_suspended();
        self.trace(|| format!("the user sets suspend to {suspend}"));
        self.api.edit(|jobset| jobset.spec.suspend = Some(suspend));
    }

    fn resize(&mut self) {
        if !self.api.status().terminal_state.is_empty() {
            return;
        }
        let group = self.rng.usize(..self.api.jobset.spec.replicated_jobs.len());
        let (of_jobs, size) = (self.rng.bool(), self.rng.i32(1..=3));
        self.set_size(group, of_jobs, size);
    }

    /// The user sets the number of Jobs of a replicatedJob, or that of the Pods of each.
    pub(super) fn set_size(&mut self, group: usize, of_jobs: bool, size: i32) {
        let now = &self.api.jobset.spec.replicated_jobs[group];
        if size == if of_jobs { now.replicas() } else { now.template.spec.pods() } {
            return;
        }
        self.trace(|| {
            format!("the user sets {} of group {group} to {size}", if of_jobs { "replicas" } else { "Pods" })
        });
        self.api.edit(|jobset| {
            let group = &mut jobset.spec.replicated_jobs[group];
            if of_jobs {
                group.replicas = Some(size);
            } else {
                (group.template.spec.parallelism, group.template.spec.completions) = (Some(size), Some(size));
            }
        });
    }

    fn reach_deadline(&mut self) {
        let deadline = |it: &JobObject| it.job.spec.as_ref()?.active_deadline_seconds;
        let Some(name) = self.pick_job(|job| !job.ends() && deadline(job).is_some()) else { return };
        let job = &self.api.jobs[&name];
        let Some(deadline) = deadline(job) else { return };
        let active = self.now().0.duration_since(job.started).as_secs();
        self.trace(|| format!("time passes until the deadline of Job {name}"));
        self.pass((deadline - active).max(0) * 1_000);
    }

    fn delete_job(&mut self) {
        let Some(name) = self.pick_job(|_| true) else { return };
        let uid = self.api.jobs[&name].job.uid().unwrap_or_default();
        self.trace(|| format!("somebody deletes Job {name}"));
        self.truth.job_was_deleted_by_hand = true;
        // Whether its Pods are observed to go before the Job is, or after it, is not said.
        let of_job: Vec<String> =
            self.machines.iter().filter(|(_, it)| it.job_uid == uid).map(|(uid, _)| uid.clone()).collect();
        for pod in of_job {
            self.strike(&pod, false, "its Job is deleted");
        }
        let now = self.now();
        self.keep_leaving(&name);
        self.api.delete_job(&name, &uid, &now);
    }

    /// Picks a Job that runs. The end of a Job stays true for a controller that has not observed its deletion.
    fn pick_job(&mut self, which: impl Fn(&JobObject) -> bool) -> Option<String> {
        let runs = |it: &JobObject| finished(&it.job).is_none() && it.job.metadata.deletion_timestamp.is_none();
        let jobs = self.api.jobs.iter().filter(|(_, it)| runs(it) && which(it));
        let names: Vec<&String> = jobs.map(|(name, _)| name).collect();
        pick(&mut self.rng, names.into_iter())
    }

    /// Records that a fault strikes this Pod.
    fn strike(&mut self, uid: &str, disruption: bool, what: &str) {
        let Some(machine) = self.machines.get(uid) else { return };
        self.trace(|| format!("{}: {what}", machine.pod));
        let slot = machine.slot();
        self.truth.struck(slot, machine.epoch, disruption);
    }
}
