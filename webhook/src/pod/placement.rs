//! What exclusive placement makes of a Pod: whether it leads or follows, and what it is given for that. Pure.
//!
//! The affinity is that of the Go JobSet, so that JobSets of both exclude each other while one takes over from the other.

use jobset_api::validation::{Errors, Path};
use jobset_api::{labels, names};
use jobset_objects::owner_job;
use k8s_openapi::api::core::v1::{Pod, PodAffinityTerm, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::ResourceExt as _;

use super::leaders::JobKey;

const INDEX_MISSING: &str = "must be set with the annotation alpha.jobset.sigs.k8s.io/exclusive-topology: the Pod of index \
                             0 leads the others to its domain. The Job's completionMode must be Indexed";
const JOB_KEY_MISSING: &str = "must be set with the annotation alpha.jobset.sigs.k8s.io/exclusive-topology: Jobs keep away \
                               from each other by it. The JobSet's controller sets it";
const OWNER_MISSING: &str = "must name the Job that the Pod belongs to, as its controller: the Pod follows the leader of \
                             that Job. Let the Job controller create the Pod";

/// What a Pod is in its Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// The Pod with completion index 0.
    Leader(Leader),
    Follower(Follower),
}

/// A Pod that gets a topology domain for its Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Node label that names the domain.
    topology: String,
    /// Value of [`labels::JOB_KEY`].
    job_key: String,
    /// Value of [`labels::PRIORITY`].
    priority: String,
}

/// A Pod that goes where its leader is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Follower {
    /// Node label that names the domain.
    pub topology: String,
    /// Its Job. Another Job of the same name has leaders of its own.
    pub job: JobKey,
    pub job_name: String,
}

/// The role of a new Pod; none where its JobSet is not placed exclusively, or by a node selector that its nodes were
/// labelled for.
///
/// # Errors
/// When the Pod lacks what its role depends on.
pub fn role(pod: &Pod, namespace: &str) -> Result<Option<Role>, Errors> {
    let annotations = pod.annotations();
    let Some(topology) = annotations.get(labels::EXCLUSIVE_TOPOLOGY).cloned() else { return Ok(None) };
    if annotations.contains_key(labels::NODE_SELECTOR_STRATEGY) || !pod.labels().contains_key(labels::JOBSET_NAME) {
        return Ok(None);
    }
    match annotations.get(labels::COMPLETION_INDEX).map(String::as_str) {
        None => Err(required(&format!("annotations[{}]", labels::COMPLETION_INDEX), INDEX_MISSING)),
        Some("0") => {
            let Some(job_key) = pod.labels().get(labels::JOB_KEY).cloned() else {
                return Err(required(&format!("labels[{}]", labels::JOB_KEY), JOB_KEY_MISSING));
            };
            Ok(Some(Role::Leader(Leader { topology, job_key, priority: priority(pod) })))
        }
        Some(_) => {
            let Some(job) = owner_job(pod) else { return Err(required("ownerReferences", OWNER_MISSING)) };
            let key = JobKey::new(namespace, &job.uid);
            Ok(Some(Role::Follower(Follower { topology, job: key, job_name: job.name.clone() })))
        }
    }
}

fn required(field: &str, message: &str) -> Errors {
    let mut errors = Errors::default();
    errors.required(&Path::root("metadata").child(field), message);
    errors
}

/// Pods exclude each other within a priority: one that may preempt others must not be kept away by them. Kubernetes has
/// found out the number before it asks for admission; the label, which the JobSet's controller has set, may be older.
fn priority(pod: &Pod) -> String {
    let resolved = pod.spec.as_ref().and_then(|spec| spec.priority).map(names::priority);
    resolved.or_else(|| pod.labels().get(labels::PRIORITY).cloned()).unwrap_or_else(|| names::priority(0))
}

impl Leader {
    /// The Pod with affinity to its own Job and anti-affinity to all others of its priority, in any namespace. Doing it
    /// twice changes nothing.
    pub fn keep_away(&self, pod: &Pod) -> Pod {
        let mut pod = pod.clone();
        pod.metadata.labels.get_or_insert_default().insert(labels::PRIORITY.to_owned(), self.priority.clone());
        let affinity = spec(&mut pod).affinity.get_or_insert_default();
        let own = self.term(vec![among(labels::JOB_KEY, "In", &self.job_key)]);
        let together = affinity.pod_affinity.get_or_insert_default();
        add(&mut together.required_during_scheduling_ignored_during_execution, own);
        let others = self.term(vec![
            LabelSelectorRequirement {
                key: labels::JOB_KEY.to_owned(),
                operator: "Exists".to_owned(),
                ..LabelSelectorRequirement::default()
            },
            among(labels::JOB_KEY, "NotIn", &self.job_key),
            among(labels::PRIORITY, "In", &self.priority),
        ]);
        let apart = affinity.pod_anti_affinity.get_or_insert_default();
        add(&mut apart.required_during_scheduling_ignored_during_execution, others);
        pod
    }

