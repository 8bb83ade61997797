//! The deadline of the JobSet at its edge. Rules run at second 100.

use jobset_api::conditions;
use rstest::rstest;
use serde_json::json;

use super::fixture::{at, job, jobset, observed, reasons, reconcile};
use crate::Fact;

#[rstest]
#[case::over(99, true)]
#[case::at_this_moment(100, true)]
#[case::not_yet(101, false)]
fn deadline_expires_at_the_second(#[case] due: i64, #[case] expires: bool) {
    let status = json!({"startTime": at(40)});
    let jobs = [("train-w-0", job(0, None)), ("train-w-1", job(0, None))];
    let mut world = observed(jobset(&json!({"activeDeadlineSeconds": due - 40}), &status), jobs);
    world.settings.gates.job_set_active_deadline_seconds = true;
    let plan = reconcile(&world);
    if !expires {
        assert_eq!((plan.requeue, reasons(&plan)), (Some(at(due).0), vec![]));
        return;
    }
    let end = conditions::terminal(&plan.status.conditions).unwrap();
    let message = format!("JobSet was active for longer than the specified deadline of {}s", due - 40);
    assert_eq!((&*end.type_, &*end.reason, &*end.message), (conditions::FAILED, "DeadlineExceeded", &*message));
    assert_eq!(plan.facts, [Fact::DeadlineExceeded, Fact::Failed { budget_exhausted: false }]);
    assert_eq!((plan.requeue, reasons(&plan)), (None, vec!["DeadlineExceeded"]));
}
