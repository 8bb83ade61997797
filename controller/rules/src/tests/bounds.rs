//! What a plan costs: it follows the children that exist or have changed, never a number of the specification or the status.
//!
//! Allocations and their bytes are counted. A loop over a size of two thousand million would not end in the time of any test.

use jobset_allocations::{Allocations, counted};
use jobset_api::JobSet;
use jobset_store::pods::{Epoch, PodPhase, PodView};
use jobset_store::{Finished, JobView};
use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::fixture::job;
use super::world::World;

/// Allocations that a plan may need beside those for children.
const FIXED: usize = 600;
/// Allocations for each replicatedJob, Job and note.
const EACH: usize = 60;

/// Bytes of an allocation, in the mean.
const BYTES: usize = 512;

/// Numbers at the ends of what the API takes, and between.
fn number() -> impl Strategy<Value = i32> {
    prop_oneof![
        Just(0),
        Just(1),
        2..9,
        Just(20_000),
        Just(100_000),
        Just(i32::MAX - 1),
        Just(i32::MAX),
        Just(-1),
        Just(i32::MIN)
    ]
}

fn pods_text() -> impl Strategy<Value = Option<String>> {
    prop_oneof![
        Just(None),
        Just(Some(String::new())),
        Just(Some("0".to_owned())),
        Just(Some("0-2147483647".to_owned())),
        Just(Some("0-9223372036854775807".to_owned())),
        Just(Some("5-3,7,x,-4,99999999999999999999".to_owned())),
        Just(Some("0,2,4,6-2147483646".to_owned())),
    ]
}

#[derive(Clone, Debug)]
struct Group {
    replicas: i32,
    parallelism: Option<i32>,
    completions: Option<i32>,
    indexed: bool,
    succeeded_indexes: Option<String>,
    synced_pods: Option<String>,
    synced_parallelism: i32,
    counters: Vec<i32>,
}

prop_compose! {
    fn group()(
        replicas in number(), parallelism in prop::option::of(number()), completions in prop::option::of(number()),
        indexed in any::<bool>(), succeeded_indexes in pods_text(), synced_pods in pods_text(),
        synced_parallelism in number(), counters in prop::collection::vec(number(), 0..3),
    ) -> Group {
        Group { replicas, parallelism, completions, indexed, succeeded_indexes, synced_pods, synced_parallelism, counters }
    }
}

#[derive(Clone, Debug)]
struct Case {
    groups: Vec<Group>,
    strategy: &'static str,
    suspend: bool,
    epochs: (i32, i32, i32),
    restarts: i32,
    max_restarts: i32,
    in_order: bool,
    jobs: Vec<(usize, i32, JobView)>,
    pods: Vec<PodView>,
}

fn job_view() -> impl Strategy<Value = JobView> {
    let finished = prop_oneof![
        Just(None),
        Just(Some(Finished::Completed)),
        Just(Some(super::fixture::failed(50, "BackoffLimitExceeded", "m")))
    ];
    (number(), number(), number(), finished, any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(attempt, size, counts, finished, suspended, failing, deleting)| JobView {
            parallelism: size,
            pods: size,
            completions: Some(size),
            active: counts,
            ready: counts,
            succeeded: counts,
            suspended,
            failing,
            deleting,
            ..job(attempt, finished)
        },
    )
}

fn pod_view() -> impl Strategy<Value = PodView> {
    let phase = prop::sample::select(vec![PodPhase::Open, PodPhase::Succeeded, PodPhase::Failed]);
    let address = prop::option::of(prop::sample::select(vec![Timestamp::MIN, Timestamp::UNIX_EPOCH, Timestamp::MAX]));
    let pod = (number(), number(), phase, any::<bool>(), 0..2_u64, address);
    pod.prop_map(|(index, epoch, phase, deleted, workers, address_since)| PodView {
        index: Some(index),
        epoch: Epoch::Reported(epoch),
        phase,
        deleted_at: deleted.then_some(Timestamp::UNIX_EPOCH),
        workers,
        address_since,
        ..PodView::default()
    })
}

