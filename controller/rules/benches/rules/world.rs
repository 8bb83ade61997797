//! A JobSet whose workers all run in place, as the store has it: the objects are those that the controller builds and
//! that agents and kubelets annotate, read as from the wire.

use jobset_api::{JobSet, RestartStrategy, names};
use jobset_objects::PartialPod;
use jobset_rules::build::{self, Attempt, JobPlace};
use jobset_rules::{Action, Plan, Settings, plan};
use jobset_store::pods::PodView;
use jobset_store::{JobView, Key, Kind, Observed, OwnedView, PriorityClasses, Store, View, WatchEvent};
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

const JOBSET: &str = "train";
const NAMESPACE: &str = "ml";

/// A store with one JobSet in its first epoch.
pub(crate) struct World {
    pub(crate) store: Store,
    /// The Pods as the API server sends them, in the order of Job and index.
    pub(crate) pods: Vec<Value>,
    pub(crate) key: Key,
}

impl World {
    /// One replicatedJob of so many Jobs of so many Pods each.
    pub(crate) fn new(jobs: usize, pods_of_each: usize) -> Self {
        Self::of_groups(1, jobs, pods_of_each)
    }

    /// So many replicatedJobs of so many Jobs of so many Pods each.
    pub(crate) fn of_groups(groups: usize, jobs: usize, pods_of_each: usize) -> Self {
        let jobset = jobset(groups, jobs, pods_of_each);
        let mut world = Self { store: Store::default(), pods: Vec::new(), key: Key::of(&jobset) };
        let service = build::service(&jobset);
        world.see(JOBSET, View::Owned(Kind::Service, OwnedView::of(&service)));
        let places = (0..groups)
            .flat_map(|group_index| (0..).take(jobs).map(move |job_index| JobPlace { group_index, job_index }));
        for place in places {
            let classes = PriorityClasses::default();
            let strategy = RestartStrategy::InPlaceRestart;
            let desired = build::DesiredJob::of(&jobset, place, Attempt::default(), strategy, &classes);
            let mut job = build::job(&jobset, &desired);
            let name = names::job(JOBSET, &group(place.group_index), place.job_index);
            job.metadata.uid = Some(format!("uid-of-{name}"));
            let count = i32::try_from(pods_of_each).unwrap_or(i32::MAX);
            job.status = Some(JobStatus { active: Some(count), ready: Some(count), ..JobStatus::default() });
            world.see(&name, View::Job(JobView::of(&job)));
            let first = world.pods.len();
            world.pods.extend((0..pods_of_each).map(|index| pod(&job, &name, index, first + index)));
        }
        world.see(JOBSET, View::JobSet(jobset.into()));
        for pod in world.pods.clone() {
            world.see_pod(&pod);
        }
        world.settle();
        world
    }

    /// One replicatedJob of so many Jobs, none of which exists.
    pub(crate) fn without_jobs(jobs: usize) -> Self {
        let jobset = JobSet { status: None, ..jobset(1, jobs, 1) };
        let mut world = Self { store: Store::default(), pods: Vec::new(), key: Key::of(&jobset) };
        let service = build::service(&jobset);
        world.see(JOBSET, View::Owned(Kind::Service, OwnedView::of(&service)));
        world.see(JOBSET, View::JobSet(jobset.into()));
        let plan = world.plan();
        let mut actions = plan.iter().flat_map(|plan| &plan.actions);
        assert!(actions.any(|action| matches!(action, Action::CreateJob(_))), "{plan:?}");
        world
    }

    /// The nodes of the Pods have kubelets that cannot restart Pods in place.
    pub(crate) fn outdate_nodes(&mut self) {
        for (number, version) in (0..self.pods.len()).map(|number| (number, "v1.30.0")).chain([(usize::MAX, "v1.36.0")])
        {
            let name = format!("node-{number}");
            let node = json!({"metadata": {"name": name}, "status": {"nodeInfo": {"kubeletVersion": version}}});
            let node = View::Node(serde_json::from_value(node).expect("a Node of the schema"));
            self.store.apply(WatchEvent::shared(Key { namespace: String::new(), name }, node));
        }
    }

    /// The group restarts, and waits at the barrier for 20 s: each second Pod has reported the next epoch.
    pub(crate) fn wait_at_barrier(&mut self) {
        let mut jobset = JobSet::clone(self.store.jobset(&self.key).expect("the JobSet"));
        let status = jobset.status.as_mut().expect("its status");
        status.deprecated_epoch = status.synced_epoch;
        let began = Timestamp::UNIX_EPOCH - SignedDuration::from_secs(20);
        status.epoch_transition_time = Some(MicroTime(began));
        self.see(JOBSET, View::JobSet(jobset.into()));
        for mut pod in self.pods.clone().into_iter().step_by(2) {
            pod["metadata"]["annotations"]["jobset.sigs.k8s.io/epoch"] = json!("2");
            self.see_pod(&pod);
        }
    }

