//! What a seed says about the JobSet itself: its strategy, size and policies.

use std::sync::LazyLock;
use std::time::Duration;

use fastrand::Rng;
use jobset_agent::decide::Mode;
use jobset_api::gates::Gates;
use jobset_api::{FailurePolicyAction, JobSet, JobSetLimits, RestartBudget, RestartStrategy, labels};
use jobset_rules::Settings;
use jobset_store::Key;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::cluster::BEGINNING;

pub(super) const JOBSET: &str = "train";
pub(super) const NAMESPACE: &str = "ml";
pub(super) const UID: &str = "uid-of-train";

/// Exit code that the Pods' own rules leave to their podFailurePolicy, where they have one.
pub(super) const FATAL: i32 = 42;
/// Exit code by which the agent restarts its Pod.
const RESTART: i32 = 81;
/// What a rule of a sidecar's Pod does.
const ALL: &str = "RestartAllContainers";
/// Most Pods that a scenario has at first.
const MOST_PODS: i32 = 9;

/// A JobSet, and how its workers behave.
// Each is true or not whatever the others are.
#[allow(clippy::struct_excessive_bools)]
pub(super) struct Scenario {
    pub jobset: JobSet,
    /// What its restarts spend, whatever becomes of it.
    pub budget: RestartBudget,
    pub strategy: RestartStrategy,
    /// Whether the Jobs have a podFailurePolicy that fails them on the exit code [`FATAL`].
    pub has_fatal_code: bool,
    /// Whether a worker exits 0 when it is asked to go, as if it had done its work.
    pub ends_well_when_asked: bool,
    /// Whether the agents are the parents of their workers.
    pub supervised: bool,
    /// Whether some Jobs have a success policy.
    pub has_success_policy: bool,
    /// Whether workers take their time to end when they are asked to go.
    pub ends_slowly: bool,
    /// Whether sizes are at the ends of their integers.
    pub has_extremes: bool,
    /// How long names take to settle.
    pub settle_names: Duration,
    /// Settings of the controller.
    pub settings: Settings,
}

static KEY: LazyLock<Key> = LazyLock::new(|| Key { namespace: NAMESPACE.to_owned(), name: JOBSET.to_owned() });

pub(super) fn key() -> &'static Key {
    &KEY
}

impl Scenario {
    pub(super) fn draw(rng: &mut Rng) -> Self {
        let strategy = match rng.u8(..8) {
            0 => RestartStrategy::Recreate,
            1 => RestartStrategy::BlockingRecreate,
            _ => RestartStrategy::InPlaceRestart,
        };
        let has_fatal_code = rng.bool();
        let ends_well_when_asked = rng.u8(..4) == 0;
        let supervised = strategy == RestartStrategy::InPlaceRestart && rng.u8(..3) == 0;
        let mut spec = json!({"replicatedJobs": groups(rng, strategy, has_fatal_code, supervised)});
        if strategy == RestartStrategy::InPlaceRestart || rng.u8(..4) != 0 {
            spec["failurePolicy"] = failure_policy(rng, strategy);
        }
        if strategy != RestartStrategy::InPlaceRestart {
            put_in_order(rng, &mut spec);
        }
        if rng.u8(..8) == 0 {
            spec["suspend"] = json!(true);
        }
        let mut settings = settings(rng, &mut spec);
        let mut later = Rng::with_seed(!rng.clone().u64(..));
        let has_success_policy = super::successes::draw_policies(&mut later, &mut spec);
        let ends_slowly = later.u8(..4) == 0;
        let has_extremes = super::extremes::draw(&mut later, &mut spec);
        if has_extremes && later.u8(..4) != 0 {
            settings.limits = JobSetLimits::NONE;
        }
        let mut metadata = json!({"name": JOBSET, "namespace": NAMESPACE, "uid": UID, "generation": 1});
        metadata["creationTimestamp"] = json!(Timestamp::from_second(BEGINNING).unwrap_or_default());
        // Without admission, the controller has to annotate it.
        let annotated = [Some(RestartBudget::Shared), Some(RestartBudget::Separate), None][rng.usize(..3)];
        if let Some(budget) = annotated {
            metadata["annotations"] = json!({(labels::RESTART_BUDGET): budget.word()});
        }
        let settle_names = super::names::draw(&mut later, &mut metadata);
        if strategy == RestartStrategy::InPlaceRestart {
            super::moves::draw(&mut later, &mut metadata, &mut spec);
        }
        let jobset = serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap();
        let budget = annotated.unwrap_or(RestartBudget::Shared);
        Self {
            jobset,
            budget,
            strategy,
            has_fatal_code,
            ends_well_when_asked,
            supervised,
            has_success_policy,
            ends_slowly,
            has_extremes,
            settle_names,
            settings,
        }
    }

