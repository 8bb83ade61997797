//! What admission decides about a request: which of the rules that it shares with the controller apply. Pure: a request
//! comes in, an object or errors go out.

use std::collections::BTreeMap;

use jobset_api::gates::Gates;
use jobset_api::injection::{self, Settings};
use jobset_api::validation::{self, Errors};
use jobset_api::{JobSet, JobSetLimits, JobSetSpec, RestartBudget, RestartStrategy, defaults, labels, restore};
use kube::core::ObjectMeta;
use kube::core::admission::Operation;

use crate::cluster::Cluster;
use crate::size;
use crate::wire::AdmissionRequest;

/// A JobSet before and after admission filled something in. What stays the same need be in neither.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    pub before: JobSet,
    pub after: JobSet,
}

/// The defaults of the JobSet, its agent and its budget of restarts, or `None` where there is nothing to fill in.
///
/// Fields are filled in on CREATE alone: a later release that fills in one more must not change objects that exist, least
/// of all in fields that are immutable. An UPDATE gets back what it leaves out of that.
pub fn mutate(request: AdmissionRequest<JobSet>, settings: &Settings) -> Option<Change> {
    reviewed(&request)?;
    let (operation, old) = (request.operation, request.old_object);
    let mut sent = request.object?.value;
    let (spec, budget) = match (operation, old.as_ref().map(|old| &old.value)) {
        (Operation::Update, Some(old)) => (restore::restore(old, &sent), RestartBudget::annotated(old)),
        (Operation::Create, _) => (filled_in(&mut sent, settings), Some(RestartBudget::default())),
        _ => return None,
    };
    // The API server sends metadata; what has none is refused for want of a name.
    let budget = budget.filter(|_| sent.metadata != ObjectMeta::default());
    let annotations = sent.metadata.annotations.take();
    let annotated = budget.and_then(|budget| with_budget(annotations.as_ref(), budget));
    if spec.is_none() && annotated.is_none() {
        return None;
    }
    // Of the rest of the metadata nothing would come but work.
    let of = |spec: Option<JobSetSpec>, annotations| JobSet {
        metadata: ObjectMeta { annotations, ..ObjectMeta::default() },
        spec: spec.unwrap_or_default(),
        ..JobSet::default()
    };
    let before = spec.is_some().then_some(sent.spec);
    let after = annotated.or_else(|| annotations.clone());
    Some(Change { before: of(before, annotations), after: of(spec, after) })
}

type Annotations = BTreeMap<String, String>;

/// The annotations with that of the budget, unless it is there, whatever it says.
fn with_budget(annotations: Option<&Annotations>, budget: RestartBudget) -> Option<Annotations> {
    if annotations.is_some_and(|annotations| annotations.contains_key(labels::RESTART_BUDGET)) {
        return None;
    }
    let mut annotations = annotations.cloned().unwrap_or_default();
    annotations.insert(labels::RESTART_BUDGET.to_owned(), budget.word().to_owned());
    Some(annotations)
}

/// The specification with its defaults and its agent, if that makes it another.
fn filled_in(jobset: &mut JobSet, settings: &Settings) -> Option<JobSetSpec> {
    if let Some(shape) = jobset.annotation(labels::INJECT_AGENT) {
        let mut spec = defaults::apply(&jobset.spec);
        // What stands against it, validation names together with all else that is wrong.
        if injection::inject(&mut spec, shape, &settings.of(jobset)).is_empty() {
            return Some(spec).filter(|spec| *spec != jobset.spec);
        }
    }
    // Containers and volumes, most of it, would be copied and compared for nothing.
    defaults::outline(&mut jobset.spec);
    Some(defaults::apply(&jobset.spec)).filter(|spec| *spec != jobset.spec)
}

/// What JobSets are admitted by, besides the rules.
#[derive(Clone, Debug, Default)]
pub struct Terms {
    pub gates: Gates,
    pub injection: Settings,
    pub cluster: Cluster,
    pub limits: JobSetLimits,
    /// Keys of topology domains for exclusive placement; empty for any.
    pub topology_keys: Vec<String>,
}