    /// Pods in any namespace that share the domain.
    fn term(&self, expressions: Vec<LabelSelectorRequirement>) -> PodAffinityTerm {
        PodAffinityTerm {
            label_selector: Some(LabelSelector { match_expressions: Some(expressions), ..LabelSelector::default() }),
            topology_key: self.topology.clone(),
            namespace_selector: Some(LabelSelector::default()),
            ..PodAffinityTerm::default()
        }
    }
}

impl Follower {
    /// The Pod with a node selector for the domain of its leader.
    pub fn follow(&self, pod: &Pod, domain: String) -> Pod {
        let mut pod = pod.clone();
        spec(&mut pod).node_selector.get_or_insert_default().insert(self.topology.clone(), domain);
        pod
    }
}

fn spec(pod: &mut Pod) -> &mut PodSpec {
    pod.spec.get_or_insert_default()
}

fn among(key: &str, operator: &str, value: &str) -> LabelSelectorRequirement {
    LabelSelectorRequirement {
        key: key.to_owned(),
        operator: operator.to_owned(),
        values: Some(vec![value.to_owned()]),
    }
}

fn add(terms: &mut Option<Vec<PodAffinityTerm>>, term: PodAffinityTerm) {
    let terms = terms.get_or_insert_default();
    if !terms.contains(&term) {
        terms.push(term);
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn pod(index: &str) -> Value {
        json!({ "metadata": {
            "generateName": format!("train-w-0-{index}-"), "namespace": "ml",
            "labels": { "jobset.sigs.k8s.io/jobset-name": "train", "jobset.sigs.k8s.io/job-key": "k1" },
            "annotations": {
                "alpha.jobset.sigs.k8s.io/exclusive-topology": "rack", "batch.kubernetes.io/job-completion-index": index },
            "ownerReferences": [{
                "apiVersion": "batch/v1", "kind": "Job", "name": "train-w-0", "uid": "u1", "controller": true }],
        }, "spec": { "containers": [], "priority": 5 } })
    }

    fn with(mut pod: Value, pointer: &str, value: Value) -> Pod {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        let parent = pod.pointer_mut(parent).unwrap();
        match value {
            Value::Null => drop(parent.as_object_mut().unwrap().remove(&field.replace("~1", "/"))),
            value => parent[field.replace("~1", "/")] = value,
        }
        serde_json::from_value(pod).unwrap()
    }

    fn leader(pod: &Pod) -> Leader {
        match role(pod, "ml") {
            Ok(Some(Role::Leader(leader))) => leader,
            other => panic!("{other:?}"),
        }
    }

    const TOPOLOGY: &str = "/metadata/annotations/alpha.jobset.sigs.k8s.io~1exclusive-topology";
    const STRATEGY: &str = "/metadata/annotations/alpha.jobset.sigs.k8s.io~1node-selector";
    const INDEX: &str = "/metadata/annotations/batch.kubernetes.io~1job-completion-index";
    const JOB_KEY: &str = "/metadata/labels/jobset.sigs.k8s.io~1job-key";
    const PRIORITY: &str = "/metadata/labels/jobset.sigs.k8s.io~1priority";

    #[rstest]
    #[case::not_exclusive(TOPOLOGY, Value::Null)]
    #[case::by_node_selector(STRATEGY, json!("true"))]
    #[case::of_no_jobset("/metadata/labels/jobset.sigs.k8s.io~1jobset-name", Value::Null)]
    fn who_does_not_ask_has_no_role(#[case] pointer: &str, #[case] value: Value) {
        assert_eq!(role(&with(pod("0"), pointer, value.clone()), "ml"), Ok(None));
        assert_eq!(role(&with(pod("1"), pointer, value), "ml"), Ok(None));
    }

    #[rstest]
    #[case::not_indexed(
        "1",
        INDEX,
        "metadata.annotations[batch.kubernetes.io/job-completion-index]: Required value: must be set"
    )]
    #[case::leader_without_key(
        "0",
        JOB_KEY,
        "metadata.labels[jobset.sigs.k8s.io/job-key]: Required value: must be set"
    )]
    #[case::follower_of_no_job(
        "1",
        "/metadata/ownerReferences",
        "metadata.ownerReferences: Required value: must name the Job"
    )]
    fn a_pod_without_what_its_role_depends_on_is_refused(
        #[case] index: &str,
        #[case] pointer: &str,
        #[case] expected: &str,
    ) {
        let errors = role(&with(pod(index), pointer, Value::Null), "ml").unwrap_err();
        assert!(errors.to_string().starts_with(expected), "{errors}");
    }

    #[test]
    fn owner_that_is_no_controller_is_not_its_job() {
        let owned = with(pod("1"), "/metadata/ownerReferences/0/controller", json!(false));
        assert!(role(&owned, "ml").is_err());
    }

    #[test]
    fn leader_keeps_away_from_other_jobs_of_its_priority() {
        let sent = with(pod("0"), PRIORITY, json!("4"));
        let placed = leader(&sent).keep_away(&sent);
        let term = |expressions: Value| json!({ "labelSelector": { "matchExpressions": expressions }, "topologyKey": "rack", "namespaceSelector": {} });
        let affinity = serde_json::to_value(placed.spec.as_ref().unwrap().affinity.as_ref().unwrap()).unwrap();
        assert_eq!(
            affinity,
            json!({
                "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [term(json!([
                    { "key": "jobset.sigs.k8s.io/job-key", "operator": "In", "values": ["k1"] }]))] },
                "podAntiAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": [term(json!([
                    { "key": "jobset.sigs.k8s.io/job-key", "operator": "Exists" },
                    { "key": "jobset.sigs.k8s.io/job-key", "operator": "NotIn", "values": ["k1"] },
                    { "key": "jobset.sigs.k8s.io/priority", "operator": "In", "values": ["5"] }]))] },
            })
        );
        assert_eq!(placed.labels()["jobset.sigs.k8s.io/priority"], "5", "as Kubernetes has found out");
        assert_eq!(leader(&placed).keep_away(&placed), placed, "twice is once");
    }

    #[test]
    fn terms_of_the_user_are_kept() {
        let zone = json!([{ "topologyKey": "zone", "labelSelector": { "matchLabels": { "a": "b" } } }]);
        let affinity = json!({ "podAffinity": { "requiredDuringSchedulingIgnoredDuringExecution": zone },
            "nodeAffinity": { "preferredDuringSchedulingIgnoredDuringExecution": [] } });
        let sent = with(pod("0"), "/spec/affinity", affinity);
        let placed = leader(&sent).keep_away(&sent).spec.unwrap().affinity.unwrap();
        let together = placed.pod_affinity.unwrap().required_during_scheduling_ignored_during_execution.unwrap();
        assert_eq!(together.iter().map(|it| &*it.topology_key).collect::<Vec<_>>(), ["zone", "rack"]);
        assert!(placed.node_affinity.is_some());
    }

    #[rstest]
    #[case::resolved(json!(-3), json!("7"), "n3")]
    #[case::of_the_label(Value::Null, json!("7"), "7")]
    #[case::neither(Value::Null, Value::Null, "0")]
    fn priority_of_pod_comes_before_its_label(#[case] resolved: Value, #[case] label: Value, #[case] wanted: &str) {
        let sent = serde_json::to_value(with(pod("0"), "/spec/priority", resolved)).unwrap();
        assert_eq!(leader(&with(sent, PRIORITY, label)).priority, wanted);
    }

    #[test]
    fn a_follower_selects_the_domain_and_keeps_its_other_selectors() {
        let sent = with(pod("3"), "/spec/nodeSelector", json!({ "gpu": "yes", "rack": "r9" }));
        let Ok(Some(Role::Follower(follower))) = role(&sent, "ml") else { panic!("no follower") };
        assert_eq!((&follower.job, &*follower.job_name), (&JobKey::new("ml", "u1"), "train-w-0"));
        let placed = follower.follow(&sent, "r1".to_owned());
        let selector = placed.spec.as_ref().unwrap().node_selector.as_ref().unwrap();
        assert_eq!((&*selector["gpu"], &*selector["rack"]), ("yes", "r1"));
        assert_eq!(follower.follow(&placed, "r1".to_owned()), placed);
    }
}
