//! Whether things can go round for ever.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use stateright::Model;

use super::state::ModelState;
use super::system::{ModelAction, System};

/// The actions of a cycle, if there is one. What can go wrong does so a limited number of times, so that a cycle is one of
/// things that happen by themselves.
pub(super) fn find(system: &System) -> Option<Vec<ModelAction>> {
    let mut on_path: HashMap<u64, bool> = HashMap::new();
    let mut path: Vec<(ModelState, u64, Vec<ModelAction>)> = Vec::new();
    let mut taken: Vec<ModelAction> = Vec::new();
    let steps = |state: &ModelState| {
        let mut actions = Vec::new();
        system.actions(state, &mut actions);
        actions
    };
    for state in system.init_states() {
        let key = key(&state);
        on_path.insert(key, true);
        let steps = steps(&state);
        path.push((state, key, steps));
    }
    while let Some((state, key_of_state, left)) = path.last_mut() {
        let Some(action) = left.pop() else {
            on_path.insert(*key_of_state, false);
            path.pop();
            taken.pop();
            continue;
        };
        let Some(next) = system.next_state(state, action) else { continue };
        let key = key(&next);
        match on_path.get(&key) {
            Some(true) => {
                taken.push(action);
                return Some(taken);
            }
            Some(false) => {}
            None => {
                on_path.insert(key, true);
                taken.push(action);
                let steps = steps(&next);
                path.push((next, key, steps));
            }
        }
    }
    None
}

fn key(state: &ModelState) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}
