//! The annotations about workers that make no progress.

use k8s_openapi::api::core::v1::{Container, EnvVar, PodSpec};

use super::subject::{ReadAnnotation, Subject};
use super::warnings::Warnings;
use crate::agent::{Agent, PROGRESS_FILE, PROGRESS_PATTERN};
use crate::conditions::PROGRESS_STALLED;
use crate::field::{Errors, Path};
use crate::labels::{INJECT_AGENT, MAX_RESTARTS_WITHOUT_PROGRESS, ON_STALL, STALL_AFTER, STALL_FIRST};
use crate::{FailurePolicyAction, FailurePolicyRule, JobSet, OnStall, RestartStrategy, StallAfter};

const ANNOTATIONS: [ReadAnnotation; 4] = [
    (
        STALL_AFTER,
        |_, text| StallAfter::parse(text).is_some(),
        "must be auto, or a duration from 5s to 720h, such as 90s or 20m: so long may a worker make no progress. Remove the \
         annotation to look for no stalls",
    ),
    (
        STALL_FIRST,
        |jobset, _| jobset.stall_first().is_some(),
        "must be a duration from 5s to 720h, such as 90s or 20m: so long may the first step of a worker take",
    ),
    (ON_STALL, |_, text| OnStall::parse(text).is_some(), "must be Notify or Restart"),
    (
        MAX_RESTARTS_WITHOUT_PROGRESS,
        |jobset, _| jobset.max_restarts_without_progress().is_some(),
        "must be a whole number of at least 1, such as 3: after so many restarts in a row without a higher step, the JobSet fails",
    ),
];
const NO_DURATION: &str = "needs a duration in the annotation jobset.sigs.k8s.io/stall-after, such as 20m: without one, and with \
                           auto, a stall is only notified. Set a duration, or Notify";
const WHEN_CREATED: &str = "agents do not learn of the change: they keep what was there when the JobSet was created. Delete the JobSet \
                            and create it again";
const OTHER_FILE: &str = "names another JOBSET_PROGRESS_FILE than the agent has, which sees nothing of it. Leave the variable out, or \
                          set it to one file in a volume that both mount, on the agent as well";
const NO_OUTPUT: &str = "JOBSET_PROGRESS_PATTERN has no effect: a sidecar does not see the output of workers. Inject the agent as a \
                         Supervisor, or let the worker write to JOBSET_PROGRESS_FILE";

/// Rejects values that mean nothing, and restarts without a limit that the user has set.
pub(super) fn check(subject: &Subject<'_>, _spec: &Path<'_>, errors: &mut Errors) {
    let jobset = subject.jobset;
    subject.check_annotations(&ANNOTATIONS, errors);
    let asks = jobset.annotation(ON_STALL).filter(|text| OnStall::parse(text) == Some(OnStall::Restart));
    // A malformed limit is one error, not two.
    let has_no_limit = match jobset.annotation(STALL_AFTER) {
        None => true,
        Some(text) => StallAfter::parse(text) == Some(StallAfter::Auto),
    };
    if let Some(asks) = asks.filter(|_| has_no_limit) {
        errors.invalid(&Path::annotation(ON_STALL), asks, NO_DURATION);
    }
}

/// Warns of annotations, rules and variables without effect.
pub(super) fn warn(subject: &Subject<'_>, spec: &Path<'_>, warnings: &mut Warnings) {
    let jobset = subject.jobset;
    let present: Vec<_> =
        ANNOTATIONS.iter().map(|(key, ..)| *key).filter(|key| jobset.annotation(key).is_some()).collect();
    if subject.is_in_place_or_warns(present.iter().copied(), warnings) && !present.is_empty() {
        warn_of_annotations(subject, &present, warnings);
        subject.for_each_pod(spec, |pod, path| warn_of_variables(pod, path, warnings));
    }
    let path = spec.child("failurePolicy.rules");
    for (index, rule) in subject.spec.failure_rules().iter().enumerate() {
        if let Some(why) = why_ineffective(subject, rule) {
            let text = format_args!("{PROGRESS_STALLED} has no effect {why}");
            warnings.push(&path.index(index).child("onJobFailureReasons"), text);
        }
    }
}

