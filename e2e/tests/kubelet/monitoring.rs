//! A real Prometheus scrapes all programs while a group restarts: dashboard and alerts tell what happened.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use jobset_harness::chart::Chart;
use jobset_harness::group::Group;
use jobset_harness::install::NAMESPACE;
use jobset_harness::prometheus::{Programs, Prometheus};
use jobset_harness::wait::{self, Check};
use jobset_harness::workload::SUPERVISED;

use super::dashboard;
use super::shared::{installed, with_admission};

const LIMIT: Duration = Duration::from_mins(2);
/// The recoveries in place of the whole cluster.
const RECOVERIES: &str = r#"jobset_restart_duration_seconds_count{strategy="in_place",result="recovered"}"#;

/// Panels that have nothing to show unless something is out of the ordinary, or switched on.
const MAY_BE_EMPTY: [&str; 5] =
    ["Recovery by recreation, median", "Pods that wait at the barrier", "Budget left", "Turned away", "Avoided nodes"];

#[test]
fn alerting_rules_pass_promtool() -> Result<()> {
    Programs::ensure()?.check_rules(&Chart::alerts())
}

#[test]
fn dashboard_matches_schema_of_grafana() -> Result<()> {
    dashboard::check_schema()
}

#[tokio::test]
async fn restarts_are_scraped_panels_show_them() -> Result<()> {
    let rules = Chart::alerts();
    let cluster = installed().await?;
    let _admission = with_admission().await;
    let prometheus = Prometheus::start(cluster, NAMESPACE, &rules).await?;
    let group = Group::apply(cluster, "monitored", SUPERVISED, |workload| workload.of_shape(1, 2)).await?;
    let before = group.runs_in_epoch(1).await?;
    let worker = before.values().next().context("no worker")?;
    // A counter that is scraped for the first time after it was raised shows no increase.
    expect(&prometheus, r#"sum(jobset_restarts_total{namespace="monitored"})"#, 0.0).await?;
    let restarts = r#"sum(jobset_restarts_total{namespace="monitored",strategy="in_place",counted="true"})"#;
    // The agent reports the exit code of a supervised worker.
    let causes =
        r#"sum(jobset_restart_triggers_total{namespace="monitored",reason="container_exit",exit_class="1-127"})"#;
    // One by one: where the first of the cluster is scraped together with the second, neither shows as an increase.
    for (epoch, so_far) in [(2, 1.0), (3, 2.0)] {
        group.exit(worker, 3).await?;
        group.runs_in_epoch(epoch).await?;
        expect(&prometheus, restarts, so_far).await?;
        expect(&prometheus, causes, so_far).await?;
        wait::until(LIMIT, RECOVERIES, || async {
            Ok((!prometheus.query(RECOVERIES).await?.is_empty()).then_some(()))
        })
        .await?;
    }
    expect(&prometheus, "sum(jobset_leader)", 1.0).await?;
    expect(&prometheus, "sum(jobset_webhook_ca_mismatch)", 0.0).await?;

    wait::until_met(LIMIT, "all panels to show something", || async {
        let empty = empty_panels(&prometheus, "5m").await?;
        Ok(if empty.is_empty() { Check::Met(()) } else { Check::Unmet(format!("these show nothing: {empty:?}")) })
    })
    .await?;

    rules_can_be_evaluated(&prometheus).await?;
    let firing = prometheus.query(r#"ALERTS{alertstate="firing",severity="critical"}"#).await?;
    ensure!(firing.is_empty(), "nothing is wrong, and these fire: {firing:?}");
    group.remove().await
}

/// Asserts that Prometheus has the alerting rules, and can evaluate each.
pub(crate) async fn rules_can_be_evaluated(prometheus: &Prometheus) -> Result<()> {
    let rules = prometheus.rules().await?;
    ensure!(rules.len() >= 12 && rules.values().all(|health| health == "ok"), "{rules:?}");
    Ok(())
}

/// The panels that ought to show something of the time `range`, and do not.
pub(crate) async fn empty_panels(prometheus: &Prometheus, range: &str) -> Result<BTreeSet<String>> {
    let mut empty = BTreeSet::new();
    for query in dashboard::queries(range)? {
        let found = prometheus.query(&query.expression).await.with_context(|| format!("{query:?}"))?;
        if found.iter().all(|(_, value)| value.is_nan()) && !MAY_BE_EMPTY.contains(&query.panel.as_str()) {
            empty.insert(query.panel);
        }
    }
    Ok(empty)
}

/// Waits until an expression has this value.
async fn expect(prometheus: &Prometheus, expression: &str, wanted: f64) -> Result<()> {
    wait::until_met(LIMIT, format!("{expression} to be {wanted}"), || async {
        let found = prometheus.query(expression).await?;
        let is_it = found.first().is_some_and(|(_, value)| (value - wanted).abs() < f64::EPSILON);
        Ok(if is_it { Check::Met(()) } else { Check::Unmet(format!("{found:?}")) })
    })
    .await
}
