//! The exhaustive driver: all states of a setting, the shortest way to one in which a property does not hold, and whether things can
//! go round for ever.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::fmt::Write;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Instant;

use rstest::rstest;

use super::setting::Setting;
use super::state::ModelState;
use super::system::System;
use crate::proof::{Property, Violation};

/// A property that does not hold, and what happens before.
pub(super) struct Counterexample {
    pub property: Property,
    pub trace: String,
}

/// The states that were reached, by number.
struct Explored {
    /// The state that each was reached from first, and the number of the step there.
    origins: Vec<Option<(usize, usize)>>,
    /// The steps between two states that do not recur, in the order of the first.
    steps: Vec<(usize, usize)>,
}

/// Walks through all states of a setting. The counterexample, if there is any, is one of the shortest.
pub(super) fn check(setting: Setting) -> Option<Counterexample> {
    let (started, system) = (Instant::now(), System::new(setting));
    let mut explored = Explored { origins: vec![None], steps: Vec::new() };
    let mut queue = VecDeque::from([(0, system.beginning())]);
    let mut known: HashMap<u64, usize> = queue.iter().map(|(number, state)| (key(state), *number)).collect();
    let mut violated = None;
    while let Some((number, state)) = queue.pop_front() {
        if let Some(violation) = system.violation(&state) {
            violated = Some((number, violation));
            break;
        }
        for (choice, step) in system.steps(&state).into_iter().enumerate() {
            let may_recur = step.may_recur;
            let next = step.after(&state);
            let reached = match known.entry(key(&next)) {
                Entry::Occupied(known) => *known.get(),
                Entry::Vacant(new) => {
                    let reached = *new.insert(explored.origins.len());
                    explored.origins.push(Some((number, choice)));
                    queue.push_back((reached, next));
                    reached
                }
            };
            if reached != number && !may_recur {
                explored.steps.push((number, reached));
            }
        }
    }
    let (states, steps, seconds) = (known.len(), explored.steps.len(), started.elapsed().as_secs_f64());
    println!("{states} states, {steps} steps, {seconds:.1} s: {setting:?}");
    let (number, violation) = violated.or_else(|| Some((explored.cycle()?, round())))?;
    let trace = format!("{}{violation}\n", explored.trace(&system, number));
    Some(Counterexample { property: violation.property, trace })
}

/// What can go wrong does so a limited number of times, but for what hostile relays do, which is left out here. So a cycle is one of things
/// that happen by themselves.
fn round() -> Violation {
    Violation::new(Property::NoHang, "from here, or from a state before, things can go round for ever")
}

impl Explored {
    /// The first state on a cycle, or after one, if there is a cycle: one that is left when those to which nothing leads are taken
    /// away, one after the other.
    fn cycle(&self) -> Option<usize> {
        let mut ways = vec![0; self.origins.len()];
        self.steps.iter().for_each(|(_, to)| ways[*to] += 1);
        let mut free: Vec<usize> = (0..ways.len()).filter(|state| ways[*state] == 0).collect();
        while let Some(state) = free.pop() {
            let first = self.steps.partition_point(|(from, _)| *from < state);
            for (_, to) in self.steps[first..].iter().take_while(|(from, _)| *from == state) {
                ways[*to] -= 1;
                if ways[*to] == 0 {
                    free.push(*to);
                }
            }
        }
        ways.iter().position(|ways| *ways > 0)
    }

    /// What happens until this state.
    fn trace(&self, system: &System, number: usize) -> String {
        let mut choices: Vec<usize> = Vec::new();
        let mut origin = self.origins[number];
        while let Some((from, choice)) = origin {
            choices.push(choice);
            origin = self.origins[from];
        }
        let mut state = system.beginning();
        let mut trace = brief(&state);
        for choice in choices.into_iter().rev() {
            let step = system.steps(&state).swap_remove(choice);
            let _ = writeln!(trace, "{}", step.what);
            state = step.after(&state);
            trace += &brief(&state);
        }
        trace
    }
}

fn key(state: &ModelState) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

fn brief(state: &ModelState) -> String {
    let controller = &state.controller;
    let mut text = format!("    {:?}, the controller has observed {:?}", state.jobset.status, controller.observed.0);
    if state.jobset.suspended || state.jobset.job_suspended {
        let _ = write!(text, ", suspended: {}, its Job: {}", state.jobset.suspended, state.jobset.job_suspended);
    }
    let _ = writeln!(text, ", is writing {:?}, its predecessor {:?}", controller.pending, state.late);
    for slot in &state.slots {
        let Some((pod, machine)) = slot.pod.as_ref().zip(slot.machine.as_ref()) else {
            let _ = writeln!(text, "      {:?}", slot.pod);
            continue;
        };
        let agent = machine.agent.as_ref();
        let agent = agent.map(|agent| {
            let stream = if agent.link.up { format!(", {:?}", agent.link) } else { String::new() };
            format!("in {:?}, {} behind, writes {:?}{stream}", agent.entered, agent.age, agent.writing)
        });
        let _ = writeln!(
            text,
            "      agent {agent:?}, worker {:?}{}; {pod:?}, unobserved {}, {:?}, late {:?}",
            machine.worker,
            if machine.must_reset { ", all restart" } else { "" },
            slot.unseen.len(),
            slot.reports,
            slot.late_reports,
        );
    }
    text
}

#[rstest]
#[case::chain(&[(0, 1), (0, 2), (1, 2)], None)]
#[case::cycle_after_the_beginning(&[(0, 1), (1, 2), (2, 1), (2, 3)], Some(1))]
#[case::cycle_through_the_beginning(&[(0, 1), (1, 0)], Some(0))]
fn explored_states_with_a_way_back_have_a_cycle(#[case] steps: &[(usize, usize)], #[case] first: Option<usize>) {
    let explored = Explored { origins: vec![None; 4], steps: steps.to_vec() };
    assert_eq!(explored.cycle(), first);
}
