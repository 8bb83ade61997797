//! Elastic JobSets: resizes the existing Jobs to the size in the specification.
//!
//! With in-place restart, the group restarts in its new size. If it grows, the members go on until the new Pods have
//! reported. If it shrinks, the members that stay restart at once. Neither is a failure (`docs/src/protocol.md`).
//!
//! With the feature gate ElasticJobSet off, the rule does nothing.

use std::ops::ControlFlow;

use jobset_api::event;

use crate::reconciliation::{Current, Reconciliation, first_few};
use crate::types::Action;
use crate::{epochs, invalid, members};

/// A Job whose size differs from the specification.
struct Misfit<'a> {
    current: Current<'a>,
    /// The specified `parallelism` and `completions`; `None` if the specification does not have this Job.
    specified: Option<(i32, Option<i32>)>,
}

impl Misfit<'_> {
    /// `Job train-w-0 from 2 to 4 Pods`.
    fn describe(&self) -> String {
        let (name, pods) = (self.current.name, self.current.job.parallelism);
        match self.specified {
            Some((parallelism, _)) => format!("Job {name} from {pods} to {parallelism} Pods"),
            None => format!("Job {name} away"),
        }
    }
}

pub(super) fn resize(reconciliation: &mut Reconciliation<'_>) -> ControlFlow<()> {
    if !reconciliation.settings.gates.elastic_job_set || invalid::is_too_large(reconciliation) {
        return ControlFlow::Continue(());
    }
    let surplus = reconciliation.surplus.iter().map(|current| Misfit { current: *current, specified: None });
    let misfits: Vec<Misfit<'_>> =
        reconciliation.current.iter().filter_map(|current| misfit(reconciliation, *current)).chain(surplus).collect();
    if misfits.is_empty() {
        return ControlFlow::Continue(());
    }
    if members::leave(reconciliation) {
        epochs::restart_uncounted(reconciliation)?;
        return ControlFlow::Break(());
    }
    reconciliation.note(
        event::RESIZED,
        format!("resizing {}", first_few(&misfits.iter().map(Misfit::describe).collect::<Vec<_>>())),
    );
    for Misfit { current, specified } in misfits {
        let (name, uid) = (current.name.to_owned(), current.job.uid.clone());
        reconciliation.actions.push(match specified {
            Some((parallelism, completions)) => Action::ResizeJob { name, uid, parallelism, completions },
            None => Action::DeleteJob { name, uid },
        });
    }
    ControlFlow::Continue(())
}

fn misfit<'a>(reconciliation: &Reconciliation<'a>, current: Current<'a>) -> Option<Misfit<'a>> {
    let (group, job) = (&reconciliation.groups()[current.group], current.job);
    let spec = &group.template.spec;
    let indexed = spec.completion_mode.as_deref() == Some("Indexed");
    // The Job API allows a change of completions for Indexed Jobs only.
    let completions = spec.completions.filter(|_| indexed);
    let parallelism = spec.parallelism.unwrap_or(1);
    let fits = job.parallelism == parallelism && completions.is_none_or(|specified| job.completions == Some(specified));
    (job.finished.is_none() && !fits).then_some(Misfit { current, specified: Some((parallelism, completions)) })
}
