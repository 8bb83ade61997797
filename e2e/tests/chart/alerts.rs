//! When each alert fires, and when it does not: asked of Prometheus' own promtool, with series made for it.

use std::path::Path;

use anyhow::Result;
use jobset_harness::chart::Chart;
use jobset_harness::programs::Helm;
use jobset_harness::prometheus::Programs;
use rstest::rstest;
use serde_json::{Value, json};

use super::render::alerts;

/// A series, and its values, one each 15 seconds, in promtool's notation.
type Series = (&'static str, &'static str);

const RECONCILING: &str = r#"jobset_reconciling{instance="a"}"#;
const NOT_BEFORE: &str = r#"jobset_webhook_cert_not_before_timestamp_seconds{instance="w"}"#;
const EXPIRY: &str = r#"jobset_webhook_cert_expiry_timestamp_seconds{instance="w"}"#;
const MISMATCH: &str = r#"jobset_webhook_ca_mismatch{instance="w"}"#;
/// One of two controllers works, and a webhook has a certificate for 90 days.
const WELL: [Series; 5] = [
    (RECONCILING, "1+0x240"),
    (r#"jobset_reconciling{instance="b"}"#, "0+0x240"),
    (MISMATCH, "0+0x240"),
    (NOT_BEFORE, "0+0x240"),
    (EXPIRY, "7776000+0x240"),
];
/// The series is not there.
const NONE: &str = "_x240";

const RECOVERED: &str = r#"jobset_restart_duration_seconds_count{strategy="in_place",result="recovered"}"#;
const WITHIN_A_MINUTE: &str =
    r#"jobset_restart_duration_seconds_bucket{strategy="in_place",result="recovered",le="64"}"#;
const WAITING: &str = r#"jobset_barrier_waiting_pods{namespace="ml",jobset_name="train"}"#;
const COUNTED: &str = r#"jobset_restarts_counted{namespace="ml",jobset_name="train"}"#;
const BUDGET: &str = r#"jobset_max_restarts{namespace="ml",jobset_name="train"}"#;
const FAILED: &str =
    r#"kube_jobset_status_condition{namespace="ml",jobset_name="train",condition="Failed",status="true"}"#;
const PASSED: &str = r#"jobset_reconcile_duration_seconds_count{result="success"}"#;
const REFUSED: &str = r#"jobset_reconcile_duration_seconds_count{result="refused"}"#;
const UNAVAILABLE: &str = r#"jobset_reconcile_duration_seconds_count{result="unavailable"}"#;
const RELAYS: &str = r#"jobset_stream_relays{instance="a"}"#;
const STRANGERS: &str = r#"jobset_relay_failed_authentications_total{instance="r"}"#;
const BACKOFFS: &str = r#"jobset_restart_backoffs_total{namespace="ml"}"#;
const STALLS: &str = r#"jobset_progress_stalls_total{namespace="ml",verdict="unknown"}"#;
const STALLED: &str = r#"jobset_stalled_jobsets{namespace="ml",instance="a"}"#;
const STALLED_AT_B: &str = r#"jobset_stalled_jobsets{namespace="ml",instance="b"}"#;
const PANICS: &str = r#"jobset_internal_errors_total{instance="a"}"#;
const OLDEST_URGENT: &str = r#"jobset_workqueue_oldest_urgent_seconds{instance="a"}"#;
const REVIEWS_1: &str = r#"jobset_webhook_request_duration_seconds_bucket{webhook="vjobset.kb.io",le="1"}"#;
const REVIEWS_2: &str = r#"jobset_webhook_request_duration_seconds_bucket{webhook="vjobset.kb.io",le="2.5"}"#;
const REVIEWS: &str = r#"jobset_webhook_request_duration_seconds_bucket{webhook="vjobset.kb.io",le="+Inf"}"#;
const PODS_1: &str = r#"jobset_webhook_request_duration_seconds_bucket{webhook="mpod.kb.io",le="1"}"#;
const PODS_2: &str = r#"jobset_webhook_request_duration_seconds_bucket{webhook="mpod.kb.io",le="2.5"}"#;
const PODS_5: &str = r#"jobset_webhook_request_duration_seconds_bucket{webhook="mpod.kb.io",le="5"}"#;
const PODS: &str = r#"jobset_webhook_request_duration_seconds_bucket{webhook="mpod.kb.io",le="+Inf"}"#;

const RESTARTS: &str = r#"jobset_restarts_total{namespace="ml",counted="true"}"#;
const UNCOUNTED: &str = r#"jobset_restarts_total{namespace="ml",counted="false"}"#;
const JOBSETS: &str = r#"jobset_active_jobsets{namespace="ml",instance="a"}"#;
const JOBSETS_OF_B: &str = r#"jobset_active_jobsets{namespace="ml",instance="b"}"#;

const BLAMING: &str = r#"jobset_node_blaming_jobsets{node="node-1",instance="a"}"#;

const UNCALLED: &str =
    r#"apiserver_admission_webhook_rejection_count{name="vjobset.kb.io",error_type="calling_webhook_error"}"#;
const DENIED: &str = r#"apiserver_admission_webhook_rejection_count{name="vjobset.kb.io",error_type="no_error"}"#;
const OTHER: &str =
    r#"apiserver_admission_webhook_rejection_count{name="example.com",error_type="calling_webhook_error"}"#;

#[rstest]
#[case::all_is_well(&[], &[])]
#[case::a_storm(&[(RESTARTS, "0+0x100 5+0x140"), (JOBSETS, "1+0x240")], &["JobSetRestartStorm"])]
#[case::three_restarts(&[(RESTARTS, "0+0x100 3+0x140"), (JOBSETS, "1+0x240")], &[])]
#[case::many_jobsets_restart_once_each(&[(RESTARTS, "0+0x100 40+0x140"), (JOBSETS, "40+0x240")], &[])]
#[case::many_jobsets_restart_five_times(&[(RESTARTS, "0+0x100 200+0x140"), (JOBSETS, "40+0x240")], &["JobSetRestartStorm"])]
#[case::storm_that_ends_its_jobsets(&[(RESTARTS, "0+0x100 200+0x140"), (JOBSETS, "40+0x100 0+0x140")], &["JobSetRestartStorm"])]
#[case::a_storm_ends_the_last_jobset(&[(RESTARTS, "0+0x100 5+0x140"), (JOBSETS, "1+0x100 0+0x140")], &["JobSetRestartStorm"])]
#[case::storm_through_a_change_of_leaders(
    &[(RESTARTS, "0+0x100 5+0x140"), (JOBSETS, "1+0x110 _x130"), (JOBSETS_OF_B, "_x111 1+0x129")], &["JobSetRestartStorm"]
)]
#[case::a_storm_that_costs_no_budget(&[(UNCOUNTED, "0+0x100 50+0x140"), (JOBSETS, "1+0x240")], &[])]
#[case::crash_loop(&[(BACKOFFS, "0+0x100 3+0x140")], &["JobSetCrashLoop"])]
#[case::two_waits(&[(BACKOFFS, "0+0x100 2+0x140")], &[])]
#[case::slow(&[(RECOVERED, "0+0x100 2+0x140"), (WITHIN_A_MINUTE, "0+0x240")], &["JobSetRestartSlow"])]
#[case::one_slow(&[(RECOVERED, "0+0x100 1+0x140"), (WITHIN_A_MINUTE, "0+0x240")], &[])]
#[case::half_a_minute(&[(RECOVERED, "0+0x100 9+0x140"), (WITHIN_A_MINUTE, "0+0x100 9+0x140")], &[])]
#[case::two_of_many_slow(&[(RECOVERED, "0+0x100 90+0x140"), (WITHIN_A_MINUTE, "0+0x100 88+0x140")], &[])]
#[case::spent(&[(r#"jobset_restart_budget_exhausted_total{namespace="ml"}"#, "0+0x100 1+0x140")], &["JobSetBudgetExhausted"])]
#[case::stall_that_restarts_its_group(&[(STALLS, "0+0x100 1+0x140"), (STALLED, "0+0x240")], &["JobSetStalls"])]
#[case::stall_that_lasts(&[(STALLS, "0+0x40 1+0x200"), (STALLED, "0+0x40 1+0x200")], &["JobSetStalls"])]
#[case::stall_through_a_change_of_leaders(
    &[(STALLS, "0+0x40 1+0x60 _x140"), (STALLED, "0+0x40 1+0x60 _x140"), (STALLED_AT_B, "_x102 1+0x138")], &["JobSetStalls"]
)]
#[case::stall_that_is_over(&[(STALLS, "0+0x40 1+0x200"), (STALLED, "0+0x40 1+0x40 0+0x160")], &[])]
#[case::stuck(&[(WAITING, "_x100 1+0x140")], &["JobSetBarrierStuck"])]
#[case::a_start(&[(WAITING, "_x110 4+0x9 0+0x120")], &[])]
#[case::begins_to_start(&[(WAITING, "_x118 4+0x120")], &[])]
#[case::nearly_spent(&[(COUNTED, "9+0x240"), (BUDGET, "10+0x240")], &["JobSetBudgetNearlySpent"])]
#[case::half_spent(&[(COUNTED, "5+0x240"), (BUDGET, "10+0x240")], &[])]
#[case::no_budget(&[(COUNTED, "0+0x240"), (BUDGET, "0+0x240")], &[])]
#[case::has_ended(&[(COUNTED, "1+0x240"), (BUDGET, "1+0x240"), (FAILED, "1+0x240")], &[])]
#[case::node_that_two_jobsets_blame(&[(BLAMING, "_x100 2+0x140")], &["JobSetNodeBlamed"])]
#[case::node_blamed_no_longer(&[(BLAMING, "2+0x100 stale _x139")], &[])]
#[case::node_that_one_jobset_blames(&[(BLAMING, "1+0x240")], &[])]
#[case::nobody_leads(&[(RECONCILING, "0+0x240")], &["JobSetControllerMissing"])]
#[case::no_controller(&[(RECONCILING, NONE)], &["JobSetControllerMissing"])]
#[case::a_failover(&[(RECONCILING, "1+0x118 0+0x1 1+0x120")], &[])]
#[case::an_api_server_that_fails(&[(PASSED, "0+1x240"), (UNAVAILABLE, "0+1x240")], &["JobSetControllerErrors"])]
#[case::a_job_over_its_quota(&[(PASSED, "8+0x240"), (UNAVAILABLE, "0+0x240"), (REFUSED, "0+1x240")], &[])]
#[case::a_panic(&[(PANICS, "0+0x100 1+0x140")], &["JobSetControllerPanics"])]
#[case::a_panic_an_hour_ago(&[(PANICS, "1+0x240")], &[])]
#[case::urgent_work_waits(&[(OLDEST_URGENT, "0+0x110 31+15x130")], &["JobSetUrgentWorkWaits"])]
#[case::urgent_work_waits_briefly(&[(OLDEST_URGENT, "0+0x110 40+0x3 0+0x2 40+0x3 0+0x120")], &[])]
#[case::urgent_work_is_always_there(&[(OLDEST_URGENT, "5+0x240")], &[])]
#[case::no_webhook(&[(MISMATCH, NONE), (EXPIRY, NONE), (NOT_BEFORE, NONE)], &["JobSetWebhookMissing"])]
#[case::a_webhook_without_a_certificate(&[(EXPIRY, NONE), (NOT_BEFORE, NONE)], &["JobSetWebhookMissing"])]
#[case::not_trusted(&[(MISMATCH, "1+0x240")], &["JobSetWebhookNotTrusted"])]
#[case::a_rotation(&[(MISMATCH, "0+0x116 1+0x2 0+0x120")], &[])]
#[case::expires(&[(NOT_BEFORE, "-7200000+0x240"), (EXPIRY, "576000+0x240")], &["JobSetWebhookCertificateExpires"])]
#[case::lives_for_a_week(&[(EXPIRY, "604800+0x240")], &[])]
#[case::lives_for_an_hour_and_was_renewed(&[(EXPIRY, "3600+0x80 5400+0x160"), (NOT_BEFORE, "0+0x80 1800+0x160")], &[])]
#[case::slow_reviews(&[(REVIEWS_1, "0+9x240"), (REVIEWS_2, "0+10x240"), (REVIEWS, "0+10x240")], &["JobSetWebhookSlow"])]
#[case::followers_wait_for_leaders(&[(PODS_1, "0+0x240"), (PODS_2, "0+10x240"), (PODS, "0+10x240")], &[])]
#[case::slow_pods(&[(PODS_1, "0+0x240"), (PODS_2, "0+9x240"), (PODS_5, "0+10x240"), (PODS, "0+10x240")], &["JobSetWebhookSlow"])]
#[case::cannot_be_called(&[(UNCALLED, "0+0x100 4+0x140")], &["JobSetWebhookCallsFail"])]
#[case::denies(&[(DENIED, "0+1x240")], &[])]
#[case::another_webhook(&[(OTHER, "0+1x240")], &[])]
#[case::overloaded(&[(r#"jobset_webhook_overload_total{limit="turn"}"#, "0+15x240")], &["JobSetWebhookOverloaded"])]
#[case::relays(&[(RELAYS, "2+0x240"), (r#"jobset_stream_relays{instance="b"}"#, "0+0x240")], &[])]
#[case::no_relay(&[(RELAYS, "2+0x100 0+0x140")], &["JobSetRelaysMissing"])]
#[case::a_change_of_leaders(&[(RELAYS, "2+0x115 0+0x3 2+0x120")], &[])]
#[case::strangers(&[(STRANGERS, "0+30x240")], &["JobSetRelayAuthenticationFails"])]
#[case::a_stranger(&[(STRANGERS, "0+1x240")], &[])]
fn alerts_fire_after_half_an_hour(#[case] series: &[Series], #[case] firing: &[&str]) -> Result<()> {
    fire(&Chart::alerts(), series, firing)
}

