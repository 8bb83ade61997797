//! Restores what admission added at creation and an update omits.
//!
//! A user who applies the original manifest again omits the defaults and the agent that admission added. A JSON merge
//! patch replaces whole lists, so this affects containers and rules. The user does not want to change them, and
//! validation would reject the change of immutable fields.
//!
//! The values come from the stored object, not from today's defaults: a changed default or another agent image does not
//! change an existing JobSet. What is not stored is not added.

mod agents;
mod reasons;

use serde_json::{Map, Value};

use self::agents::Stored;
use crate::injection::wrapping;
use crate::{JobSet, JobSetSpec, JobTemplateSpec, defaults, entries};

/// The specification of `sent`, with values that admission added restored from `old`. `None` if nothing is missing.
pub fn restore(old: &JobSet, sent: &JobSet) -> Option<JobSetSpec> {
    if sent.spec == old.spec {
        return None;
    }
    let stored = old.spec.replicated_jobs.iter().map(|job| (job.name.as_str(), &job.template.spec)).collect();
    let mut full = defaults::apply(&sent.spec);
    let resized = resized(&sent.spec, &full, &stored);
    agents::inject(&mut full, &stored);
    reasons::name(&mut full, &stored);
    if full == sent.spec {
        return None;
    }
    let json = |spec: &JobSetSpec| serde_json::to_value(spec).ok();
    let restored = complete(Some(json(&resized)?), &json(&full)?, &json(&old.spec)?)?;
    serde_json::from_value(restored).ok().filter(|restored| *restored != sent.spec)
}

/// The sent specification, with `parallelism` and `completions` made equal if only one of them is sent. A manifest that
/// omitted one of them at creation got it by default, so the other one resizes both.
///
/// If both are sent and only one has changed, validation requires to change both. A server-side apply of one field
/// sends the stored value of the other one, and it looks the same as a value that a user forgot to change.
fn resized(sent: &JobSetSpec, full: &JobSetSpec, stored: &Stored<'_>) -> JobSetSpec {
    let mut resized = sent.clone();
    for (job, full) in resized.replicated_jobs.iter_mut().zip(&full.replicated_jobs) {
        let is_even = |old: &&JobTemplateSpec| old.parallelism.is_some() && old.parallelism == old.completions;
        if stored.get(job.name.as_str()).is_some_and(is_even) {
            let (job, full) = (&mut job.template.spec, &full.template.spec);
            (job.parallelism, job.completions) = (full.parallelism, full.completions);
        }
    }
    resized
}

/// The sent value. What is only in `full` is added with its value in `old`.
fn complete(sent: Option<Value>, full: &Value, old: &Value) -> Option<Value> {
    if sent.as_ref() == Some(full) {
        return sent;
    }
    match (sent, full, old) {
        (Some(Value::Object(sent)), Value::Object(full), Value::Object(old)) => {
            Some(Value::Object(object(sent, full, old)))
        }
        (Some(Value::Array(sent)), Value::Array(full), Value::Array(old)) => Some(Value::Array(list(sent, full, old))),
        // The whole value is omitted: only what admission adds comes back.
        (None, Value::Object(full), Value::Object(old)) => {
            Some(object(Map::new(), full, old)).filter(|it| !it.is_empty() || old.is_empty()).map(Value::Object)
        }
        (None, Value::Array(full), Value::Array(old)) => {
            Some(list(Vec::new(), full, old)).filter(|it| !it.is_empty()).map(Value::Array)
        }
        (None, _, old) => Some(old.clone()),
        (Some(Value::String(sent)), Value::String(_), Value::String(old)) if sent.is_empty() => {
            Some(Value::String(old.clone()))
        }
        (sent, ..) => sent,
    }
}

fn object(mut sent: Map<String, Value>, full: &Map<String, Value>, old: &Map<String, Value>) -> Map<String, Value> {
    for (key, full) in full {
        let Some(old) = old.get(key) else { continue };
        if let Some(value) = complete(sent.remove(key), full, old) {
            sent.insert(key.clone(), value);
        }
    }
    sent
}

