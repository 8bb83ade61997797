//! What the API server refuses in the specification of a Job, by `pkg/apis/batch/validation/validation.go` of Kubernetes 1.36.
//!
//! Negative `parallelism` and `completions` are the matter of [`super::super::replicated_jobs`], and what `InPlaceRestart`
//! requires that of [`super::super::in_place`].

use std::collections::HashSet;

use k8s_openapi::api::batch::v1::{PodFailurePolicyOnPodConditionsPattern, SuccessPolicyRule};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};

use super::super::managed_by;
use super::metadata::is_set_by_job_controller;
use super::row::{
    Found, Row, apply, apply_each, at_most, between, doubtful, forbidden, formed, invalid, missing, not_negative,
    one_of,
};
use crate::field::{Errors, Path};
use crate::{JobTemplateSpec, PodFailurePolicy, PodFailurePolicyRule, syntax};

const INDEXED: &str = "Indexed";
/// Maximum `parallelism` and `maxFailedIndexes` of an Indexed Job.
const INDEXES: i32 = 100_000;
/// Value of `managedBy` for the Job controller of Kubernetes.
const JOB_CONTROLLER: &str = "kubernetes.io/job-controller";
const NEEDS_INDEXES: &str = "must not be set without completionMode Indexed";
const SELECTOR: &str = "must not be set: Kubernetes generates the selector of each Job";

const JOB: &[Row<JobTemplateSpec>] = &[
    not_negative("activeDeadlineSeconds", |job| job.active_deadline_seconds),
    not_negative("backoffLimit", |job| job.backoff_limit.map(i64::from)),
    not_negative("backoffLimitPerIndex", |job| job.backoff_limit_per_index.map(i64::from)),
    between(
        "maxFailedIndexes",
        |job| job.max_failed_indexes.map(i64::from),
        (0, INDEXES as i64),
        "must be 0 to 100000",
    ),
    one_of("completionMode", |job| job.completion_mode.as_deref(), &[INDEXED, "NonIndexed"]),
    invalid(
        "parallelism",
        |job| job.parallelism.filter(|pods| is_indexed(job) && *pods > INDEXES).map(Value::from),
        "must be at most 100000 with completionMode Indexed",
    ),
    invalid(
        "maxFailedIndexes",
        |job| {
            job.max_failed_indexes
                .filter(|failed| is_indexed(job) && job.completions.is_some_and(|all| *failed > all))
                .map(Value::from)
        },
        "must be at most completions",
    ),
    invalid(
        "backoffLimitPerIndex",
        |job| job.backoff_limit_per_index.filter(|_| has_no_indexes(job)).map(Value::from),
        NEEDS_INDEXES,
    ),
    invalid(
        "maxFailedIndexes",
        |job| job.max_failed_indexes.filter(|_| has_no_indexes(job)).map(Value::from),
        NEEDS_INDEXES,
    ),
    forbidden("selector", |job| !is_manual(job) && job.selector.as_ref().is_some_and(selects_own_labels), SELECTOR),
    missing(
        "selector",
        |job| is_manual(job) && job.selector.is_none(),
        "must be set with manualSelector: remove both, and Kubernetes generates the selector of each Job",
    ),
    invalid(
        "selector",
        |job| job.selector.as_ref().filter(|it| is_manual(job) && misses_pods(job, it)).map(|it| json!(it)),
        "must select labels of the Pod template: remove it and manualSelector, and Kubernetes generates the selector of each Job",
    ),
    formed("managedBy", |job| job.managed_by.as_deref(), managed_by::is_controller_name, managed_by::FORM),
    doubtful(
        "managedBy",
        |job| job.managed_by.as_deref().is_some_and(|name| name != JOB_CONTROLLER),
        "the Job controller of Kubernetes ignores these Jobs: no Pod starts unless another controller creates it. \
         spec.managedBy of the JobSet hands over the whole JobSet",
    ),
    at_most(
        "podFailurePolicy.rules",
        |job| job.pod_failure_policy.as_ref().map_or(0, |policy| policy.rules.len()),
        20,
        "must have at most 20 items, as Kubernetes allows",
    ),
    forbidden("successPolicy", |job| job.success_policy.is_some() && has_no_indexes(job), NEEDS_INDEXES),
    missing(
        "successPolicy.rules",
        |job| success_rules(job).is_some_and(<[_]>::is_empty),
        "must have a rule: remove successPolicy if there is none",
    ),
    at_most(
        "successPolicy.rules",
        |job| success_rules(job).map_or(0, <[_]>::len),
        20,
        "must have at most 20 items, as Kubernetes allows",
    ),
    missing(
        "template.spec.containers",
        |job| job.template.spec.as_ref().is_none_or(|pod| pod.containers.is_empty()),
        "must have a container",
    ),
];

