//! The whole: one cluster with one JobSet, moved by chance, and then by everybody doing what there is to do.

use std::cell::RefCell;
use std::collections::BTreeMap;

use fastrand::Rng;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;

use super::api::ApiServer;
use super::controller::{SimulatedController, WorkUnderWay};
use super::cordons::Cordons;
use super::ledger::TrueTimes;
use super::machine::SimulatedMachine;
use super::moves::BadThings;
use super::nodes::SimulatedNodes;
use super::relays::StreamNetwork;
use super::restart_requests::Requester;
use super::scenario::Scenario;
use super::stalls::Stalls;
use super::steps::Steps;
use super::successes::DueExit;
use super::truth::Truth;
use super::watches::KINDS;
use crate::proof::{CheckResult, Property, RuleMutation, Violation};

/// One in so many lives has agents of the release before.
const OLDER_AGENTS: u64 = 4;
/// When a simulation begins, in seconds.
pub(super) const BEGINNING: i64 = 1_800_000_000;
/// Rounds in which everybody does what there is to do, after which a JobSet that has not come to rest hangs.
const ROUNDS: usize = 150;
/// The time in milliseconds that passes where somebody waits for a time.
const PAUSE: i64 = 20_000;
/// Most chapters of a life, and their most steps and faults.
const CHAPTERS: usize = 6;
const STEPS: usize = 260;
const FAULTS: usize = 8;

pub(super) struct SimulatedCluster {
    pub rng: Rng,
    /// What was added to the world later has chances of its own, so that lives without it stay what they are.
    pub extra: Rng,
    pub scenario: Scenario,
    pub api: ApiServer,
    /// What runs, by UID of its Pod.
    pub machines: BTreeMap<String, SimulatedMachine>,
    pub controller: SimulatedController,
    /// Requests of a former controller that have not arrived.
    pub late: Option<WorkUnderWay>,
    pub truth: Truth,
    pub network: StreamNetwork,
    pub nodes: SimulatedNodes,
    pub moves: BadThings,
    pub cordons: Cordons,
    pub requester: Requester,
    pub stalls: Stalls,
    pub steps: Steps,
    pub true_times: TrueTimes,
    pub broken: Option<RuleMutation>,
    /// In milliseconds.
    pub clock: i64,
    /// Whether the agents say when they started; older ones do not.
    pub says_start: bool,
    pub lost_nodes: u8,
    /// JobSets of other tenants.
    pub tenants: usize,
    /// Whether Pods that the group did not have find no node.
    pub is_full: bool,
    /// Workers that are about to exit.
    pub due_exits: Vec<DueExit>,
    /// Whether anything happened in the present round.
    pub worked: bool,
    trace: Option<RefCell<Vec<String>>>,
}

/// How often each of those who move the cluster has its turn.
struct Tempo([u32; 7]);

impl SimulatedCluster {
    fn new(seed: u64, broken: Option<RuleMutation>, traced: bool) -> Self {
        let mut rng = Rng::with_seed(seed);
        let mut scenario = Scenario::draw(&mut rng);
        let cordons = Cordons::draw(seed, &mut scenario);
        let moves = BadThings::draw(seed, &mut scenario);
        let controller = SimulatedController::new(broken, &scenario);
        Self {
            api: ApiServer::new(scenario.jobset.clone()),
            scenario,
            rng,
            extra: Rng::with_seed(seed.rotate_left(32)),
            machines: BTreeMap::new(),
            controller,
            late: None,
            truth: Truth::default(),
            network: StreamNetwork::new(seed),
            nodes: SimulatedNodes::new(seed),
            moves,
            cordons,
            requester: Requester::new(seed),
            stalls: Stalls::new(seed),
            steps: Steps::new(seed),
            true_times: TrueTimes::default(),
            broken,
            clock: 0,
            says_start: !seed.is_multiple_of(OLDER_AGENTS),
            lost_nodes: 0,
            tenants: 0,
            is_full: false,
            due_exits: Vec::new(),
            worked: false,
            trace: traced.then(RefCell::default),
        }
    }

