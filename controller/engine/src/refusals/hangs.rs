//! Requests that were slow and failed. Each is sent again after a back-off of its own, as a probe: it may hang again, so it has
//! only what places probes have ([`Places`](crate::places::Places)).

use std::collections::HashSet;
use std::time::Instant;

use jobset_rules::{Action, Note};

use super::{Refusals, Request, requests, wait};

impl Refusals {
    /// The request was slow and failed; when it is due again. Then it is a probe: it may hang again.
    pub(crate) fn hung(
        &mut self,
        generation: Option<i64>,
        request: &Request,
        note: Option<Note>,
        now: Instant,
    ) -> Instant {
        let until = self.refused(generation, request.clone(), note, now);
        if let Some(entry) = self.entries.get_mut(request) {
            entry.hangs = true;
        }
        until
    }

    /// Whether the action is sent for the first time after it was slow and failed.
    pub(crate) fn is_probe(&self, action: &Action) -> bool {
        requests(action).any(|request| self.entries.get(&request).is_some_and(|entry| entry.hangs))
    }

    /// Takes the probes out, because there is no place for them; when the first of them is due again.
    pub(crate) fn delay_probes(&mut self, actions: &mut Vec<Action>, now: Instant) -> Option<Instant> {
        let probes: HashSet<Request> = actions.iter().filter(|it| self.is_probe(it)).flat_map(requests).collect();
        actions.retain(|action| !self.is_probe(action));
        let delayed = self.entries.iter_mut().filter(|(request, _)| probes.contains(request));
        delayed
            .map(|(_, entry)| {
                entry.until = now + wait(entry.refusals);
                entry.until
            })
            .min()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn delete(name: &str) -> Action {
        Action::DeleteJob { name: name.to_owned(), uid: String::new() }
    }

    #[test]
    fn hung_request_is_a_probe_until_it_is_accepted() {
        let (mut refusals, now) = (Refusals::default(), Instant::now());
        let later = |second: u64| now + Duration::from_secs(second);
        let request = Request::of(&delete("a"));
        assert_eq!(refusals.hung(None, &request, None, now), later(1));
        let mut actions = vec![delete("a"), delete("b")];
        assert_eq!(refusals.withhold(None, &mut actions, true, now), Some(later(1)));
        assert_eq!(actions, [delete("b")], "it waits");
        let mut actions = vec![delete("a"), delete("b")];
        refusals.withhold(None, &mut actions, true, later(1));
        assert_eq!(actions.iter().map(|action| refusals.is_probe(action)).collect::<Vec<_>>(), [true, false]);
        assert_eq!(refusals.delay_probes(&mut actions, later(1)), Some(later(3)), "without a place it waits longer");
        assert_eq!(actions, [delete("b")]);
        refusals.accepted(&request, later(3));
        assert!(!refusals.is_probe(&delete("a")));
    }
}
