//! The breaks: how each is made, what names it, and what mends it.

use anyhow::{Context, Result};
use jobset_harness::cluster::Cluster;
use jobset_harness::group::Group;
use jobset_harness::install::kubectl;
use jobset_harness::process::{self, Signal};
use jobset_harness::workload::Workload;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::json;

/// The ServiceAccount that does not exist in one break.
const ACCOUNT: &str = "trainer";
const QUOTA: &str = "too-small";
/// Seconds until a supervisor kills a worker that ignores SIGTERM: longer than `explain` may take to say so.
const STOP_GRACE: &str = "20";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Break {
    ExitOne,
    FatalCode,
    KillNine,
    OutOfMemory,
    Drain,
    DeletedPod,
    WrongImage,
    TooLarge,
    CrashLoop,
    DeafPeers,
    DeafDeleted,
    MissingAccount,
    Quota,
}

pub(super) struct Naming {
    /// Reasons of the first finding of `explain`.
    pub(super) findings: &'static [&'static str],
    pub(super) conditions: &'static [&'static str],
    /// Words of which finding and condition have one.
    pub(super) words: &'static [&'static str],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It runs again by itself.
    Recovers,
    /// It runs once somebody has mended what was broken.
    IsMended,
    /// It waits, or has failed.
    Stays,
}

