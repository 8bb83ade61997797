//! Text of restarts.

use serde_json::{Value, json};

use super::*;
use crate::args::OutputFormat;
use crate::output::rendered;
use crate::testing::{event, jobset, merge, numbers, plain, view};

const CAUSE: &str = "in place, from epoch 1 to 2: Pod train-workers-0-1-x7k2m on node node-2 failed in epoch 1, container \
                     worker exited with code 3 (Error): loss is NaN; counted";
const RECREATED: &str =
    "recreating all Jobs, attempt 1: Job train-workers-1 failed (PodFailurePolicy: bad disk); rule disk";

fn status(restarts: i32, counted: i32) -> Value {
    json!({"groupRestarts": restarts, "restartsCountTowardsMax": counted})
}

fn of(status: Value, events: &[k8s_openapi::api::events::v1::Event]) -> RestartReport {
    report(&jobset(status, &Value::Null), events.iter().filter_map(RestartEvent::of).collect())
}

fn with_failure(mut annotations: Value, at: &str) -> Value {
    merge(&mut annotations, &json!({"jobset.sigs.k8s.io/failed-at": at}));
    annotations
}

#[test]
fn restarts_of_each_kind_have_phases() {
    let events = [
        // The first start also lifts the barrier.
        event("BarrierLifted", -60_000, &numbers(0, 0, 1), ""),
        event("Restarting", 500, &with_failure(numbers(1, 1, 1), "2026-11-22T09:30:00Z"), CAUSE),
        event("BarrierLifted", 1977, &numbers(1, 1, 2), "epoch 2"),
        event("Restarted", 3660, &numbers(1, 1, 2), "all jobs are ready"),
        event("Restarting", 600_000, &numbers(2, 1, 2), RECREATED),
        event("BarrierLifted", 610_000, &numbers(2, 1, 3), "epoch 3"),
        event("Restarted", 611_500, &numbers(2, 1, 3), "all jobs are ready"),
        event("Restarting", 1_200_000, &numbers(3, 2, 3), "in place, from epoch 3 to 4: workers restarted; counted"),
    ];
    // The API server does not promise an order.
    let report = of(status(3, 2), &events.into_iter().rev().collect::<Vec<_>>());
    insta::assert_snapshot!(plain(&report, &view()));
    insta::assert_snapshot!("restarts_as_json", rendered(&report, OutputFormat::Json, &view()).unwrap());
}

#[test]
fn restarts_expired_events_are_reported() {
    let events = [
        event("Restarted", 0, &numbers(6, 3, 7), ""),
        event(
            "Restarting",
            60_000,
            &numbers(7, 3, 7),
            "in place, from epoch 7 to 8: evicted; not counted by rule maintenance",
        ),
        event("Restarting", 61_000, &numbers(8, 4, 7), RECREATED),
        event("Restarted", 70_000, &numbers(8, 4, 8), ""),
    ];
    insta::assert_snapshot!(plain(&of(status(8, 4), &events), &view()));
}

#[test]
fn restarts_without_annotations_have_no_numbers() {
    let events = [
        event("Restarting", 0, &Value::Null, CAUSE),
        event("Restarted", 4000, &Value::Null, "all jobs are ready"),
        event("Restarting", 60_000, &Value::Null, RECREATED),
        event("Restarted", 66_000, &Value::Null, "all jobs are ready"),
    ];
    insta::assert_snapshot!(plain(&of(status(2, 1), &events), &view()));
}

#[test]
fn restarts_without_events_report_none() {
    insta::assert_snapshot!(plain(&of(Value::Null, &[]), &view()), @"ml/train has not restarted as a group (InPlaceRestart); 0 of maxRestarts 5 are spent.");
}

#[test]
fn events_of_other_controllers_or_reasons_are_ignored() {
    let mut foreign = event("Restarting", 0, &Value::Null, CAUSE);
    foreign.reporting_controller = Some("somebody".to_owned());
    let other = event("Refused", 0, &Value::Null, "");
    assert_eq!(of(status(0, 0), &[foreign, other]).restarts, []);
}