/// Warns of annotations without effect on a JobSet that restarts in place.
fn warn_of_annotations(subject: &Subject<'_>, present: &[&'static str], warnings: &mut Warnings) {
    if !present.contains(&STALL_AFTER) {
        for key in present.iter().filter(|key| [STALL_FIRST, ON_STALL].contains(key)) {
            let text = format_args!("has no effect without the annotation {STALL_AFTER}: nobody looks for stalls");
            warnings.push(&Path::annotation(key), text);
        }
    }
    let mut pods = subject.spec.replicated_jobs.iter().filter_map(|job| job.template.spec.template.spec.as_ref());
    if !pods.any(tells) {
        for key in present.iter().filter(|key| [STALL_AFTER, MAX_RESTARTS_WITHOUT_PROGRESS].contains(key)) {
            let text = format_args!(
                "has no effect: no worker can tell its agent of progress. Create the JobSet with the annotation {INJECT_AGENT}, or \
                 set the variable {PROGRESS_FILE} to one file on the agent and on the worker"
            );
            warnings.push(&Path::annotation(key), text);
        }
    }
}

/// Warns of variables by which a worker tells nobody of progress.
fn warn_of_variables(pod: &PodSpec, path: &Path<'_>, warnings: &mut Warnings) {
    let Some(Agent::Sidecar(_, agent)) = Agent::all_of(pod).into_iter().next() else { return };
    let file = variable(agent, PROGRESS_FILE);
    let path = path.child("containers");
    for (index, container) in pod.containers.iter().enumerate() {
        let path = path.index(index);
        let path = path.child("env");
        if variable(container, PROGRESS_FILE).is_some_and(|own| Some(own) != file) {
            warnings.push(&path, OTHER_FILE);
        }
        if variable(container, PROGRESS_PATTERN).is_some() {
            warnings.push(&path, NO_OUTPUT);
        }
    }
}

/// Whether a worker of the Pod has a way to tell its agent of progress.
fn tells(pod: &PodSpec) -> bool {
    match Agent::all_of(pod).first() {
        Some(Agent::Supervisor(_, container)) => {
            [PROGRESS_FILE, PROGRESS_PATTERN].iter().any(|name| variable(container, name).is_some())
        }
        Some(Agent::Sidecar(_, agent)) => {
            let file = variable(agent, PROGRESS_FILE);
            file.is_some() && pod.containers.iter().any(|worker| variable(worker, PROGRESS_FILE) == file)
        }
        None => false,
    }
}

fn variable<'a>(container: &'a Container, name: &str) -> Option<&'a EnvVar> {
    container.env.iter().flatten().find(|variable| variable.name == name)
}

