//! Elastic: brings the Jobs that exist to the size that the JobSet now has.
//!
//! In place, the group restarts in its new size. Newcomers are waited for before the others are stopped; when workers go
//! the others restart at once. Neither is a failure (`protocol.md`).
//!
//! With the feature gate ElasticJobSet off, Jobs stay as large as they are.

use std::ops::ControlFlow;

use super::Action;
use super::pass::{Current, Pass};

/// A Job whose size is not the one it should have.
struct Misfit<'a> {
    current: Current<'a>,
    /// `parallelism` and `completions` that it should have; none if it should not be.
    wanted: Option<(i32, Option<i32>)>,
}

pub(super) fn resize(pass: &mut Pass<'_>) -> ControlFlow<()> {
    if !pass.settings.gates.elastic_job_set {
        return ControlFlow::Continue(());
    }
    let surplus = pass.surplus.iter().map(|current| Misfit { current: *current, wanted: None });
    let misfits: Vec<Misfit<'_>> =
        pass.current.iter().filter_map(|current| misfit(pass, *current)).chain(surplus).collect();
    if misfits.is_empty() {
        return ControlFlow::Continue(());
    }
    let shrinks = misfits
        .iter()
        .any(|misfit| misfit.wanted.is_none_or(|(parallelism, _)| parallelism < misfit.current.job.parallelism));
    if pass.announce_free_epoch().is_break() {
        if shrinks {
            pass.status.deprecated_epoch = pass.status.synced_epoch;
        }
        return ControlFlow::Break(());
    }
    for Misfit { current, wanted } in misfits {
        let (name, uid) = (current.name.to_owned(), current.job.uid.clone());
        pass.actions.push(match wanted {
            Some((parallelism, completions)) => Action::ResizeJob { name, uid, parallelism, completions },
            None => Action::DeleteJob { name, uid },
        });
    }
    ControlFlow::Continue(())
}

fn misfit<'a>(pass: &Pass<'a>, current: Current<'a>) -> Option<Misfit<'a>> {
    let (group, job) = (&pass.groups()[current.group], current.job);
    let spec = &group.template.spec;
    let indexed = spec.completion_mode.as_deref() == Some("Indexed");
    // Of other Jobs, completions cannot change.
    let completions = spec.completions.filter(|_| indexed);
    let parallelism = spec.parallelism.unwrap_or(1);
    let fits = job.parallelism == parallelism && completions.is_none_or(|wanted| job.completions == Some(wanted));
    (job.finished.is_none() && !fits).then_some(Misfit { current, wanted: Some((parallelism, completions)) })
}
