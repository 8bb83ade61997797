//! The budget that a restart spends, and the counters of single Jobs.

use jobset_api::conditions;
use rstest::rstest;
use serde_json::{Value, json};

use super::fixture::{failed, job, jobset, observed, reconcile};
use crate::Plan;

/// The plan after a failure of Job 0 of `w`, with `maxRestarts` 3. The counters are those of the JobSet, of `w`, and of each
/// Job of `w`.
fn plan(budget: &str, action: &str, [whole, group, first, second]: [i32; 4]) -> Plan {
    let spec = json!({"failurePolicy": {"maxRestarts": 3, "rules": [{"action": action}]}});
    let counters =
        json!([{"name": "w", "restartsCountTowardsMax": group, "jobRestartsCountTowardsMax": [first, second]}]);
    let status = json!({"jobsReady": "0/2", "restartsCountTowardsMax": whole, "replicatedJobsStatus": counters});
    let mut jobset = jobset(&spec, &status);
    let annotations = jobset.metadata.annotations.get_or_insert_default();
    annotations.insert(jobset_api::labels::RESTART_BUDGET.to_owned(), budget.to_owned());
    let backoff = failed(1, "BackoffLimitExceeded", "");
    reconcile(&observed(jobset, [("train-w-0", job(0, Some(backoff))), ("train-w-1", job(0, None))]))
}

const SHARED: &str = "restarts of the JobSet, its replicatedJobs and its Jobs together: 3 of maxRestarts 3 are spent: ";

#[rstest]
#[case::shared_jobset("Shared", "RestartJobSet", [0, 0, 0, 0], [1, 1, 1, 0], SHARED)]
#[case::shared_replicated_job("Shared", "RestartReplicatedJob", [0, 1, 0, 1], [1, 0, 2, 0], SHARED)]
#[case::shared_job("Shared", "RestartJob", [1, 1, 0, 0], [1, 1, 0, 1], SHARED)]
#[case::shared_job_of_the_keps("Shared", "RecreateJob", [2, 0, 0, 0], [3, 0, 0, 0], SHARED)]
#[case::separate_jobset("Separate", "RestartJobSet", [2, 3, 3, 3], [3, 0, 0, 0], "restarts of the whole JobSet: 3 of maxRestarts 3 are spent: ")]
#[case::separate_replicated_job("Separate", "RestartReplicatedJob", [3, 2, 3, 3], [0, 3, 0, 0], "restarts of replicatedJob w: 3 of maxRestarts 3 are spent: ")]
#[case::separate_job("Separate", "RestartJob", [3, 3, 2, 3], [0, 0, 3, 0], "restarts of Job train-w-0: 3 of maxRestarts 3 are spent: ")]
fn restart_counted_spends_its_budget_and_fails_when_spent(
    #[case] budget: &str,
    #[case] action: &str,
    #[case] left: [i32; 4],
    #[case] spent: [i32; 4],
    #[case] message: &str,
) {
    let counters = |plan: &Plan| {
        let (status, group) = (&plan.status, &plan.status.replicated_jobs_status[0]);
        let jobs: i32 = group.job_restarts_count_towards_max.iter().sum();
        status.restarts_count_towards_max + group.restarts_count_towards_max + jobs
    };
    let counted = plan(budget, action, left);
    assert_eq!((&*counted.status.terminal_state, counters(&counted)), ("", left.iter().sum::<i32>() + 1));
    let ended = plan(budget, action, spent);
    assert_eq!((&*ended.status.terminal_state, counters(&ended)), ("Failed", spent.iter().sum()));
    let end = conditions::terminal(&ended.status.conditions).unwrap();
    assert_eq!(end.reason, conditions::REACHED_MAX_RESTARTS);
    assert!(
        end.message.starts_with(&format!("reached the maximum number of {message}Job train-w-0")),
        "{}",
        end.message
    );
}

#[rstest]
#[case("Shared", "RestartJobSetAndIgnoreMaxRestarts")]
#[case("Shared", "RestartJobAndIgnoreMaxRestarts")]
#[case("Separate", "RestartJobSetAndIgnoreMaxRestarts")]
#[case("Separate", "RestartJobAndIgnoreMaxRestarts")]
fn restart_ignoring_max_restarts_needs_no_budget(#[case] budget: &str, #[case] action: &str) {
    let plan = plan(budget, action, [3, 3, 3, 3]);
    let group = &plan.status.replicated_jobs_status[0];
    assert_eq!((plan.status.restarts + group.job_restarts.iter().sum::<i32>(), &*plan.status.terminal_state), (1, ""));
    assert_eq!(plan.status.restarts_count_towards_max, 3);
}

/// The reconciliation of the Go JobSet fails if some Jobs have counters and others have none.
#[rstest]
#[case::none(2, json!([]), 0)]
#[case::too_few(3, json!([1]), 3)]
#[case::of_a_larger_size(2, json!([0, 0, 1, 0]), 4)]
#[case::more_jobs_than_counters(2000, json!([1]), 1024)]
fn counters_of_single_jobs_are_as_many_as_jobs(#[case] replicas: i32, #[case] stored: Value, #[case] expected: usize) {
    let spec = json!({"replicatedJobs": [{"name": "w", "replicas": replicas, "template": {"spec": {}}}]});
    let counters = json!([{"name": "w", "jobRestarts": stored, "jobRestartsCountTowardsMax": stored}]);
    let plan = reconcile(&observed(jobset(&spec, &json!({"replicatedJobsStatus": counters})), []));
    let group = &plan.status.replicated_jobs_status[0];
    assert_eq!((group.job_restarts.len(), group.job_restarts_count_towards_max.len()), (expected, expected));
    assert_eq!(group.job_restarts.iter().sum::<i32>(), i32::from(expected > 0), "stored counters are kept");
}

#[test]
fn counters_of_first_restarted_job_are_as_many_as_jobs() {
    let spec = json!({"failurePolicy": {"maxRestarts": 3, "rules": [{"action": "RestartJob"}]}});
    let backoff = failed(1, "BackoffLimitExceeded", "");
    let plan = reconcile(&observed(jobset(&spec, &json!(null)), [("train-w-0", job(0, Some(backoff)))]));
    let group = &plan.status.replicated_jobs_status[0];
    assert_eq!((&*group.job_restarts, &*group.job_restarts_count_towards_max), (&[1, 0][..], &[1, 0][..]));
}
