use jobset_api::JobSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use prometheus::Registry;
use rstest::rstest;
use serde_json::json;

use super::{at, jobset, scraped, train};
use crate::shell::metrics::Ledger;

#[test]
fn ledger_times_are_counted_once_and_never_fall() {
    let registry = Registry::new();
    let (mut ledger, key) = (Ledger::register(&registry).unwrap(), train());
    let with = |running: i64| {
        let (bucket, since) = ("Running", "2026-01-01T00:00:00.000000Z");
        let value = json!({"ledger": {"bucket": bucket, "since": since, "milliseconds": {"running": running}}});
        JobSet { status: Some(serde_json::from_value(value).unwrap()), ..jobset() }
    };
    let series = r#"jobset_ledger_seconds_total{bucket="running",namespace="ml"}"#;
    // What the first has was counted by an earlier leader.
    for (running, counted) in [(5_000, 0.0), (7_500, 2.5), (7_500, 2.5), (6_500, 2.5), (8_500, 4.5)] {
        ledger.see(&key, &with(running));
        let text = scraped(&registry);
        let found = text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse::<f64>().ok());
        assert_eq!(found, Some(counted), "{text}");
    }
}

/// The time since the last write of the status, which nobody writes any more.
#[rstest]
#[case::gone_at_once(None, None, 30.0)]
#[case::deleted_before(Some(20), None, 20.0)]
#[case::name_is_used_again(None, Some(25), 25.0)]
fn last_stretch_of_deleted_jobset_is_counted(
    #[case] deleted: Option<i64>,
    #[case] successor: Option<i64>,
    #[case] counted: f64,
) {
    let registry = Registry::new();
    let (mut ledger, key) = (Ledger::register(&registry).unwrap(), train());
    let value = json!({"ledger": {"bucket": "Running", "since": at(0), "milliseconds": {"running": 5_000}}});
    let mut running = JobSet { status: Some(serde_json::from_value(value).unwrap()), ..jobset() };
    ledger.see(&key, &running);
    if let Some(deleted) = deleted {
        running.metadata.deletion_timestamp = Some(Time(at(deleted)));
        (0..2).for_each(|_| ledger.see(&key, &running));
    }
    if let Some(created) = successor {
        let mut successor = jobset();
        successor.metadata.uid = Some("v".to_owned());
        successor.metadata.creation_timestamp = Some(Time(at(created)));
        ledger.see(&key, &successor);
    }
    (0..2).for_each(|_| ledger.forget(&key, at(30)));
    let text = scraped(&registry);
    let series = r#"jobset_ledger_seconds_total{bucket="running",namespace="ml"}"#;
    let found = text.lines().find_map(|line| line.strip_prefix(series)?.trim().parse::<f64>().ok());
    assert_eq!(found, Some(counted), "{text}");
}