impl Break {
    pub(super) const ALL: [Self; 13] = [
        Self::ExitOne,
        Self::FatalCode,
        Self::KillNine,
        Self::OutOfMemory,
        Self::Drain,
        Self::DeletedPod,
        Self::WrongImage,
        Self::TooLarge,
        Self::CrashLoop,
        Self::DeafPeers,
        Self::DeafDeleted,
        Self::MissingAccount,
        Self::Quota,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ExitOne => "exit-1",
            Self::FatalCode => "fatal-code",
            Self::KillNine => "kill-9",
            Self::OutOfMemory => "out-of-memory",
            Self::Drain => "drain",
            Self::DeletedPod => "deleted-pod",
            Self::WrongImage => "wrong-image",
            Self::TooLarge => "too-large",
            Self::CrashLoop => "crash-loop",
            Self::DeafPeers => "deaf-peers",
            Self::DeafDeleted => "deaf-deleted",
            Self::MissingAccount => "missing-account",
            Self::Quota => "quota",
        }
    }

    pub(super) fn naming(self, shape: &str) -> Naming {
        let naming = |findings, conditions, words| Naming { findings, conditions, words };
        let restarts = |words| naming(&["Restarting", "WaitingAtBarrier"], &["RestartingJobSet"], words);
        // A sidecar's kubelet may erase the exit code before it has told of it.
        let exits = |words, words_of_sidecar| restarts(if shape == "Sidecar" { words_of_sidecar } else { words });
        match self {
            Self::ExitOne => exits(
                &["exited with code 1 (Error): loss is NaN", "exited with code 1: loss is NaN"],
                &["exited with code 1 (Error): loss is NaN", "exit code unknown"],
            ),
            Self::FatalCode => naming(&["Failed"], &["Failed"], &["code 42"]),
            Self::KillNine => exits(&["code 137 (signal 9)"], &["code 137 (Error)", "exit code unknown"]),
            Self::OutOfMemory => exits(&["OOMKilled"], &["OOMKilled", "exit code unknown"]),
            Self::Drain => naming(
                &["Restarting", "WaitingAtBarrier", "Terminating"],
                &["RestartingJobSet"],
                &["disrupted", "evict", "is being deleted"],
            ),
            Self::DeletedPod | Self::DeafDeleted => naming(
                &["Restarting", "WaitingAtBarrier", "Terminating"],
                &["RestartingJobSet"],
                &["was deleted", "is being deleted"],
            ),
            Self::WrongImage => naming(
                &["ImagePull", "WorkersNotRunning"],
                &["WorkersNotRunning", "BarrierWaiting"],
                &["localhost/absent:1"],
            ),
            Self::TooLarge => naming(
                &["Unschedulable"],
                &["BarrierWaiting"],
                &["cannot be scheduled on any node", "Insufficient cpu"],
            ),
            Self::CrashLoop => {
                naming(&["KeepsFailing"], &["RestartBackoff"], &["code 7", "exit code unknown", "times in a row"])
            }
            Self::DeafPeers => exits(
                &["SIGTERM", "exited with code 1: loss is NaN"],
                &["exited with code 1 (Error): loss is NaN", "exit code unknown"],
            ),
            Self::MissingAccount => naming(
                &["PodsRefused"],
                &["ChildRefused"],
                &["serviceaccount \\\"trainer\\\" not found", "serviceaccount \"trainer\" not found"],
            ),
            Self::Quota => naming(&["QuotaExceeded", "ChildRefused"], &["ChildRefused"], &["exceeded quota"]),
        }
    }

    pub(super) fn outcome(self) -> Outcome {
        match self {
            Self::FatalCode | Self::WrongImage | Self::TooLarge | Self::CrashLoop => Outcome::Stays,
            Self::MissingAccount | Self::Quota => Outcome::IsMended,
            _ => Outcome::Recovers,
        }
    }

    /// Whether the group never runs, so that the break begins with it.
    pub(super) fn is_of_birth(self) -> bool {
        matches!(self, Self::WrongImage | Self::TooLarge | Self::CrashLoop | Self::MissingAccount | Self::Quota)
    }

    pub(super) fn change(self, mut workload: Workload) -> Workload {
        workload.each_pod(|pod| {
            if self == Self::MissingAccount {
                pod["serviceAccountName"] = json!(ACCOUNT);
            }
            let worker = &mut pod["containers"][0];
            match self {
                Self::WrongImage => worker["image"] = json!("localhost/absent:1"),
                Self::TooLarge => worker["resources"]["requests"]["cpu"] = json!("512"),
                Self::CrashLoop => worker["command"] = json!(["sh", "-c", "echo loss is NaN; exit 7"]),
                Self::DeafPeers | Self::DeafDeleted => {
                    let script = worker["command"][2].as_str().unwrap_or_default();
                    worker["command"][2] = json!(script.replace("trap 'exit 143' TERM", "trap '' TERM"));
                    if let Some(env) = worker["env"].as_array_mut() {
                        env.push(json!({"name": "STOP_GRACE_SECONDS", "value": STOP_GRACE}));
                    }
                }
                _ => {}
            }
        });
        workload
    }

    /// What is broken before the JobSet is created.
    pub(super) async fn prepare(self, cluster: &Cluster, namespace: &str) -> Result<()> {
        match self {
            Self::Quota => {
                kubectl(cluster, &["create", "quota", QUOTA, "--hard=pods=1", "-n", namespace]).await.map(drop)
            }
            _ => Ok(()),
        }
    }

    pub(super) async fn strike(self, cluster: &Cluster, group: &Group) -> Result<()> {
        if self.is_of_birth() {
            return Ok(());
        }
        let pods = group.live_pods().await?;
        let victim = pods.first().context("no Pod")?;
        match self {
            Self::ExitOne | Self::DeafPeers => order(cluster, victim, "echo loss is NaN; exit 1").await,
            Self::FatalCode => order(cluster, victim, "echo no data; exit 42").await,
            Self::OutOfMemory => order(cluster, victim, "exec tail /dev/zero").await,
            Self::KillNine => process::signal("sh", &[("POD_NAME", &victim.name_any())], Signal::KILL),
            Self::DeletedPod | Self::DeafDeleted => {
                let name = victim.name_any();
                kubectl(cluster, &["delete", "pod", &name, "-n", &group.namespace, "--wait=false"]).await.map(drop)
            }
            Self::Drain => {
                let node = victim.spec.as_ref().and_then(|spec| spec.node_name.clone()).context("no node")?;
                let selector = format!("--pod-selector=jobset.sigs.k8s.io/jobset-name={}", group.name);
                let drained =
                    kubectl(cluster, &["drain", &node, &selector, "--delete-emptydir-data", "--timeout=2m"]).await;
                kubectl(cluster, &["uncordon", &node]).await?;
                drained.map(drop)
            }
            _ => Ok(()),
        }
    }

    pub(super) async fn mend(self, cluster: &Cluster, namespace: &str) -> Result<()> {
        match self {
            Self::Quota => {
                kubectl(cluster, &["delete", "quota", QUOTA, "-n", namespace, "--ignore-not-found"]).await.map(drop)
            }
            Self::MissingAccount => {
                kubectl(cluster, &["create", "serviceaccount", ACCOUNT, "-n", namespace]).await.map(drop)
            }
            _ => Ok(()),
        }
    }
}

/// Has the worker of a Pod do something.
async fn order(cluster: &Cluster, pod: &Pod, what: &str) -> Result<()> {
    let (name, namespace) = (pod.name_any(), pod.namespace().unwrap_or_default());
    let write = format!("echo '{what}' > /tmp/do");
    kubectl(cluster, &["exec", &name, "-n", &namespace, "-c", "worker", "--", "sh", "-c", &write]).await.map(drop)
}