    /// One life.
    fn live(&mut self) -> CheckResult {
        let spec = serde_json::to_string(&self.scenario.jobset.spec).unwrap_or_default();
        self.trace(|| spec);
        self.draw_stream();
        self.begin_requests();
        self.begin_stalls();
        if self.rng.u8(..4) != 0 {
            self.calm()?;
            self.trace(|| "it has started".to_owned());
        }
        for _ in 0..self.rng.usize(1..=CHAPTERS) {
            self.be_disturbed()?;
            if self.rng.bool() {
                self.trace(|| "a calm".to_owned());
                self.calm()?;
                self.fail_in_a_row()?;
            }
        }
        self.trace(|| "nothing is disturbed any more".to_owned());
        self.set_full(false);
        self.end_extremes();
        if self.network.is_on && self.network.rng.bool() {
            self.cut_stream(!self.network.is_cut)?;
        }
        if self.rng.bool() && self.api.jobset.spec.is_suspended() {
            self.api.edit(|jobset| jobset.spec.suspend = Some(false));
        }
        self.calm()?;
        self.check_end_of_ledger()?;
        self.check_engine()
    }

    /// Things happen in an order and as often as chance has it, and some of them go wrong.
    fn be_disturbed(&mut self) -> CheckResult {
        let tempo = Tempo::draw(&mut self.rng);
        let (steps, mut faults) = (self.rng.usize(20..STEPS), self.rng.usize(1..=FAULTS));
        for step in 0..steps {
            if faults > 0 && self.rng.usize(..steps - step) < faults {
                faults -= 1;
                self.disturb()?;
            }
            self.step(&tempo)?;
        }
        Ok(())
    }

    /// Something happens to somebody.
    fn step(&mut self, tempo: &Tempo) -> CheckResult {
        let pause = self.rng.i64(0..900);
        self.pass(pause);
        self.step_stream()?;
        self.step_incidents();
        self.step_sizes();
        self.step_nodes();
        self.step_moves();
        self.step_cordons();
        self.step_requests();
        self.step_stalls();
        match tempo.next(&mut self.rng) {
            0 => {
                let kind = KINDS[self.rng.usize(..KINDS.len())];
                let events = self.rng.usize(1..=4);
                (0..events).try_for_each(|_| self.deliver(kind))
            }
            1 => self.start_work(),
            2 if self.rng.bool() && self.finish_other() => Ok(()),
            2 if self.rng.u8(..8) == 0 => {
                self.answer_slow(true);
                Ok(())
            }
            2 if self.rng.u8(..16) == 0 => self.slow_down(),
            2 => self.continue_work(),
            3 => {
                if let Some(name) = pick(&mut self.rng, self.api.jobs.keys()) {
                    self.sync_job(&name);
                }
                Ok(())
            }
            4 => self.one_machine().map_or(Ok(()), |uid| {
                self.give_up_on(&uid);
                self.step_kubelet(&uid)
            }),
            5 => {
                if let Some(uid) = self.one_machine() {
                    self.write_pod_status(&uid);
                }
                if self.rng.u8(..24) == 0 { self.check_rest() } else { self.arrive_late() }
            }
            _ => self.one_machine().map_or(Ok(()), |uid| self.step_agent(&uid, false)),
        }
    }

    fn one_machine(&mut self) -> Option<String> {
        pick(&mut self.rng, self.machines.keys())
    }

