//! Looks at a broken group until its reason is named, and it runs again.

use std::cell::RefCell;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use jobset_api::JobSetStatus;
use jobset_harness::cluster::Cluster;
use jobset_harness::group::Group;
use jobset_harness::wait::{self, Check};
use serde_json::Value;

use super::kinds::Naming;
use crate::kubelet::run_kubectl_jobset;

/// How long the reason of a break, or a recovery, may take on a machine that does other things.
pub(super) const LIMIT: Duration = Duration::from_mins(4);

#[derive(Debug, Default)]
pub(super) struct Seen {
    /// When `explain` named the reason.
    pub(super) explained: Option<f64>,
    /// When a condition did, or the last of the recorded restarts.
    pub(super) reported: Option<f64>,
    /// When the group ran again.
    pub(super) recovered: Option<f64>,
    /// Each first finding of `explain`, and when it came.
    pub(super) findings: Vec<(f64, String)>,
}

pub(super) struct Observer<'a> {
    pub(super) cluster: &'a Cluster,
    pub(super) group: &'a Group,
    pub(super) naming: Naming,
    pub(super) began: Instant,
    /// `syncedEpoch` before that.
    pub(super) epoch: i32,
    pub(super) seen: RefCell<Seen>,
}

impl Observer<'_> {
    /// Looks until the reason is named in both places. A group that runs again before `explain` was asked has none to name.
    pub(super) async fn until_named(&self) -> Result<()> {
        let is_explained = |seen: &Seen| seen.explained.is_some() || seen.recovered.is_some();
        self.until("be explained and reported", |seen| is_explained(seen) && seen.reported.is_some()).await
    }

    pub(super) async fn until_recovered(&self) -> Result<()> {
        self.until("run again", |seen| seen.recovered.is_some()).await
    }

    async fn until(&self, what: &str, is_met: impl Fn(&Seen) -> bool) -> Result<()> {
        let met = wait::until_met(LIMIT, format!("{} to {what}", self.group.name), || async {
            let said = self.look().await?;
            Ok(if is_met(&self.seen.borrow()) { Check::Met(()) } else { Check::Unmet(said) })
        });
        met.await.with_context(|| format!("{:#?}", self.seen.borrow()))
    }

    /// Looks once. Returns what was said.
    async fn look(&self) -> Result<String> {
        let (explained, _) = explain(self.cluster, self.group).await?;
        let asked = self.began.elapsed().as_secs_f64();
        let status = self.group.status().await?;
        let read = self.began.elapsed().as_secs_f64();
        let first = &explained["findings"][0];
        let reason = first["reason"].as_str().unwrap_or_default();
        let said = format!("{reason}: {} {}", first["what"].as_str().unwrap_or_default(), first["details"]);
        let line = format!("{} {said}", explained["state"].as_str().unwrap_or_default());
        let mut seen = self.seen.borrow_mut();
        if seen.findings.last().is_none_or(|(_, last)| *last != line) {
            seen.findings.push((asked, line));
        }
        if self.naming.findings.contains(&reason) && self.has_words(&said) {
            seen.explained.get_or_insert(asked);
        }
        if self.is_reported(&status) {
            seen.reported.get_or_insert(read);
        }
        if explained["runs"] == true && status.synced_epoch > self.epoch.max(status.deprecated_epoch) {
            seen.recovered.get_or_insert(read);
        }
        Ok(format!("{explained:#}\n{:#?}", status.conditions))
    }

    fn has_words(&self, text: &str) -> bool {
        self.naming.words.iter().any(|words| text.contains(words))
    }

    fn is_reported(&self, status: &JobSetStatus) -> bool {
        let mut conditions = status.conditions.iter().filter(|it| it.status == "True");
        let mut restarts =
            status.recent_restarts.iter().filter(|_| self.naming.conditions.contains(&"RestartingJobSet"));
        conditions.any(|it| self.naming.conditions.contains(&it.type_.as_str()) && self.has_words(&it.message))
            || restarts.next_back().is_some_and(|restart| self.has_words(&restart.message))
    }
}

/// What `kubectl jobset explain` says, as JSON, and its exit code.
pub(super) async fn explain(cluster: &Cluster, group: &Group) -> Result<(Value, Option<i32>)> {
    let args = ["explain", &group.name, "-n", &group.namespace, "-o", "json"];
    let (text, code) = run_kubectl_jobset(cluster, &args).await?;
    Ok((serde_json::from_str(&text).with_context(|| format!("explain says: {text}"))?, code))
}

/// Waits until `explain` says that the group runs.
pub(super) async fn runs(cluster: &Cluster, group: &Group) -> Result<()> {
    wait::until_met(LIMIT, format!("{} to run", group.name), || async {
        let (explained, code) = explain(cluster, group).await?;
        Ok(if code == Some(0) { Check::Met(()) } else { Check::Unmet(explained.to_string()) })
    })
    .await
}
