//! What of a JobSet may change once it is created. The CRD itself holds the policies still; here are the controller that
//! is responsible and the replicatedJobs, whose Jobs exist already:
//!
//! - while the JobSet is suspended, what decides where its Pods run ([`super::suspended`]),
//! - until it is finished, how many there are ([`super::resize`]),
//! - nothing else ([`super::unchanged`]).

use super::field::{Errors, Path};
use super::{resize, suspended, unchanged};
use crate::{JobSet, ReplicatedJob, conditions};

const MANAGED_BY: &str = "must stay as it was created: two controllers would work on one JobSet";
const REPLICATED_JOBS: &str = "must stay the replicatedJobs that the JobSet was created with, in their order: create \
                               another JobSet instead";
const AS_CREATED: &str = "as the JobSet was created: create another JobSet instead";
const WHILE_IT_RUNS: &str = "while the JobSet runs: set spec.suspend to true with this change or before it";

/// Refuses changes that are not carried out.
pub(super) fn check(old: &JobSet, new: &JobSet, spec: &Path<'_>, errors: &mut Errors) {
    if old.spec.managed_by != new.spec.managed_by {
        errors.invalid(&spec.child("managedBy"), &new.spec.managed_by, MANAGED_BY);
    }
    let path = spec.child("replicatedJobs");
    let (before, after) = (&old.spec.replicated_jobs, &new.spec.replicated_jobs);
    if !before.iter().map(name).eq(after.iter().map(name)) {
        errors.invalid(&path, after.iter().map(name).collect::<Vec<_>>(), REPLICATED_JOBS);
        return;
    }
    // The Go JobSet, too, allows it in the update that suspends: Kueue takes back its changes as it evicts.
    let is_suspended = old.spec.is_suspended() || new.spec.is_suspended();
    let finished = is_finished(old);
    for (index, (before, after)) in before.iter().zip(after).enumerate() {
        if before == after {
            continue;
        }
        let path = path.index(index);
        let mut resized = before.clone();
        let standing = resize::Standing { finished, last: index + 1 == new.spec.replicated_jobs.len() };
        resize::take_over(&mut resized, after, standing, &path, errors);
        let mut moved = resized.clone();
        suspended::take_over(&mut moved.template.spec.template, &after.template.spec.template);
        if !is_suspended {
            unchanged::check(&resized, &moved, &path, WHILE_IT_RUNS, errors);
        }
        unchanged::check(&moved, after, &path, AS_CREATED, errors);
    }
}

fn name(replicated_job: &ReplicatedJob) -> &str {
    &replicated_job.name
}