    /// Nothing goes wrong, and everybody does what there is to do, until there is nothing.
    pub(super) fn calm(&mut self) -> CheckResult {
        let mut why = String::new();
        // An agent of a hostile relay has to do several things within the silence that it accepts.
        let (rounds, pause) = if self.network.hostility.is_on() { (4 * ROUNDS, PAUSE / 4) } else { (ROUNDS, PAUSE) };
        for round in 0..rounds {
            self.worked = false;
            self.round()?;
            self.check_told(round == 0)?;
            self.pass(1_000);
            if self.exceeds_cluster() && round > ROUNDS / 4 {
                // What the quota refuses is requested again and again.
                return Ok(());
            }
            if self.worked {
                continue;
            }
            match self.settled() {
                Ok(()) => {
                    self.check_facts()?;
                    self.check_nothing_runs()?;
                    let at_rest = self.api.status();
                    self.check_rest()?;
                    // A controller that was behind may have begun something.
                    return if self.api.status() == at_rest { self.check_ledger_at_rest() } else { Ok(()) };
                }
                // Somebody waits for a time: the controller for a lonely agent, an agent to report again.
                Err(reason) => why = reason,
            }
            self.pass(pause);
        }
        Err(Violation::new(Property::NoHang, format!("{why}; {}", super::controller::brief(&self.api.status()))))
    }

    fn round(&mut self) -> CheckResult {
        self.exit_due_workers();
        self.deliver_all_progress();
        self.arrive_late()?;
        self.deliver_all()?;
        self.settle_stream()?;
        self.start_work()?;
        while self.controller.work.is_some() {
            self.continue_work()?;
        }
        self.answer_all_slow();
        while self.finish_other() {}
        for name in self.api.jobs.keys().cloned().collect::<Vec<_>>() {
            self.sync_job(&name);
        }
        for uid in self.machines.keys().cloned().collect::<Vec<_>>() {
            self.give_up_on(&uid);
            self.step_kubelet(&uid)?;
            self.write_pod_status(&uid);
            self.step_agent(&uid, true)?;
        }
        Ok(())
    }

    pub(super) fn now(&self) -> Time {
        Time(Timestamp::from_second(BEGINNING + self.clock / 1_000).unwrap_or_default())
    }

    /// The time as an agent says it: RFC 3339 with microseconds.
    pub(super) fn precise_now(&self) -> String {
        let time = Timestamp::from_millisecond(BEGINNING * 1_000 + self.clock).unwrap_or_default();
        format!("{time:.6}")
    }

    /// The time on the clock of the simulation, in milliseconds.
    pub(super) fn millis(time: &Time) -> i64 {
        (time.0.as_second() - BEGINNING) * 1_000
    }

    pub(super) fn trace(&self, line: impl FnOnce() -> String) {
        if let Some(trace) = &self.trace {
            trace.borrow_mut().push(format!("{:>8} {}", self.clock, line()));
        }
    }
}

impl Tempo {
    fn draw(rng: &mut Rng) -> Self {
        let weights = [0, 1, 1, 2, 4, 8, 16];
        Self(std::array::from_fn(|_| weights[rng.usize(..weights.len())]))
    }

    fn next(&self, rng: &mut Rng) -> usize {
        let mut left = rng.u32(..=self.0.iter().sum::<u32>());
        self.0
            .iter()
            .position(|turns| {
                let is_it = left < *turns;
                left = left.saturating_sub(*turns);
                is_it
            })
            .unwrap_or(0)
    }
}

pub(super) fn pick<'a>(rng: &mut Rng, mut keys: impl ExactSizeIterator<Item = &'a String>) -> Option<String> {
    let count = keys.len();
    if count == 0 { None } else { keys.nth(rng.usize(..count)).cloned() }
}

/// Lives the life that the seed says. A violation comes with the events before it.
pub(super) fn run(seed: u64, broken: Option<RuleMutation>) -> Result<(), (Violation, Vec<String>)> {
    let Err(violation) = SimulatedCluster::new(seed, broken, false).live() else { return Ok(()) };
    Err((violation, trace(seed, broken)))
}

/// The events of a life.
pub(super) fn trace(seed: u64, broken: Option<RuleMutation>) -> Vec<String> {
    let mut cluster = SimulatedCluster::new(seed, broken, true);
    let ended = cluster.live();
    let mut lines = cluster.trace.take().map(RefCell::into_inner).unwrap_or_default();
    lines.extend(ended.err().map(|violation| violation.to_string()));
    lines
}