fn list(sent: Vec<Value>, full: &[Value], old: &[Value]) -> Vec<Value> {
    if sent.is_empty() && !full.iter().all(entries::has_key) {
        return old.to_vec();
    }
    let Some(places) = entries::places(&sent, full) else {
        return if sent.len() == full.len() && full.len() == old.len() && full.iter().all(Value::is_object) {
            // Admission names these entries, such as the rules of the failure policy.
            sent.into_iter()
                .zip(full)
                .zip(old)
                .filter_map(|((sent, full), old)| complete(Some(sent), full, old))
                .collect()
        } else {
            command(sent, full, old)
        };
    };
    let stored = entries::counterparts(full, old);
    let mut is_added = vec![true; full.len()];
    let kept = sent.into_iter().zip(places).filter_map(|(entry, place)| {
        is_added[place] = false;
        match stored[place] {
            Some(stored) => complete(Some(entry), &full[place], &old[stored]),
            None => Some(entry),
        }
    });
    let kept: Vec<Value> = kept.collect();
    // Entries that admission added come back with their stored value, at their stored index.
    let added = stored.into_iter().zip(is_added).filter_map(|(stored, is_added)| stored.filter(|_| is_added));
    let mut added: Vec<usize> = added.collect();
    added.sort_unstable();
    let (mut kept, mut restored) = (kept.into_iter(), Vec::with_capacity(full.len()));
    for place in added {
        let before = place.saturating_sub(restored.len());
        restored.extend(kept.by_ref().take(before));
        restored.push(old[place].clone());
    }
    restored.extend(kept);
    restored
}

