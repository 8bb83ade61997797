//! One check: all states of a setting, and the path to one in which a property does not hold.

use std::fmt::Write;
use std::time::Instant;

use stateright::{Checker, HasDiscoveries, Model};

use super::setting::Setting;
use super::state::ModelState;
use super::system::System;
use crate::proof::Property;

/// A property that does not hold, and what happens before.
pub(super) struct Counterexample {
    pub property: Property,
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
    let path = checker.discoveries().into_values().next()?;
    let violation = checker.model().violation(path.last_state()).unwrap();
    let mut trace = String::new();
    for (state, action) in path.into_vec() {
        let _ = write!(trace, "{}", brief(&state));
        let _ = action.map(|action| writeln!(trace, "{action:?}"));
    }
    let _ = writeln!(trace, "{violation}");
    Some(Counterexample { property: violation.property, trace })
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
            format!("in {:?}, {} behind, writes {:?}{stream}", agent.entered, agent.age, agent.in_flight)
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