#[rstest]
#[case::of_a_storm("restartStorm=6", &[(RESTARTS, "0+0x100 5+0x140"), (JOBSETS, "1+0x240")], &[])]
#[case::of_a_lower_storm("restartStorm=0.5", &[(RESTARTS, "0+0x100 1+0x140"), (JOBSETS, "1+0x240")], &["JobSetRestartStorm"])]
#[case::of_a_barrier("barrierStuck=20m", &[(WAITING, "_x100 1+0x140")], &[])]
#[case::of_a_budget("budgetNearlySpent=0.4", &[(COUNTED, "5+0x240"), (BUDGET, "10+0x240")], &["JobSetBudgetNearlySpent"])]
#[case::of_a_node("nodeBlamed=3", &[(BLAMING, "2+0x240")], &[])]
#[case::of_a_certificate("webhookCertificateExpires=3", &[(NOT_BEFORE, "-7200000+0x240"), (EXPIRY, "576000+0x240")], &[])]
#[tokio::test]
async fn threshold_by_value_moves_its_alert(
    #[case] value: &str,
    #[case] series: &[Series],
    #[case] firing: &[&str],
) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("rules.yaml");
    let value = format!("metrics.rules.thresholds.{value}");
    std::fs::write(&file, alerts(&Chart::new(Helm::V4).await?, &["--set", &value]).await?)?;
    fire(&file, series, firing)
}

/// Checks which alerts of these rules fire after half an hour of these series, where all else is well.
fn fire(rules: &Path, series: &[Series], firing: &[&str]) -> Result<()> {
    let well = WELL.iter().filter(|(name, _)| series.iter().all(|(other, _)| other != name));
    let series: Vec<Value> =
        well.chain(series).map(|(series, values)| json!({"series": series, "values": values})).collect();
    let firing: Vec<Value> =
        firing.iter().map(|alert| json!({"labels": format!("{{alertname={alert:?}}}"), "value": 1})).collect();
    let test = json!({
        "rule_files": [rules],
        "evaluation_interval": "15s",
        "tests": [{"interval": "15s", "input_series": series, "promql_expr_test": [{
            "expr": r#"count by (alertname) (ALERTS{alertstate="firing"})"#, "eval_time": "30m", "exp_samples": firing,
        }]}],
    });
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("test.json");
    std::fs::write(&file, test.to_string())?;
    Programs::ensure()?.test_rules(&file)
}