    /// How the agents work.
    pub(super) fn mode(&self) -> Mode {
        if !self.supervised {
            return Mode::Sidecar { saves: false };
        }
        let fatal = u8::try_from(FATAL).ok().filter(|_| self.has_fatal_code);
        Mode::Supervisor { fatal: fatal.into_iter().collect() }
    }

    pub(super) fn in_place(&self) -> bool {
        self.strategy == RestartStrategy::InPlaceRestart
    }

    /// The action of the failure policy for a failed Job: that of the first rule that it matches. `None` where there is
    /// no policy.
    pub(super) fn action(&self, replicated_job: &str, reason: &str) -> Option<FailurePolicyAction> {
        let policy = self.jobset.spec.failure_policy.as_ref()?;
        let reasons = |reasons: &[String]| reasons.is_empty() || reasons.iter().any(|it| it == reason);
        let rule =
            policy.rules.iter().find(|rule| rule.targets(replicated_job) && reasons(&rule.on_job_failure_reasons));
        Some(rule.map_or(FailurePolicyAction::RestartJobSet, |rule| rule.action))
    }
}

/// Settings with the feature gates that are off by default on or off, and the deadline of the JobSet, if it has one. The draws
/// are those of a copy, so that a seed says the same about everything else.
fn settings(rng: &Rng, spec: &mut Value) -> Settings {
    let mut rng = Rng::with_seed(rng.clone().u64(..));
    let deadline = (rng.u8(..6) == 0).then(|| [5, 60, 300][rng.usize(..3)]);
    if let Some(deadline) = deadline {
        spec["activeDeadlineSeconds"] = json!(deadline);
    }
    let gates = Gates {
        job_set_active_deadline_seconds: deadline.is_some() || rng.bool(),
        execution_attempts_tracking: rng.u8(..3) == 0,
        ..Gates::default()
    };
    Settings { gates, ..Settings::default() }
}

fn failure_policy(rng: &mut Rng, strategy: RestartStrategy) -> Value {
    let max_restarts = match rng.i32(0..8) {
        few @ 0..=3 => few,
        _ => 100,
    };
    let rules: Vec<Value> = (0..rng.u8(..3)).map(|index| rule(rng, index)).collect();
    let mut policy = json!({"maxRestarts": max_restarts, "restartStrategy": strategy, "rules": rules});
    match rng.u8(..4) {
        0 => policy["restartBackoff"] = json!({"initialSeconds": 0}),
        1 => policy["restartBackoff"] = json!({"initialSeconds": 3, "maxSeconds": 20, "stableSeconds": 5}),
        _ => {}
    }
    policy
}