/// Adds the stored supervisor in front of the worker's command.
fn command(sent: Vec<Value>, full: &[Value], old: &[Value]) -> Vec<Value> {
    let texts =
        |list: &[Value]| -> Option<Vec<String>> { list.iter().map(|word| word.as_str().map(str::to_owned)).collect() };
    let wrapping_of = |list: &[Value]| Some(wrapping(&texts(list)?)?.0.len());
    match (wrapping_of(&sent), wrapping_of(full), wrapping_of(old)) {
        (None, Some(_), Some(length)) => old[..length].iter().cloned().chain(sent).collect(),
        _ => sent,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::injection::tests::{pods, settings};
    use crate::{injection, labels};

    pub(super) fn read(object: &Value) -> JobSet {
        serde_json::from_value(object.clone()).unwrap()
    }

    /// The JobSet after admission of its creation.
    fn admitted(sent: &JobSet, settings: &injection::Settings) -> JobSet {
        let mut spec = defaults::apply(&sent.spec);
        if let Some(value) = sent.metadata.annotations.as_ref().and_then(|it| it.get(labels::INJECT_AGENT)) {
            injection::inject(&mut spec, value, settings);
        }
        JobSet { spec, ..sent.clone() }
    }

    /// The specification after admission of an update.
    pub(super) fn updated(old: &JobSet, sent: &JobSet) -> Value {
        serde_json::to_value(restore(old, sent).unwrap_or_else(|| sent.spec.clone())).unwrap()
    }

    fn manifest(shape: &str, pod: &Value) -> Value {
        json!({
            "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
            "metadata": { "name": "train", "annotations": { (labels::INJECT_AGENT): shape } },
            "spec": {
                "failurePolicy": { "restartStrategy": "InPlaceRestart", "rules": [
                    { "action": "FailJobSet" }, { "action": "RestartJobSet", "name": "mine" }] },
                "volumeClaimPolicies": [{}],
                "replicatedJobs": [{ "name": "w", "template": { "spec": { "parallelism": 2, "template": { "spec": pod } } } }],
            },
        })
    }

    fn plain() -> Value {
        json!({
            "initContainers": [{ "name": "setup", "image": "setup:1" }],
            "containers": [{ "name": "worker", "image": "worker:1", "command": ["run", "all"], "ports": [{ "containerPort": 8080 }] }],
        })
    }

    /// The stored JobSet, and the manifest that was sent.
    pub(super) fn stored(shape: &str) -> (Value, Value) {
        let sent = manifest(shape, &plain());
        (serde_json::to_value(admitted(&read(&sent), &settings())).unwrap(), sent)
    }

    pub(super) fn with(object: &Value, pointer: &str, value: Value) -> Value {
        let mut object = object.clone();
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        match (object.pointer_mut(parent).unwrap(), value) {
            (Value::Object(parent), Value::Null) => drop(parent.remove(field)),
            (parent, value) => match field.parse::<usize>() {
                Ok(index) => parent[index] = value,
                Err(_) => parent[field] = value,
            },
        }
        object
    }

    pub(super) const JOB: &str = "/spec/replicatedJobs/0/template/spec";
    const INIT: &str = "/spec/replicatedJobs/0/template/spec/template/spec/initContainers";
    const WORKER: &str = "/spec/replicatedJobs/0/template/spec/template/spec/containers/0";

    #[rstest]
    #[case::a_policy("/spec/startupPolicy", json!({ "startupPolicyOrder": "InOrder" }))]
    #[case::a_number(&format!("{JOB}/backoffLimit"), json!(7))]
    #[case::a_word(&format!("{JOB}/completionMode"), json!("NonIndexed"))]
    #[case::the_name_of_a_rule("/spec/failurePolicy/rules/0/name", json!("ruleOfAnotherRelease"))]
    #[case::the_image_of_the_agent(&format!("{INIT}/0/image"), json!("jobset-agent:0"))]
    #[case::its_rules(&format!("{INIT}/0/restartPolicyRules"), json!([]))]
    #[case::a_rule_of_the_worker(&format!("{WORKER}/restartPolicyRules/0/exitCodes/values"), json!([0, 3]))]
    #[case::no_resources(&format!("{INIT}/0/resources"), Value::Null)]
    #[case::no_default(&format!("{JOB}/backoffLimit"), Value::Null)]
    #[case::no_epoch(&format!("{WORKER}/env"), Value::Null)]
    fn restore_omitted_value_takes_stored_value(#[case] pointer: &str, #[case] value: Value) {
        let (stored, sent) = stored("Sidecar");
        let old = with(&stored, pointer, value);
        assert_eq!(updated(&read(&old), &read(&sent)), old["spec"]);
    }

    #[rstest]
    fn restore_keeps_stored_relay_and_adds_none(
        #[values("Sidecar", "Supervisor")] shape: &str,
        #[values(None, Some("relay.example:9443"))] relay: Option<&str>,
    ) {
        let sent = read(&manifest(shape, &plain()));
        let settings = injection::Settings { relay: relay.map(str::to_owned), ..settings() };
        let old = admitted(&sent, &settings);
        let uses_relay = |spec: &JobSetSpec| {
            spec.replicated_jobs[0].template.spec.template.spec.as_ref().is_some_and(crate::agent::uses_relay)
        };
        assert_eq!(uses_relay(&old.spec), relay.is_some());
        assert_eq!(restore(&old, &sent), Some(old.spec));
    }

    #[test]
    fn restore_supervisor_keeps_stored_path_of_program() {
        let (stored, sent) = stored("Supervisor");
        let command = |words: &[&str]| json!(words);
        let elsewhere = command(&["/agent/jobset-agent", "supervise", "--", "run", "all"]);
        let old = with(&stored, &format!("{WORKER}/command"), elsewhere);
        assert_eq!(updated(&read(&old), &read(&sent)), old["spec"]);
        // A change by the user is kept, so that validation reports it.
        let sent = with(&sent, &format!("{WORKER}/command"), command(&["run", "none"]));
        let expected = command(&["/agent/jobset-agent", "supervise", "--", "run", "none"]);
        let expected = with(&old, &format!("{WORKER}/command"), expected);
        assert_eq!(updated(&read(&old), &read(&sent)), expected["spec"]);
    }

    #[rstest]
    #[case::suspend("/spec/suspend", json!(true))]
    #[case::a_size(&format!("{JOB}/parallelism"), json!(4))]
    #[case::a_default(&format!("{JOB}/backoffLimit"), json!(1))]
    #[case::the_image_of_a_worker(&format!("{WORKER}/image"), json!("worker:2"))]
    #[case::the_image_of_the_agent(INIT, json!([{ "name": "jobset-agent", "image": "mine" }, { "name": "setup", "image": "setup:1" }]))]
    #[case::an_init_container_less(INIT, Value::Null)]
    #[case::a_selector("/spec/replicatedJobs/0/template/spec/template/spec/nodeSelector", json!({ "a": "b" }))]
    fn restore_keeps_sent_values(#[case] pointer: &str, #[case] value: Value) {
        let (old, sent) = stored("Sidecar");
        let sent = with(&sent, pointer, value.clone());
        let updated = json!({ "spec": updated(&read(&old), &read(&sent)) });
        assert!(keeps(&sent["spec"], &updated["spec"]), "{updated:#}");
        if pointer == INIT && value.is_null() {
            let names: Vec<_> =
                updated.pointer(INIT).unwrap().as_array().unwrap().iter().map(|it| &it["name"]).collect();
            assert_eq!(names, ["jobset-agent"], "an init container that the user removed is not restored");
        }
    }

    #[rstest]
    #[case::to_none(Value::Null, Value::Null)]
    #[case::to_the_other(json!("Supervisor"), json!("Supervisor"))]
    #[case::to_unknown_shape(json!("?"), Value::Null)]
    #[case::back(json!("Supervisor"), json!("Sidecar"))]
    fn restore_with_changed_annotation_takes_stored_agent(#[case] stored_now: Value, #[case] sent_now: Value) {
        let (old, sent) = stored("Sidecar");
        let annotated = |object: &Value, value: Value| {
            let value = if value.is_null() { json!({}) } else { json!({ (labels::INJECT_AGENT): value }) };
            with(object, "/metadata/annotations", value)
        };
        let (old, sent) = (annotated(&old, stored_now), annotated(&sent, sent_now));
        assert_eq!(updated(&read(&old), &read(&sent)), old["spec"]);
    }

    #[rstest]
    #[case::parallelism(json!([3, null]), json!([2, 2]), json!([3, 3]))]
    #[case::completions(json!([null, 3]), json!([2, 2]), json!([3, 3]))]
    #[case::as_it_is(json!([2, null]), json!([2, 2]), json!([2, 2]))]
    #[case::one_of_two(json!([3, 2]), json!([2, 2]), json!([3, 2]))]
    #[case::not_elastic(json!([3, null]), json!([2, 4]), json!([3, 4]))]
    fn restore_resize_by_one_number_sets_both(#[case] numbers: Value, #[case] before: Value, #[case] after: Value) {
        let sized = |object: &Value, numbers: &Value| {
            let object = with(object, &format!("{JOB}/parallelism"), numbers[0].clone());
            with(&object, &format!("{JOB}/completions"), numbers[1].clone())
        };
        let (stored, sent) = stored("Sidecar");
        let (old, sent) = (sized(&stored, &before), sized(&sent, &numbers));
        assert_eq!(updated(&read(&old), &read(&sent)), sized(&stored, &after)["spec"]);
    }

    #[rstest]
    #[case::of_the_agent(&format!("{INIT}/0"))]
    #[case::of_the_worker(WORKER)]
    fn restore_fields_unknown_to_old_clients(#[case] container: &str) {
        let (old, _) = stored("Sidecar");
        let sent = with(&old, &format!("{WORKER}/env/0/valueFrom"), json!({}));
        let sent = with(&sent, &format!("{container}/restartPolicyRules"), Value::Null);
        assert_eq!(updated(&read(&old), &read(&sent)), old["spec"]);
    }

    /// A quadratic lookup of the entries would take minutes.
    #[test]
    fn restore_long_lists_finishes() {
        let env: Vec<_> = (0..20_000).map(|number| json!({ "name": format!("V{number}"), "value": "" })).collect();
        let sent = read(&with(&manifest("Sidecar", &plain()), &format!("{WORKER}/env"), json!(env)));
        let old = admitted(&sent, &settings());
        assert_eq!(restore(&old, &sent), Some(old.spec));
    }

    fn keeps(sent: &Value, now: &Value) -> bool {
        match (sent, now) {
            (Value::Object(sent), Value::Object(now)) => {
                sent.iter().all(|(key, sent)| now.get(key).is_some_and(|now| keeps(sent, now)))
            }
            (Value::Array(sent), Value::Array(now)) => sent.iter().all(|sent| now.iter().any(|now| keeps(sent, now))),
            (sent, now) => sent == now,
        }
    }

    #[test]
    fn restore_without_stored_values_adds_nothing() {
        let (_, sent) = stored("Sidecar");
        let labelled = with(&sent, "/metadata/labels", json!({ "a": "b" }));
        assert_eq!(restore(&read(&sent), &read(&labelled)), None);
        let suspended = with(&sent, "/spec/suspend", json!(true));
        assert_eq!(restore(&read(&sent), &read(&suspended)), None);
    }

    #[test]
    fn restore_without_missing_values_is_none() {
        let (old, _) = stored("Supervisor");
        assert_eq!(restore(&read(&old), &read(&old)), None);
        assert_eq!(restore(&read(&old), &read(&with(&old, "/spec/suspend", json!(true)))), None);
    }

    #[test]
    fn restore_omitted_policy_takes_only_defaults() {
        let (stored, sent) = stored("Sidecar");
        let old = with(&stored, "/spec/network/subdomain", json!("mine"));
        let updated = updated(&read(&old), &read(&sent));
        assert_eq!(updated["network"], json!({ "enableDNSHostnames": true, "publishNotReadyAddresses": true }));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn restore_original_manifest_changes_nothing(pod in pods::pod(), shape in "Sidecar|Supervisor|None") {
            let sent = read(&manifest(&shape, &pod));
            let old = admitted(&sent, &settings());
            let restored = restore(&old, &sent).unwrap_or_else(|| sent.spec.clone());
            prop_assert_eq!(&restored, &old.spec);
            // The same with the defaults sent and the agent omitted.
            let defaulted = JobSet { spec: defaults::apply(&sent.spec), ..sent.clone() };
            prop_assert_eq!(restore(&old, &defaulted).unwrap_or(defaulted.spec), old.spec);
        }

        #[test]
        fn restore_with_other_settings_keeps_stored_agent(pod in pods::pod(), shape in "Sidecar|Supervisor", own in any::<bool>(), stalls in any::<bool>()) {
            let mut pod = pod;
            if own {
                pod["imagePullSecrets"] = json!([{ "name": "mine" }]);
            }
            let sent = read(&manifest(&shape, &pod));
            let settings = injection::Settings {
                agent_image: Some("jobset-agent:0".to_owned()),
                pull_policy: Some("Always".to_owned()),
                pull_secrets: vec!["registry".to_owned(), "mine".to_owned()],
                agent_resources: injection::AgentResources {
                    requests: "ephemeral-storage=1Mi".parse().unwrap(),
                    limits: "cpu=1,ephemeral-storage=2Mi".parse().unwrap(),
                },
                relay: Some("relay.example:9443".to_owned()),
                stalls: stalls.then(injection::StallSettings::any),
            };
            let old = admitted(&sent, &settings);
            prop_assert_eq!(restore(&old, &sent).unwrap_or_else(|| sent.spec.clone()), old.spec);
        }
    }
}