prop_compose! {
    fn case()(
        groups in prop::collection::vec(group(), 1..5),
        strategy in prop::sample::select(vec!["Recreate", "BlockingRecreate", "InPlaceRestart"]),
        suspend in any::<bool>(), epochs in (number(), number(), number()), restarts in number(), max_restarts in number(),
        in_order in any::<bool>(), jobs in prop::collection::vec((0..5_usize, number(), job_view()), 0..6),
        pods in prop::collection::vec(pod_view(), 0..12),
    ) -> Case {
        Case { groups, strategy, suspend, epochs, restarts, max_restarts, in_order, jobs, pods }
    }
}

impl Case {
    fn jobset(&self) -> JobSet {
        let groups: Vec<Value> = (0..).zip(&self.groups).map(|(place, group)| group.spec(place)).collect();
        let statuses: Vec<Value> = (0..).zip(&self.groups).map(|(place, group)| group.status(place)).collect();
        let (synced, deprecated, free) = self.epochs;
        let startup = self.in_order.then(|| json!({"startupPolicyOrder": "InOrder"}));
        serde_json::from_value(json!({
            "metadata": {"name": "train", "namespace": "ml", "uid": "u", "generation": 1,
                         "annotations": {"jobset.sigs.k8s.io/restart-budget": "Shared", "jobset.sigs.k8s.io/settle-names": "35s"}},
            "spec": {"replicatedJobs": groups, "suspend": self.suspend, "startupPolicy": startup,
                     "failurePolicy": {"restartStrategy": self.strategy, "maxRestarts": self.max_restarts}},
            "status": {"syncedEpoch": synced, "deprecatedEpoch": deprecated, "freeEpoch": free, "restarts": self.restarts,
                       "replicatedJobsStatus": statuses},
        }))
        .unwrap()
    }

    fn world(&self) -> World {
        let mut world = World::new(self.jobset());
        for (place, (group, index, view)) in self.jobs.iter().enumerate() {
            let name = format!("train-w{group}-{index}");
            let replicated_job = format!("w{group}");
            world = world.job(&name, JobView { replicated_job, index: Some(*index), ..view.clone() });
            for (number, pod) in self.pods.iter().enumerate().filter(|(number, _)| number % self.jobs.len() == place) {
                let (uid, job_uid) = (format!("{name}-{number}"), Some(format!("uid-of-{name}")));
                world = world.pod(PodView { name: uid.clone(), uid, job_uid, ..pod.clone() });
            }
        }
        world
    }
}

impl Group {
    fn spec(&self, place: usize) -> Value {
        let rule = self.succeeded_indexes.as_ref().map(|indexes| json!({"rules": [{"succeededIndexes": indexes}]}));
        let worker = json!({
            "name": "worker", "image": "worker", "command": ["jobset-agent", "supervise", "--", "train"],
            "restartPolicy": "Never",
            "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "NotIn", "values": [0, 82]}}],
        });
        json!({"name": format!("w{place}"), "replicas": self.replicas, "template": {"spec": {
            "parallelism": self.parallelism, "completions": self.completions, "successPolicy": rule,
            "completionMode": if self.indexed { "Indexed" } else { "NonIndexed" },
            "backoffLimit": i32::MAX, "podReplacementPolicy": "Failed",
            "template": {"spec": {"restartPolicy": "Never", "containers": [worker]}},
        }}})
    }

    fn status(&self, place: usize) -> Value {
        json!({
            "name": format!("w{place}"), "syncedPods": self.synced_pods, "syncedParallelism": self.synced_parallelism,
            "jobRestarts": self.counters, "jobRestartsCountTowardsMax": self.counters,
        })
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn plan_allocations_follow_children_whatever_sizes_say(case in case()) {
        let world = case.world();
        let (plan, Allocations { count, bytes, .. }) = counted(|| world.plan());
        let children = case.groups.len() + case.jobs.len() + case.pods.len() + plan.actions.len();
        prop_assert!(count <= FIXED + EACH * children, "{count} allocations, {children} children: {plan:?}");
        prop_assert!(bytes <= BYTES * (FIXED + EACH * children), "{bytes} bytes, {children} children: {plan:?}");
        prop_assert!(plan.actions.len() <= 202 + 2 * case.jobs.len() + case.pods.len(), "{} actions", plan.actions.len());
    }
}
