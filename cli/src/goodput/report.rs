//! Where the time of JobSets went.

use std::collections::BTreeMap;

use jobset_api::{JobSet, Ledger, LedgerBucket, LedgerTimes};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;
use serde::Serialize;

/// JobSets, sorted by namespace and name.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GoodputReport {
    /// The namespace; none for all namespaces.
    pub namespace: Option<String>,
    pub jobsets: Vec<GoodputRow>,
    /// JobSets whose status has no ledger: no controller that keeps one has written it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub without_ledger: Vec<String>,
}

/// Where the time of one JobSet went.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct GoodputRow {
    pub namespace: String,
    pub name: String,
    /// What it spends its time with now.
    pub bucket: LedgerBucket,
    pub since: Timestamp,
    /// Whether it lived before the ledger began: it is older than its controller's release.
    pub begins_late: bool,
    /// Seconds since the ledger began, until now or until it finished.
    pub total_seconds: f64,
    /// Those of them in which it was not suspended.
    pub active_seconds: f64,
    pub seconds: BTreeMap<&'static str, f64>,
    /// The part of the running seconds whose steps a restart lost.
    pub redone_seconds: f64,
    pub redone_steps: i64,
    /// Running seconds without those done again, as a share of the active ones: 1 is everything. None if it has not been active.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goodput: Option<f64>,
}

/// A new JobSet is seen within this time, in milliseconds. The API server gives the time of creation in whole seconds.
const SEEN_WITHIN: i128 = 2_000;

pub fn report(jobsets: &[JobSet], namespace: Option<&str>, now: Timestamp) -> GoodputReport {
    let mut rows: Vec<GoodputRow> = jobsets.iter().filter_map(|jobset| row(jobset, now)).collect();
    rows.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
    let mut without_ledger: Vec<String> =
        jobsets.iter().filter(|jobset| ledger(jobset).is_none()).map(|jobset| full_name(jobset, namespace)).collect();
    without_ledger.sort();
    GoodputReport { namespace: namespace.map(str::to_owned), jobsets: rows, without_ledger }
}

/// Where the time of a JobSet went; none if its status has no ledger.
fn row(jobset: &JobSet, now: Timestamp) -> Option<GoodputRow> {
    let ledger = ledger(jobset)?;
    let Spent { times, total, active, redone, goodput } = Spent::of(ledger, now);
    let began = ledger.began();
    let created = jobset.metadata.creation_timestamp.as_ref().map(|time| time.0);
    Some(GoodputRow {
        namespace: jobset.namespace().unwrap_or_default(),
        name: jobset.name_any(),
        bucket: ledger.bucket,
        since: began,
        begins_late: created.is_some_and(|created| began.duration_since(created).as_millis() > SEEN_WITHIN),
        total_seconds: seconds(total),
        active_seconds: seconds(active),
        seconds: LedgerBucket::TIMED.iter().map(|bucket| (bucket.word(), seconds(times.of(*bucket)))).collect(),
        redone_seconds: seconds(redone),
        redone_steps: ledger.redone_steps,
        goodput,
    })
}

/// What a ledger comes to at some time, in milliseconds.
pub(super) struct Spent {
    times: LedgerTimes,
    total: i64,
    /// Without the time in which it was suspended.
    pub(super) active: i64,
    pub(super) redone: i64,
    /// None if it has not been active.
    pub(super) goodput: Option<f64>,
}

impl Spent {
    pub(super) fn of(ledger: &Ledger, now: Timestamp) -> Self {
        let times = ledger.at(now);
        let (total, redone) = (times.sum(), ledger.redone_milliseconds.clamp(0, times.running.max(0)));
        let active = total.saturating_sub(times.suspended);
        let goodput = (active > 0).then(|| seconds(times.running - redone) / seconds(active));
        Self { times, total, active, redone, goodput }
    }
}

fn ledger(jobset: &JobSet) -> Option<&Ledger> {
    jobset.status.as_ref()?.ledger.as_ref()
}

fn full_name(jobset: &JobSet, namespace: Option<&str>) -> String {
    let name = jobset.name_any();
    if namespace.is_some() { name } else { format!("{}/{name}", jobset.namespace().unwrap_or_default()) }
}

// Milliseconds of a life are exact as a float.
#[allow(clippy::cast_precision_loss)]
pub(super) fn seconds(milliseconds: i64) -> f64 {
    milliseconds as f64 / 1000.0
}