/// The rows of Jobs that restart by recreation. In place, another rule requires more of these fields, and the controller sets
/// `backoffLimitPerIndex`.
const RECREATED: &[Row<JobTemplateSpec>] = &[
    missing(
        "completions",
        |job| is_indexed(job) && job.completions.is_none() && job.parallelism.is_some(),
        "must be set beside parallelism with completionMode Indexed, which is the default: set both to the number of Pods",
    ),
    missing(
        "backoffLimitPerIndex",
        |job| is_indexed(job) && job.max_failed_indexes.is_some() && job.backoff_limit_per_index.is_none(),
        "must be set beside maxFailedIndexes",
    ),
    one_of("podReplacementPolicy", |job| job.pod_replacement_policy.as_deref(), &["Failed", "TerminatingOrFailed"]),
    invalid(
        "podReplacementPolicy",
        |job| {
            job.pod_replacement_policy
                .as_ref()
                .filter(|it| job.pod_failure_policy.is_some() && *it == "TerminatingOrFailed")
                .map(|it| json!(it))
        },
        "must be \"Failed\" beside podFailurePolicy",
    ),
    one_of("template.spec.restartPolicy", restart_policy, &["OnFailure", "Never"]),
    invalid(
        "template.spec.restartPolicy",
        |job| restart_policy(job).filter(|it| job.pod_failure_policy.is_some() && *it == "OnFailure").map(Value::from),
        "must be \"Never\" beside podFailurePolicy, which looks at failed Pods",
    ),
];

const FAILURE_RULE: &[Row<PodFailurePolicyRule>] = &[
    missing("action", |rule| rule.action.is_empty(), "must be FailJob, FailIndex, Ignore or Count"),
    one_of("action", |rule| Some(&rule.action), &["Count", FAIL_INDEX, "FailJob", "Ignore"]),
    missing(
        "onExitCodes",
        |rule| rule.on_exit_codes.is_none() && conditions(rule).is_empty(),
        "must be set, or onPodConditions in place of it",
    ),
    forbidden(
        "onPodConditions",
        |rule| rule.on_exit_codes.is_some() && !conditions(rule).is_empty(),
        "must not be set beside onExitCodes: write two rules",
    ),
    at_most("onPodConditions", |rule| conditions(rule).len(), 20, "must have at most 20 items, as Kubernetes allows"),
    missing(
        "onExitCodes.operator",
        |rule| rule.on_exit_codes.as_ref().is_some_and(|codes| codes.operator.is_empty()),
        "must be In or NotIn",
    ),
    one_of(
        "onExitCodes.operator",
        |rule| rule.on_exit_codes.as_ref().map(|codes| codes.operator.as_str()),
        &["In", "NotIn"],
    ),
    missing(
        "onExitCodes.values",
        |rule| rule.on_exit_codes.as_ref().is_some_and(|codes| codes.values.is_empty()),
        "must have an exit code",
    ),
    at_most("onExitCodes.values", |rule| codes(rule).len(), 255, "must have at most 255 items, as Kubernetes allows"),
    invalid(
        "onExitCodes.values",
        |rule| (!codes(rule).is_sorted_by(|one, next| one < next)).then(|| json!(codes(rule))),
        "must be in ascending order, and each of them once",
    ),
    invalid(
        "onExitCodes.values",
        |rule| {
            let is_in = rule.on_exit_codes.as_ref().is_some_and(|codes| codes.operator == "In");
            (is_in && codes(rule).contains(&0)).then(|| json!(codes(rule)))
        },
        "must not have 0 with the operator In: a rule is for failures",
    ),
];

const FAIL_INDEX: &str = "FailIndex";

const CONDITION: &[Row<PodFailurePolicyOnPodConditionsPattern>] = &[
    missing("type", |pattern| pattern.type_.is_empty(), "must be the type of a condition of Pods"),
    formed("type", |pattern| Some(&pattern.type_), syntax::is_label_key, "must be the type of a condition of Pods"),
    one_of("status", |pattern| pattern.status.as_deref(), &["True", "False", "Unknown"]),
];

const SUCCESS_RULE: &[Row<SuccessPolicyRule>] = &[
    missing(
        "succeededCount",
        |rule| rule.succeeded_count.is_none() && rule.succeeded_indexes.is_none(),
        "must be set, or succeededIndexes",
    ),
    not_negative("succeededCount", |rule| rule.succeeded_count.map(i64::from)),
];