/// Why a rule that names the reason of stalls does nothing for it.
fn why_ineffective(subject: &Subject<'_>, rule: &FailurePolicyRule) -> Option<&'static str> {
    if rule.on_job_failure_reasons.iter().all(|reason| reason != PROGRESS_STALLED) {
        None
    } else if subject.spec.restart_strategy() != RestartStrategy::InPlaceRestart {
        Some("without restartStrategy InPlaceRestart")
    } else if !matches!(subject.jobset.stall_after(), Some(StallAfter::After(_))) {
        Some("without a duration in the annotation jobset.sigs.k8s.io/stall-after: with auto, a stall is only notified")
    } else if !rule.on_job_failure_message_patterns.is_empty() {
        Some("beside onJobFailureMessagePatterns, which are for the messages of Jobs: give it a rule of its own")
    } else if rule.action == FailurePolicyAction::FailJob {
        Some(
            "with action FailJob: the stall is only notified, whatever the annotation jobset.sigs.k8s.io/on-stall says",
        )
    } else {
        None
    }
}

/// Warns of a change that agents do not hear of.
pub(super) fn warn_of_update(old: &JobSet, new: &JobSet, warnings: &mut Warnings) {
    let in_place = new.spec.restart_strategy() == RestartStrategy::InPlaceRestart;
    for key in [STALL_AFTER, STALL_FIRST] {
        let asked = new.annotation(key);
        if in_place && asked.is_some() && old.annotation(key) != asked {
            warnings.push(&Path::annotation(key), WHEN_CREATED);
        }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::super::testing::{admission_errors, assert_one, in_place, jobset, read};
    use super::super::{cannot_run, update_warnings, warnings};
    use super::*;
    use crate::injection::{Settings, inject};

    fn annotated(annotations: &[(&str, &str)]) -> Value {
        let annotations: serde_json::Map<_, _> =
            annotations.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
        in_place(&[("/metadata/annotations", annotations.into())])
    }

    #[rstest]
    #[case::seconds(STALL_AFTER, "90s", true)]
    #[case::shortest(STALL_AFTER, "5s", true)]
    #[case::longest(STALL_AFTER, "720h", true)]
    #[case::never(STALL_AFTER, "1000h", false)]
    #[case::negative(STALL_AFTER, "-90s", false)]
    #[case::other_case(STALL_AFTER, "Auto", false)]
    #[case::empty(STALL_AFTER, "", false)]
    #[case::first_never(STALL_FIRST, "1000h", false)]
    #[case::notify(ON_STALL, "Notify", true)]
    #[case::number(MAX_RESTARTS_WITHOUT_PROGRESS, "1", true)]
    #[case::negative_number(MAX_RESTARTS_WITHOUT_PROGRESS, "-1", false)]
    #[case::huge(MAX_RESTARTS_WITHOUT_PROGRESS, "99999999999999999999", false)]
    fn value_that_means_nothing_is_rejected(#[case] key: &str, #[case] value: &str, #[case] accepted: bool) {
        let object = if key == STALL_AFTER {
            annotated(&[(key, value)])
        } else {
            annotated(&[(key, value), (STALL_AFTER, "90s")])
        };
        if accepted {
            assert_eq!(admission_errors(&object), Vec::<String>::new());
        } else {
            let expected = format!("metadata.annotations[{key}]: Invalid value: {value:?}: must be");
            assert_one(&admission_errors(&object), &expected);
        }
        assert!(cannot_run(&read(&object)).is_empty(), "a stored JobSet runs");
    }

    #[rstest]
    #[case::auto(Some("auto"), true)]
    #[case::absent(None, true)]
    #[case::duration(Some("90s"), false)]
    fn restart_needs_a_duration(#[case] after: Option<&str>, #[case] is_rejected: bool) {
        let after = after.map(|after| (STALL_AFTER, after));
        let annotations: Vec<_> = after.into_iter().chain([(ON_STALL, "Restart")]).collect();
        let errors = admission_errors(&annotated(&annotations));
        let expected = format!("metadata.annotations[{ON_STALL}]: Invalid value: \"Restart\": needs a duration");
        assert_eq!(
            (errors.len(), errors.iter().any(|error| error.starts_with(&expected))),
            (is_rejected.into(), is_rejected)
        );
    }

    #[rstest]
    #[case(STALL_AFTER, "90s")]
    #[case(MAX_RESTARTS_WITHOUT_PROGRESS, "3")]
    fn annotation_without_in_place_restart_gets_warning(#[case] key: &str, #[case] value: &str) {
        let object = jobset(&[("/metadata/annotations", json!({ key: value }))]);
        let expected = format!(
            "metadata.annotations[{key}]: has no effect with restartStrategy Recreate: it is for InPlaceRestart"
        );
        assert_one(&warnings(&read(&object)), &expected);
    }

    #[rstest]
    #[case(STALL_FIRST, "1h")]
    #[case(ON_STALL, "Notify")]
    fn annotation_without_stall_after_gets_warning(#[case] key: &str, #[case] value: &str) {
        let expected = format!("metadata.annotations[{key}]: has no effect without the annotation {STALL_AFTER}");
        assert_one(&warnings(&read(&annotated(&[(key, value)]))), &expected);
    }

    /// The warnings about a JobSet with these annotations, once the agent is injected, and with these variables of its workers.
    fn warned(annotations: &[(&str, &str)], shape: &str, variables: &Value) -> Vec<String> {
        let mut object = annotated(&[annotations, &[(INJECT_AGENT, shape)]].concat());
        for job in object["spec"]["replicatedJobs"].as_array_mut().unwrap() {
            let pod = &mut job["template"]["spec"]["template"]["spec"];
            pod.as_object_mut().unwrap().remove("initContainers");
            pod["containers"][0]["command"] = json!(["train"]);
            pod["containers"][0]["env"] = variables.clone();
        }
        let mut jobset = read(&object);
        let settings = Settings { agent_image: Some("agent:1".to_owned()), ..Settings::default() }.of(&jobset);
        assert_eq!(inject(&mut jobset.spec, shape, &settings).iter().len(), 0);
        warnings(&jobset).into_iter().filter(|warning| !warning.contains("token")).collect()
    }

    #[rstest]
    #[case(STALL_AFTER, "90s")]
    #[case(MAX_RESTARTS_WITHOUT_PROGRESS, "3")]
    fn annotation_without_a_way_to_tell_gets_warning(#[case] key: &str, #[case] value: &str) {
        let expected = format!("metadata.annotations[{key}]: has no effect: no worker can tell its agent of progress.");
        assert_one(&warnings(&read(&annotated(&[(key, value)]))), &expected);
        for shape in ["Sidecar", "Supervisor"] {
            assert_eq!(warned(&[(key, value)], shape, &json!([])), Vec::<String>::new());
        }
    }

    #[test]
    fn variable_that_agent_does_not_see_gets_warning() {
        let after = [(STALL_AFTER, "90s")];
        let file = json!([{ "name": PROGRESS_FILE, "value": "/data/step" }]);
        let found = warned(&after, "Sidecar", &file);
        let env = "spec.replicatedJobs[0].template.spec.template.spec.containers[0].env";
        assert!(found.iter().any(|it| it.starts_with(&format!("{env}: names another {PROGRESS_FILE}"))), "{found:?}");
        assert!(found[0].contains("no worker can tell its agent"), "{found:?}");
        assert_eq!(warned(&after, "Supervisor", &file), Vec::<String>::new());
        let pattern = json!([{ "name": PROGRESS_PATTERN, "value": "step ([0-9]+)" }]);
        let found = warned(&after, "Sidecar", &pattern);
        assert!(found[0].starts_with(&format!("{env}: {PROGRESS_PATTERN} has no effect")), "{found:?}");
        assert_eq!(warned(&after, "Supervisor", &pattern), Vec::<String>::new());
    }

    #[rstest]
    #[case::effective("90s", json!({}), None)]
    #[case::auto("auto", json!({}), Some("without a duration"))]
    #[case::patterns("90s", json!({ "onJobFailureMessagePatterns": ["x"] }), Some("beside onJobFailureMessagePatterns"))]
    #[case::fail_job("90s", json!({ "action": "FailJob" }), Some("with action FailJob"))]
    #[case::other_reason("auto", json!({ "onJobFailureReasons": ["BackoffLimitExceeded"] }), None)]
    fn rule_without_effect_on_stalls_gets_warning(
        #[case] after: &str,
        #[case] changes: Value,
        #[case] expected: Option<&str>,
    ) {
        let mut object = annotated(&[(STALL_AFTER, after)]);
        let rule = &mut object["spec"]["failurePolicy"]["rules"][0];
        rule["onJobFailureReasons"] = json!([PROGRESS_STALLED]);
        for (field, value) in changes.as_object().unwrap() {
            rule[field] = value.clone();
        }
        let warnings = warnings(&read(&object));
        let path = format!("spec.failurePolicy.rules[0].onJobFailureReasons: {PROGRESS_STALLED} has no effect ");
        let found: Vec<_> = warnings.iter().filter_map(|it| it.strip_prefix(&path)).collect();
        assert_eq!(found.len(), usize::from(expected.is_some()), "{warnings:?}");
        assert!(expected.is_none_or(|expected| found[0].starts_with(expected)), "{found:?}");
    }

    #[test]
    fn change_of_limit_gets_warning() {
        let of = |after: &[(&str, &str)]| read(&annotated(after));
        let [short, long, none] = [of(&[(STALL_AFTER, "90s")]), of(&[(STALL_AFTER, "120s")]), of(&[])];
        let expected = format!("metadata.annotations[{STALL_AFTER}]: agents do not learn of the change");
        let warned = |old, new| update_warnings(old, new).iter().any(|warning| warning.starts_with(&expected));
        assert_eq!([warned(&short, &long), warned(&none, &short)], [true, true]);
        assert_eq!([warned(&short, &short), warned(&short, &none)], [false, false]);
    }
}