fn is_finished(jobset: &JobSet) -> bool {
    jobset
        .status
        .as_ref()
        .is_some_and(|it| !it.terminal_state.is_empty() || conditions::terminal(&it.conditions).is_some())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::testing::{Changes, assert_one, changed, in_place, jobset, read};
    use super::super::validate_update;
    use crate::gates::Gates;

    const JOB: &str = "/spec/replicatedJobs/1/template/spec";
    const SUSPEND: &str = "/spec/suspend";

    fn errors(old: &Value, changes: Changes<'_>) -> Vec<String> {
        let new = changed(old.clone(), changes);
        validate_update(&read(old), &read(&new), Gates::default()).iter().map(ToString::to_string).collect()
    }

    #[rstest]
    #[case::nothing(&[])]
    #[case::suspend(&[(SUSPEND, json!(true))])]
    #[case::deadline_of_a_finished_one(&[("/spec/ttlSecondsAfterFinished", json!(60))])]
    #[case::coordinator(&[("/spec/coordinator", json!({ "replicatedJob": "driver" }))])]
    fn what_is_no_part_of_a_job_may_change(#[case] changes: Changes<'_>) {
        assert_eq!(errors(&jobset(&[]), changes), Vec::<String>::new());
    }

    #[rstest]
    #[case::manager(&[("/spec/managedBy", json!("example.com/x"))], r#"spec.managedBy: Invalid value: "example.com/x": must stay as it was created"#)]
    #[case::none_left(&[("/spec/replicatedJobs", json!([]))], "spec.replicatedJobs: Invalid value: []: must stay the replicatedJobs")]
    #[case::renamed(&[("/spec/replicatedJobs/1/name", json!("w"))], r#"spec.replicatedJobs: Invalid value: ["driver","w"]: must stay"#)]
    #[case::group(&[("/spec/replicatedJobs/1/groupName", json!("g"))], r#"spec.replicatedJobs[1].groupName: Invalid value: "g": must stay absent, as the JobSet was created"#)]
    #[case::order(
        &[("/spec/replicatedJobs/1/dependsOn", json!([{ "name": "driver", "status": "Ready" }]))],
        "spec.replicatedJobs[1].dependsOn: Invalid value: [{\"name\":\"driver\",\"status\":\"Ready\"}]: must stay absent"
    )]
    #[case::job_label(
        &[("/spec/replicatedJobs/1/template/metadata", json!({ "labels": { "a": "b" } }))],
        r#"spec.replicatedJobs[1].template.metadata: Invalid value: {"labels":{"a":"b"}}: must stay absent, as the JobSet"#
    )]
    #[case::image(
        &[("/spec/replicatedJobs/1/template/spec/template/spec/containers/0/image", json!("main:2"))],
        r#"spec.replicatedJobs[1].template.spec.template.spec.containers[0].image: Invalid value: "main:2": must stay "main:1", as the JobSet was created: create another"#
    )]
    #[case::backoff_limit(&[("/spec/replicatedJobs/1/template/spec/backoffLimit", json!(3))], "template.spec.backoffLimit: Invalid value: 3: must stay absent")]
    fn what_jobs_were_made_of_may_not(#[case] changes: Changes<'_>, #[case] expected: &str) {
        assert_one(&errors(&jobset(&[]), changes), expected);
        // Suspended or not.
        assert_one(&errors(&jobset(&[(SUSPEND, json!(true))]), changes), expected);
    }

    #[test]
    fn every_changed_field_is_named() {
        let changes = [
            ("/spec/replicatedJobs/0/template/spec/backoffLimit", json!(1)),
            ("/spec/replicatedJobs/1/template/spec/template/spec/containers/0", json!({ "name": "other" })),
            ("/spec/replicatedJobs/1/template/spec/template/spec/nodeSelector", json!({ "a": "b" })),
        ];
        let errors = errors(&jobset(&[]), &changes);
        let fields: Vec<_> = errors.iter().map(|error| error.split(": ").next().unwrap()).collect();
        let pod = "spec.replicatedJobs[1].template.spec.template.spec";
        assert_eq!(
            fields,
            [
                "spec.replicatedJobs[0].template.spec.backoffLimit".to_owned(),
                format!("{pod}.nodeSelector"),
                format!("{pod}.containers[0].image"),
                format!("{pod}.containers[0].name"),
            ]
        );
    }

    #[test]
    fn what_was_wrong_before_does_not_hinder_a_change_of_something_else() {
        let old = in_place(&[(&format!("{JOB}/backoffLimit"), json!(6)), ("/metadata/name", json!("a.b"))]);
        assert_eq!(errors(&old, &[(SUSPEND, json!(true))]), Vec::<String>::new());
        assert_eq!(errors(&old, &[("/spec/replicatedJobs/1/replicas", json!(3))]), Vec::<String>::new());
        let worse = errors(&old, &[("/spec/replicatedJobs/1/replicas", json!(-3))]);
        assert_one(&worse, "spec.replicatedJobs[1].replicas: Invalid value: -3: must not be negative");
    }

    #[test]
    fn a_jobset_can_be_suspended_after_the_gate_was_switched_off() {
        let (old, off) = (in_place(&[]), Gates { in_place_restart: false });
        let new = changed(old.clone(), &[(SUSPEND, json!(true))]);
        assert_eq!(validate_update(&read(&old), &read(&new), off).to_string(), "");
        let other = jobset(&[]);
        assert_ne!(validate_update(&read(&other), &read(&new), off).to_string(), "");
    }
}
