//! One check: all states of a setting, and what to tell of it.

use std::fmt::Write;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model, Path};

use super::properties::{ModelProperty, NAMES};
use super::setting::Setting;
use super::state::ModelState;
use super::system::{ModelAction, System};

/// A property that does not hold, and what happens before.
pub(super) struct Counterexample {
    pub property: ModelProperty,
    pub trace: String,
}

/// Walks through all states of a setting. The counterexample, if there is any, is one of the shortest.
pub(super) fn check(setting: Setting) -> Option<Counterexample> {
    let started = Instant::now();
    let checker = System::new(setting).checker().finish_when(HasDiscoveries::AnyFailures);
    let checker = checker.spawn_bfs().join();
    let (unique, all, depth) = (checker.unique_state_count(), checker.state_count(), checker.max_depth());
    println!(
        "{unique} states, {all} steps, at most {depth} in a row, {:.1} s: {setting:?}",
        started.elapsed().as_secs_f64()
    );
    let (found, path) = checker.discoveries().into_iter().min_by_key(|(_, path)| path.clone().into_actions().len())?;
    let property = NAMES.iter().find(|(name, _)| *name == found).map(|(_, property)| *property)?;
    Some(Counterexample { property, trace: told(checker.model(), path) })
}

/// A path: each state, and what happens then.
fn told(system: &System, path: Path<ModelState, ModelAction>) -> String {
    let mut text = String::new();
    let mut last = None;
    for (state, action) in path.into_vec() {
        let _ = write!(text, "{}", brief(&state));
        if let Some(action) = action {
            let _ = writeln!(text, "{action:?}");
        }
        last = Some(state);
    }
    let violation = last
        .and_then(|state| state.violation.clone().or_else(|| system.unrest(&state)).or_else(|| System::unfair(&state)));
    if let Some(violation) = violation {
        let _ = writeln!(text, "{}", violation.message);
    }
    text
}

fn brief(state: &ModelState) -> String {
    let controller = &state.controller;
    let mut text = format!("    {:?}, the controller has seen {:?}", state.jobset.status, controller.seen.0);
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
        let agent =
            agent.map(|agent| format!("in {:?}, {} behind, reports {:?}", agent.entered, agent.age, agent.in_flight));
        let _ = writeln!(
            text,
            "      agent {agent:?}, worker {:?}{}; {pod:?}, unseen {}",
            machine.worker,
            if machine.must_reset { ", all restart" } else { "" },
            slot.unseen.len()
        );
    }
    text
}