fn rule(rng: &mut Rng, index: u8) -> Value {
    let actions = [
        "FailJobSet",
        "RestartJobSet",
        "RestartJobSetAndIgnoreMaxRestarts",
        "RestartJob",
        "RestartJobAndIgnoreMaxRestarts",
        "RecreateJob",
        "RestartReplicatedJob",
        "FailJob",
    ];
    let mut rule = json!({"name": format!("rule{index}"), "action": actions[rng.usize(..actions.len())]});
    if rng.u8(..3) == 0 {
        rule["targetReplicatedJobs"] = json!(["a"]);
    }
    if rng.u8(..3) == 0 {
        let reasons = ["PodFailurePolicy", "BackoffLimitExceeded", "DeadlineExceeded"];
        rule["onJobFailureReasons"] = json!([reasons[rng.usize(..reasons.len())]]);
    }
    rule
}

/// The replicatedJobs `a`, `b` and `c`, or fewer.
fn groups(rng: &mut Rng, strategy: RestartStrategy, has_fatal_code: bool, supervised: bool) -> Value {
    let mut left = MOST_PODS;
    let mut groups = Vec::new();
    for name in &["a", "b", "c"][..rng.usize(1..=3)] {
        let (replicas, pods) = (rng.i32(1..=3), rng.i32(1..=3));
        if replicas * pods > left {
            break;
        }
        left -= replicas * pods;
        let job = job(rng, pods, strategy, has_fatal_code, supervised);
        groups.push(json!({"name": name, "replicas": replicas, "template": job}));
    }
    json!(groups)
}

fn job(rng: &mut Rng, pods: i32, strategy: RestartStrategy, has_fatal_code: bool, supervised: bool) -> Value {
    let in_place = strategy == RestartStrategy::InPlaceRestart;
    let mut worker = json!({"name": "worker", "image": "worker"});
    let mut pod = json!({"restartPolicy": "Never"});
    let mut spec = json!({"completionMode": "Indexed", "parallelism": pods, "completions": pods});
    if in_place {
        spec["backoffLimit"] = json!(i32::MAX);
        spec["podReplacementPolicy"] = json!("Failed");
        let rules = |action: &str, operator: &str, values: &[i32]| json!([{"action": action, "exitCodes": {"operator": operator, "values": values}}]);
        // A supervisor ends with 82 when its JobSet has failed.
        let left_alone: &[i32] = if has_fatal_code { &[0, 82, FATAL] } else { &[0, 82] };
        worker["restartPolicy"] = json!("Never");
        // A supervisor that is killed comes back alone: all containers are the one that it is in.
        let action = if supervised { "Restart" } else { ALL };
        worker["restartPolicyRules"] = rules(action, "NotIn", left_alone);
        if supervised {
            worker["command"] = json!(["jobset-agent", "supervise", "--", "train"]);
            if has_fatal_code {
                worker["env"] = json!([{"name": "FATAL_EXIT_CODES", "value": FATAL.to_string()}]);
            }
        } else {
            let rules = rules(ALL, "In", &[RESTART]);
            pod["initContainers"] =
                json!([{"name": "agent", "image": "agent", "restartPolicy": "Always", "restartPolicyRules": rules}]);
        }
    } else {
        spec["backoffLimit"] = json!(rng.i32(0..2));
    }
    if has_fatal_code {
        let codes = json!({"containerName": "worker", "operator": "In", "values": [FATAL]});
        spec["podFailurePolicy"] = json!({"rules": [{"action": "FailJob", "onExitCodes": codes}]});
        if !in_place {
            spec["podReplacementPolicy"] = json!("Failed");
        }
    }
    pod["containers"] = json!([worker]);
    spec["template"] = json!({"spec": pod});
    json!({"spec": spec})
}

/// In order by the startup policy, or by dependencies, or neither.
fn put_in_order(rng: &mut Rng, spec: &mut Value) {
    match rng.u8(..6) {
        0 => spec["startupPolicy"] = json!({"startupPolicyOrder": "InOrder"}),
        1 if spec["replicatedJobs"].as_array().is_some_and(|groups| groups.len() > 1) => {
            spec["replicatedJobs"][1]["dependsOn"] = json!([{"name": "a", "status": "Ready"}]);
        }
        _ => {}
    }
}