/// The specification of a Job, without its Pods. `is_recreated` unless the JobSet restarts in place.
pub(super) fn look(job: &JobTemplateSpec, is_recreated: bool, path: &Path<'_>, found: &mut Found<'_>) {
    apply(JOB, job, path, found);
    if is_recreated {
        apply(RECREATED, job, path, found);
    }
    if let Some(policy) = &job.pod_failure_policy {
        let list = path.child("podFailurePolicy.rules");
        apply_each(FAILURE_RULE, Some(&policy.rules), &list, found);
        for (index, rule) in policy.rules.iter().enumerate() {
            apply_each(CONDITION, Some(conditions(rule)), &list.index(index).child("onPodConditions"), found);
        }
        if let Found::Errors(errors) = found {
            failure_rules(job, policy, is_recreated, &list, errors);
        }
    }
    if let Some(rules) = success_rules(job).filter(|_| is_indexed(job)) {
        let list = path.child("successPolicy.rules");
        apply_each(SUCCESS_RULE, Some(rules), &list, found);
        for (index, rule) in rules.iter().enumerate() {
            if let (Found::Errors(errors), Some(count), Some(all)) =
                (&mut *found, rule.succeeded_count, job.completions)
                && count > all
            {
                errors.invalid(&list.index(index).child("succeededCount"), count, "must be at most completions");
            }
        }
    }
}

/// What a rule says of other parts of the Job.
fn failure_rules(
    job: &JobTemplateSpec,
    policy: &PodFailurePolicy,
    is_recreated: bool,
    list: &Path<'_>,
    errors: &mut Errors,
) {
    let pod = job.template.spec.as_ref();
    let init = pod.and_then(|pod| pod.init_containers.as_deref()).unwrap_or_default();
    let containers = pod.iter().flat_map(|pod| &pod.containers).chain(init);
    let names: HashSet<&str> = containers.map(|container| container.name.as_str()).collect();
    for (index, rule) in policy.rules.iter().enumerate() {
        let path = list.index(index);
        if is_recreated && rule.action == FAIL_INDEX && job.backoff_limit_per_index.is_none() {
            let required = "requires backoffLimitPerIndex: set it, or use another action";
            errors.invalid(&path.child("action"), &rule.action, required);
        }
        let name = rule.on_exit_codes.as_ref().and_then(|codes| codes.container_name.as_deref());
        if let Some(name) = name.filter(|name| !names.contains(name)) {
            errors.not_found(
                &path.child("onExitCodes.containerName"),
                name,
                "must be the name of a container of the Pod",
            );
        }
    }
}

fn is_indexed(job: &JobTemplateSpec) -> bool {
    job.completion_mode.as_deref() == Some(INDEXED)
}

/// A mode that does not exist is an error of its own.
fn has_no_indexes(job: &JobTemplateSpec) -> bool {
    matches!(job.completion_mode.as_deref().unwrap_or_default(), "" | "NonIndexed")
}

fn is_manual(job: &JobTemplateSpec) -> bool {
    job.manual_selector == Some(true)
}

fn restart_policy(job: &JobTemplateSpec) -> Option<&str> {
    job.template.spec.as_ref()?.restart_policy.as_deref()
}

fn success_rules(job: &JobTemplateSpec) -> Option<&[SuccessPolicyRule]> {
    job.success_policy.as_ref().map(|policy| policy.rules.as_slice())
}

fn conditions(rule: &PodFailurePolicyRule) -> &[PodFailurePolicyOnPodConditionsPattern] {
    rule.on_pod_conditions.as_deref().unwrap_or_default()
}

fn codes(rule: &PodFailurePolicyRule) -> &[i32] {
    rule.on_exit_codes.as_ref().map_or(&[], |codes| &codes.values)
}

/// Whether the selector asks for a label that Kubernetes does not generate. It refuses such a selector without `manualSelector`.
fn selects_own_labels(selector: &LabelSelector) -> bool {
    let mut expressions = selector.match_expressions.iter().flatten();
    selector.match_labels.iter().flatten().any(|(key, _)| !is_set_by_job_controller(key))
        || expressions.any(|it| matches!(it.operator.as_str(), "In" | "Exists") && !is_set_by_job_controller(&it.key))
}

/// Whether the selector asks for a label that no Pod of the template has. The controller adds labels of its own.
fn misses_pods(job: &JobTemplateSpec, selector: &LabelSelector) -> bool {
    let given = job.template.metadata.as_ref().and_then(|metadata| metadata.labels.as_ref());
    let is_ours = |key: &str| key.starts_with("jobset.sigs.k8s.io/") || key.starts_with("alpha.jobset.sigs.k8s.io/");
    let has = |key: &String, value: &String| given.and_then(|labels| labels.get(key)) == Some(value);
    selector.match_labels.iter().flatten().any(|(key, value)| !is_ours(key) && !has(key, value))
}