/// Everything that is wrong with the JobSet of the request.
///
/// What replaces an object that cannot be read is checked as if it were new.
pub fn validate(request: &AdmissionRequest<JobSet>, terms: &Terms) -> Errors {
    let Some(jobset) = reviewed(request) else { return Errors::default() };
    let gates = terms.gates;
    let old = request.old_object().filter(|_| request.operation == Operation::Update);
    let mut errors = match (&request.operation, old) {
        (Operation::Update, Some(old)) => validation::validate_update(old, jobset, gates),
        (Operation::Create, _) => {
            let mut errors = against_injection(jobset, &terms.injection);
            errors.append(validation::validate_create(jobset, gates));
            errors
        }
        _ => validation::validate_create(jobset, gates),
    };
    size::check(old, jobset, request.weight(), &terms.limits, &mut errors);
    validation::check_allowed_topology_keys(old, jobset, &terms.topology_keys, &mut errors);
    errors
}

/// Why the agent could not be injected. Where it was, it is there, and injecting it again changes nothing.
fn against_injection(jobset: &JobSet, settings: &Settings) -> Errors {
    let shape = jobset.annotation(labels::INJECT_AGENT);
    let inject = |shape| injection::inject(&mut jobset.spec.clone(), shape, &settings.of(jobset));
    shape.map(inject).unwrap_or_default()
}

/// What a person should look at although it is admitted.
pub fn warnings(request: &AdmissionRequest<JobSet>, terms: &Terms) -> Vec<String> {
    let Some(jobset) = reviewed(request) else { return Vec::new() };
    let old = request.old_object();
    let is_new = old.is_none_or(|old| old.spec != jobset.spec);
    let in_place = jobset.spec.restart_strategy() == RestartStrategy::InPlaceRestart;
    let lacks = terms.cluster.lacks().filter(|_| is_new && in_place);
    let lacks = lacks.map(|text| format!("spec.failurePolicy.restartStrategy: {text}"));
    let of_rules = old.map_or_else(|| validation::warnings(jobset), |old| validation::update_warnings(old, jobset));
    lacks.into_iter().chain(of_rules).collect()
}

