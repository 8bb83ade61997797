//! Admission allocates in proportion to the size of a JobSet.

use jobset_api::gates::Gates;
use jobset_api::injection::{self, Settings};
use jobset_api::message_pattern::MessagePatterns;
use jobset_api::validation::{self, Errors};
use jobset_api::{JobSet, defaults, labels, restore};
use serde_json::{Value, json};

use crate::jobsets::{ALL, LongJobSet};
use jobset_allocations::{Allocations, counted};

/// Length of the larger JobSet that is compared, in bytes of JSON.
const LENGTH: usize = 64 << 10;
/// Length of a JobSet for which a rule that compares each entry with all others would take minutes: a third of what the API
/// server stores.
const LONGEST: usize = 500_000;
/// What twice the size may take, in percent. Lists that double their room may be just below and just above a size.
const PERCENT: usize = 250;
/// What may be added to that, whatever the size.
const ALLOCATIONS: usize = 1000;
const BYTES: usize = 1 << 20;

fn read(jobset: &Value) -> JobSet {
    serde_json::from_value(jobset.clone()).unwrap()
}

/// The JobSet whose JSON has about this length.
fn of_length(make: LongJobSet, length: usize) -> JobSet {
    let text = |count: usize| make(count).to_string().len();
    let of_entry = (text(2000) - text(1000)).max(1);
    read(&make(length * 1000 / of_entry))
}

fn create(sent: &JobSet) -> JobSet {
    let mut stored = JobSet { spec: defaults::apply(&sent.spec), ..sent.clone() };
    if let Some(shape) = sent.metadata.annotations.as_ref().and_then(|it| it.get(labels::INJECT_AGENT)) {
        let settings = Settings { agent_image: Some("agent:1".to_owned()), ..Settings::default() };
        let _ = injection::inject(&mut stored.spec, shape, &settings);
    }
    validation::validate_create(&stored, Gates::default());
    validation::warnings(&stored);
    validation::check_allowed_topology_keys(None, &stored, &["zone".to_owned()], &mut Errors::default());
    stored
}

/// What the webhooks do when the original is applied again with another annotation, and when each Job is changed.
fn update(sent: &JobSet, stored: &JobSet) {
    let mut applied = sent.clone();
    applied.metadata.annotations.get_or_insert_default().insert("a".to_owned(), String::new());
    if let Some(spec) = restore::restore(stored, &applied) {
        applied.spec = spec;
    }
    let mut changed = applied.clone();
    changed.spec.coordinator = Some(serde_json::from_value(json!({ "replicatedJob": "" })).unwrap());
    for job in &mut changed.spec.replicated_jobs {
        job.template.spec.parallelism = Some(job.template.spec.parallelism.unwrap_or(1).wrapping_add(1));
    }
    for new in [applied, changed] {
        validation::validate_update(stored, &new, Gates::default());
        validation::update_warnings(stored, &new);
        validation::check_allowed_topology_keys(Some(stored), &new, &["zone".to_owned()], &mut Errors::default());
    }
}

/// What the controller checks.
fn judge(stored: &JobSet) {
    validation::cannot_run(stored);
    validation::cannot_restart_in_place(stored);
    validation::cannot_match(stored, &MessagePatterns::compile(stored.spec.failure_rules()));
}

fn admit(sent: &JobSet) -> Allocations {
    let ((), allocations) = counted(|| {
        let stored = create(sent);
        judge(&stored);
        update(sent, &stored);
    });
    allocations
}

#[test]
fn admission_of_twice_the_size_allocates_twice_as_much() {
    for (what, make) in ALL {
        let [one, two] = [LENGTH / 2, LENGTH].map(|length| admit(&of_length(make, length)));
        let at_most = |one: usize, more: usize| one * PERCENT / 100 + more;
        let is_linear = two.count <= at_most(one.count, ALLOCATIONS) && two.bytes <= at_most(one.bytes, BYTES);
        assert!(is_linear, "{what}: {one:?}, of twice the size {two:?}");
    }
}

#[test]
fn very_large_jobset_is_judged_without_quadratic_work() {
    for (_, make) in ALL {
        let sent = of_length(make, LONGEST);
        validation::validate_create(&sent, Gates::default());
        judge(&sent);
    }
}
