//! Job templates that the API server refuses, or that Kubernetes or the controller change without a word. Without these rules, a
//! user learns of them from a condition of a JobSet without Pods, or not at all.
//!
//! The rules are rows of a table ([`row`]): a field, what is wrong with it, and what is said. There is a table for each kind of
//! part of a template: [`job`], [`pod`], [`container`]. What needs more than one field or entry is a function beside its table.
//! A row is in the table if Kubernetes 1.36 refuses every Job with such a field, whatever its feature gates are. So no Job is
//! rejected here that the API server accepts; `webhook/tests` asks one about each row.

mod container;
mod job;
mod metadata;
mod pod;
mod resources;
mod row;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use super::overwritten;
use super::subject::Subject;
use super::warnings::Warnings;
use crate::field::{Errors, Path};
use crate::{ReplicatedJob, RestartStrategy};
use row::Found;

/// Rejects templates of Jobs that the API server refuses.
pub(super) fn check(subject: &Subject<'_>, spec: &Path<'_>, errors: &mut Errors) {
    subject.for_each_job(spec, |replicated_job, path| {
        of_job(subject, replicated_job, &path.child("template"), &mut Found::Errors(errors));
    });
}

/// Warns of fields of templates that the API server accepts, and that do not do what they say.
pub(super) fn warn(subject: &Subject<'_>, spec: &Path<'_>, warnings: &mut Warnings) {
    subject.for_each_job(spec, |replicated_job, path| {
        of_job(subject, replicated_job, &path.child("template"), &mut Found::Warnings(warnings));
    });
}

/// Rejects names of a list, each with its place, that are among those `seen` before.
fn unique<'a>(
    names: impl Iterator<Item = (usize, &'a str)>,
    seen: &mut HashSet<&'a str>,
    required: &str,
    path: &Path<'_>,
    errors: &mut Errors,
) {
    for (index, name) in names.filter(|(_, name)| !seen.insert(name)) {
        errors.duplicate(&path.index(index).child("name"), name, required);
    }
}

fn of_job(subject: &Subject<'_>, replicated_job: &ReplicatedJob, path: &Path<'_>, found: &mut Found<'_>) {
    let template = &replicated_job.template;
    let is_recreated = subject.spec.restart_strategy() != RestartStrategy::InPlaceRestart;
    let spec = path.child("spec");
    job::look(&template.spec, is_recreated, &spec, found);
    let pod_path = spec.child("template");
    if let Some(pod) = &template.spec.template.spec {
        let is_indexed = template.spec.completion_mode.as_deref() == Some("Indexed");
        let keeps_subdomain = !subject.spec.dns_hostnames_enabled();
        pod::look(pod, is_indexed, keeps_subdomain, &pod_path.child("spec"), found);
    }
    if let Found::Errors(errors) = found {
        metadata::check(template.metadata.as_ref(), &path.child("metadata"), overwritten::is_overwritten, errors);
        let (pods, path) = (template.spec.template.metadata.as_ref(), pod_path.child("metadata"));
        metadata::check(pods, &path, overwritten::is_overwritten, errors);
        if template.spec.manual_selector != Some(true) {
            let begin = format!("{}-{}-", subject.name, replicated_job.name);
            metadata::of_other_jobs(pods, &begin, &path, errors);
        }
    }
}