/// The JobSet that rules look at, if any: not in deletions and in what concerns its status only, and not when it is
/// being deleted, so that nothing ever keeps one from going away.
fn reviewed(request: &AdmissionRequest<JobSet>) -> Option<&JobSet> {
    let writes = matches!(request.operation, Operation::Create | Operation::Update);
    let jobset = request.object().filter(|_| writes && request.is_whole())?;
    jobset.metadata.deletion_timestamp.is_none().then_some(jobset)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    /// A JobSet that breaks rules of in-place restart, and could be defaulted.
    fn bad() -> Value {
        json!({ "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": { "name": "train" }, "spec": {
            "failurePolicy": { "restartStrategy": "InPlaceRestart" },
            "replicatedJobs": [{ "name": "w", "template": { "spec": { "backoffLimit": 1, "podReplacementPolicy": "x" } } }] } })
    }

    fn request(operation: &str, object: &Value, old: &Value) -> AdmissionRequest<JobSet> {
        serde_json::from_value(json!({
            "uid": "u", "operation": operation, "userInfo": {}, "name": "train",
            "kind": { "group": "jobset.x-k8s.io", "version": "v1alpha2", "kind": "JobSet" },
            "resource": { "group": "jobset.x-k8s.io", "version": "v1alpha2", "resource": "jobsets" },
            "object": object, "oldObject": old,
        }))
        .unwrap()
    }

    fn with(pointer: &str, field: &str, value: Value) -> Value {
        let mut object = bad();
        object.pointer_mut(pointer).unwrap()[field] = value;
        object
    }

    #[rstest]
    #[case::created(request("CREATE", &bad(), &Value::Null), 6)]
    #[case::replaced_what_cannot_be_read(request("UPDATE", &bad(), &Value::Null), 6)]
    #[case::became_bad(request("UPDATE", &bad(), &with("/spec", "failurePolicy", json!({}))), 6)]
    #[case::was_bad(request("UPDATE", &bad(), &with("/spec", "suspend", json!(true))), 0)]
    #[case::resized(request("UPDATE", &with("/spec/replicatedJobs/0", "replicas", json!(-1)), &bad()), 1)]
    #[case::label_added(request("UPDATE", &with("/metadata", "labels", json!({ "a": "b" })), &bad()), 0)]
    #[case::being_deleted(request("UPDATE", &with("/metadata", "deletionTimestamp", json!("2026-01-01T00:00:00Z")), &Value::Null), 0)]
    #[case::deleted(request("DELETE", &Value::Null, &bad()), 0)]
    fn operations_decide_what_is_validated(#[case] request: AdmissionRequest<JobSet>, #[case] errors: usize) {
        assert_eq!(validate(&request, &Terms::default()).iter().count(), errors);
    }

    /// A JobSet with replicatedJobs of these sizes.
    fn sized(replicas: &[i32]) -> Value {
        let mut object = with("/spec", "failurePolicy", json!({}));
        let job = object["spec"]["replicatedJobs"][0].clone();
        let jobs = replicas.iter().enumerate().map(|(index, replicas)| {
            let mut job = job.clone();
            (job["name"], job["replicas"]) = (json!(format!("w{index}")), json!(replicas));
            job
        });
        object["spec"]["replicatedJobs"] = jobs.collect();
        object
    }

    #[rstest]
    #[case::created(request("CREATE", &sized(&[6]), &Value::Null), true)]
    #[case::replaced_what_cannot_be_read(request("UPDATE", &sized(&[6]), &Value::Null), true)]
    #[case::grown(request("UPDATE", &sized(&[6]), &sized(&[5])), true)]
    #[case::unchanged(request("UPDATE", &sized(&[7]), &sized(&[7])), false)]
    fn limits_apply_to_what_grows(#[case] request: AdmissionRequest<JobSet>, #[case] is_rejected: bool) {
        let limits = JobSetLimits { jobs: 5, pods: 5, memory: 1 << 10 };
        let is_rejected_by = |limits: JobSetLimits, flag: &str| {
            let errors = validate(&request, &Terms { limits, ..Terms::default() });
            errors.iter().any(|error| error.message.contains(flag))
        };
        for flag in ["--max-jobs-per-jobset", "--max-pods-per-jobset", "--max-memory-per-jobset"] {
            // The weight does not grow with the numbers.
            let expected = is_rejected && (request.old_object.is_none() || !flag.contains("memory"));
            assert_eq!(is_rejected_by(limits, flag), expected, "{flag}");
            assert!(!is_rejected_by(JobSetLimits::NONE, flag));
        }
    }

    /// A JobSet that is admitted with a warning.
    fn doubtful() -> Value {
        let mut object = with("/spec", "failurePolicy", json!({}));
        object["metadata"]["annotations"] = json!({ "jobset.sigs.k8s.io/inject-agent": "Sidecar" });
        object
    }

    /// The same with a misspelt annotation, another reason for a warning.
    fn misspelt(mut object: Value) -> Value {
        object["metadata"]["annotations"]["jobset.sigs.k8s.io/additional-restart"] = json!("5");
        object
    }

    fn labelled(mut object: Value) -> Value {
        object["metadata"]["labels"] = json!({ "a": "b" });
        object
    }

    #[rstest]
    #[case::created(request("CREATE", &doubtful(), &Value::Null), 1)]
    #[case::nothing_new(request("UPDATE", &doubtful(), &doubtful()), 0)]
    #[case::changed(request("UPDATE", &doubtful(), &bad()), 1)]
    #[case::annotated(request("UPDATE", &misspelt(doubtful()), &doubtful()), 1)]
    #[case::annotated_before(request("UPDATE", &labelled(misspelt(doubtful())), &misspelt(doubtful())), 0)]
    #[case::deleted(request("DELETE", &Value::Null, &doubtful()), 0)]
    fn a_warning_is_given_when_there_is_something_new(
        #[case] request: AdmissionRequest<JobSet>,
        #[case] expected: usize,
    ) {
        assert_eq!(warnings(&request, &Terms::default()).len(), expected);
    }

    #[test]
    fn in_place_jobset_on_old_cluster_gets_warning() {
        let terms = Terms { cluster: Cluster::lacking("the API server is old"), ..Terms::default() };
        let of = |object: &Value| warnings(&request("CREATE", object, &Value::Null), &terms);
        assert!(of(&bad())[0].ends_with("restartStrategy: the API server is old"), "{:?}", of(&bad()));
        assert_eq!(of(&with("/spec", "failurePolicy", json!({}))), Vec::<String>::new());
    }

    #[test]
    fn a_status_update_is_not_validated() {
        let mut request = request("UPDATE", &bad(), &Value::Null);
        request.sub_resource = Some("status".to_owned());
        assert!(validate(&request, &Terms::default()).is_empty());
    }

    fn mutated(request: AdmissionRequest<JobSet>) -> Option<Change> {
        mutate(request, &Settings::default())
    }

    #[test]
    fn defaults_are_for_creation_alone() {
        assert!(mutated(request("CREATE", &bad(), &Value::Null)).is_some());
        assert!(mutated(request("UPDATE", &bad(), &bad())).is_none());
        assert!(mutated(request("UPDATE", &bad(), &Value::Null)).is_none());
        let Change { before, after } = mutated(request("CREATE", &bad(), &Value::Null)).unwrap();
        assert_eq!((before.spec.network, after.spec.network.is_some()), (None, true));
        assert!(mutated(request("CREATE", &budgeted(defaulted(), "Separate"), &Value::Null)).is_none());
    }

    /// With the annotation of this budget.
    fn budgeted(mut object: Value, word: &str) -> Value {
        object["metadata"]["annotations"] = json!({ (labels::RESTART_BUDGET): word, "mine": "" });
        object
    }

    #[test]
    fn budget_left_out_is_shared_and_stays_in_updates() {
        let annotations = |change: Change| change.after.metadata.annotations.unwrap_or_default();
        let created = mutated(request("CREATE", &defaulted(), &Value::Null)).unwrap();
        assert_eq!(created.before.spec, created.after.spec);
        assert_eq!(json!(annotations(created)), json!({ (labels::RESTART_BUDGET): "Shared" }));

        let mut sent = defaulted();
        sent["metadata"]["annotations"] = json!({ "mine": "" });
        for word in ["Shared", "Separate"] {
            let stored = budgeted(defaulted(), word);
            let updated = mutated(request("UPDATE", &sent, &stored)).unwrap();
            assert_eq!(json!(annotations(updated)), stored["metadata"]["annotations"]);
            // Validation refuses a change; nobody's wish is overwritten in silence.
            let other = budgeted(defaulted(), "other");
            assert_eq!(mutated(request("UPDATE", &other, &stored)), None);
        }
        // One that is older gets its budget from the controller, which knows how it is counted.
        assert_eq!(mutated(request("UPDATE", &sent, &sent)), None);
        assert_eq!(mutated(request("UPDATE", &sent, &budgeted(defaulted(), "other"))), None);
    }

    fn defaulted() -> Value {
        let spec = defaults::apply(&serde_json::from_value(bad()["spec"].clone()).unwrap());
        with("", "spec", serde_json::to_value(spec).unwrap())
    }

    #[test]
    fn an_update_gets_back_the_defaults_that_it_leaves_out() {
        let stored = mutated(request("UPDATE", &bad(), &defaulted())).unwrap().after;
        assert_eq!(serde_json::to_value(&stored).unwrap()["spec"], defaulted()["spec"]);
        let leaving = with("/metadata", "deletionTimestamp", json!("2026-01-01T00:00:00Z"));
        assert!(mutated(request("UPDATE", &leaving, &defaulted())).is_none());
    }

    #[test]
    fn an_injection_that_cannot_be_carried_out_is_refused() {
        let mut asked = with("/metadata", "annotations", json!({ (labels::INJECT_AGENT): "Sidecar" }));
        let pod = json!({ "containers": [{ "name": "worker", "image": "worker" }] });
        asked["spec"]["replicatedJobs"][0]["template"]["spec"]["template"] = json!({ "spec": pod });
        let creation = || request("CREATE", &asked, &Value::Null);
        let without = Settings::default();
        assert!(mutate(creation(), &without).is_some(), "the defaults, so that nothing is refused for want of them");
        let errors = validate(&creation(), &Terms::default()).to_string();
        assert!(errors.contains("start the webhook with --agent-image"), "{errors}");
        assert!(errors.contains("backoffLimit: Invalid value: 1"), "and all else that is wrong: {errors}");
        let settings = Settings { agent_image: Some("agent:1".to_owned()), ..Settings::default() };
        let injected = mutate(creation(), &settings).unwrap().after;
        let pod = injected.spec.replicated_jobs[0].template.spec.template.spec.as_ref().unwrap();
        assert_eq!(pod.init_containers.as_ref().unwrap()[0].image.as_deref(), Some("agent:1"));
    }
}