    pub(crate) fn plan(&self) -> Option<Plan> {
        let now = Time(Timestamp::UNIX_EPOCH);
        Observed::of(&self.store, &self.key).map(|seen| plan(&seen, &Settings::default(), &now))
    }

    /// Takes in an event of a Pod.
    pub(crate) fn see_pod(&mut self, pod: &Value) {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        self.see(name, View::Pod(view(&pod.to_string())));
    }

    fn see(&mut self, name: &str, view: View) {
        self.store.apply(self.event(name, view));
    }

    /// An event about an object of the JobSet.
    pub(crate) fn event(&self, name: &str, view: View) -> WatchEvent {
        let object = Key { name: name.to_owned(), ..self.key.clone() };
        WatchEvent::child(object, &self.key, view)
    }

    /// Stores what the rules decide until they have nothing more to say: the barrier is lifted.
    fn settle(&mut self) {
        while let (Some(plan), Some(jobset)) = (self.plan(), self.store.jobset(&self.key)) {
            if jobset.status.as_ref() == Some(&plan.status) {
                assert!(plan.actions.is_empty(), "a JobSet that runs needs nothing: {:?}", plan.actions);
                assert_eq!(plan.status.synced_epoch, 1, "all workers run: {:?}", plan.status.conditions);
                return;
            }
            let mut jobset = JobSet::clone(jobset);
            jobset.status = Some(plan.status);
            self.see(JOBSET, View::JobSet(jobset.into()));
        }
    }
}

/// A Pod from the wire, reduced to what the rules keeps.
pub(crate) fn view(pod: &str) -> PodView {
    PodView::of(&serde_json::from_str::<PartialPod>(pod).expect("a Pod of the schema"))
}

fn group(index: usize) -> String {
    format!("workers-{index}")
}

fn jobset(groups: usize, jobs: usize, pods_of_each: usize) -> JobSet {
    let mut jobset = json!({
        "status": {"syncedEpoch": 1},
        "metadata": {"name": JOBSET, "namespace": NAMESPACE, "uid": "uid-of-train", "generation": 1,
                     "annotations": {"jobset.sigs.k8s.io/restart-budget": "Shared"}},
        "spec": {
            "failurePolicy": {"maxRestarts": 100, "restartStrategy": "InPlaceRestart"},
            "replicatedJobs": [{"name": group(0), "replicas": jobs, "template": {"spec": {
                "parallelism": pods_of_each,
                "completions": pods_of_each,
                "completionMode": "Indexed",
                "backoffLimit": i32::MAX,
                "podReplacementPolicy": "Failed",
                "template": {"spec": {
                    "restartPolicy": "Never",
                    "initContainers": [{"name": "agent", "image": "agent", "restartPolicy": "Always", "restartPolicyRules":
                        [{"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0]}}]}],
                    "containers": [{"name": "worker", "image": "worker", "env": settings()}],
                }},
            }}}],
        },
    });
    let first = jobset["spec"]["replicatedJobs"][0].clone();
    let renamed = (0..groups).map(|index| {
        let mut of_name = first.clone();
        of_name["name"] = json!(group(index));
        of_name
    });
    jobset["spec"]["replicatedJobs"] = renamed.collect();
    serde_json::from_value(jobset).expect("a JobSet of the schema")
}

/// Variables that make a Pod of the usual 6 kB.
fn settings() -> Value {
    (0..16).map(|index| json!({"name": format!("TRAINING_SETTING_{index}"), "value": "x".repeat(256)})).collect()
}

/// A Pod of the Job whose worker runs and whose agent has reported the first epoch.
fn pod(job: &Job, job_name: &str, index: usize, node: usize) -> Value {
    let template = json!(job.spec.as_ref().map(|spec| &spec.template));
    let mut metadata = template["metadata"].clone();
    let name = format!("{job_name}-{index}-abcde");
    metadata["name"] = json!(name);
    metadata["namespace"] = json!(NAMESPACE);
    metadata["uid"] = json!(format!("uid-of-{name}"));
    metadata["resourceVersion"] = json!("1");
    metadata["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    metadata["annotations"]["batch.kubernetes.io/job-completion-index"] = json!(index.to_string());
    metadata["annotations"]["jobset.sigs.k8s.io/epoch"] = json!("1");
    metadata["ownerReferences"] = json!([{"apiVersion": "batch/v1", "kind": "Job", "name": job_name,
        "uid": job.metadata.uid, "controller": true, "blockOwnerDeletion": true}]);
    let status = |container: &str| {
        json!({"name": container, "image": container, "imageID": "", "containerID": format!("containerd://{container}-{name}"),
               "restartCount": 0, "ready": true, "started": true, "state": {"running": {"startedAt": "2026-01-01T00:00:05Z"}}})
    };
    let mut spec = template["spec"].clone();
    spec["nodeName"] = json!(format!("node-{node}"));
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True"}],
        "initContainerStatuses": [status("agent")],
        "containerStatuses": [status("worker")],
    }})
}
