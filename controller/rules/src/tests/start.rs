//! Reconciliations without changes.

use serde_json::json;

use super::fixture::{job, jobset, observed, reconcile};
use crate::Plan;

#[test]
fn second_reconciliation_without_changes_does_nothing() {
    let world = observed(jobset(&json!({}), &json!(null)), [("train-w-0", job(0, None)), ("train-w-1", job(0, None))]);
    let first = reconcile(&world);
    let second = reconcile(&world.with_status(first.status.clone()));
    assert_eq!(second, Plan { status: first.status, misses_agents: Some(false), ..Plan::default() });
}
