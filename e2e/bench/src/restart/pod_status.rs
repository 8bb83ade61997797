//! The status of a Pod of two containers, sidecar and worker, as a kubelet writes it. Pure.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

/// What a Pod's status shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PodPicture {
    /// The worker has ended; the sidecar runs.
    WorkerTerminated { exit_code: u8 },
    /// All containers have ended, and will be restarted.
    Restarting,
    /// No container has started again.
    Waiting,
    /// Everything runs.
    Ready,
    /// The supervisor restarts the worker.
    NotReady,
}

/// Reason of all containers in a restart of the Pod.
const RESTARTING: &str = "RestartingAllContainers";

/// The status of the Pod of this index after `restarts` restarts.
pub(super) fn pod_status(picture: PodPicture, index: usize, restarts: u32, now: &str) -> Value {
    let is_ready = picture == PodPicture::Ready;
    let has_ended = matches!(picture, PodPicture::Restarting | PodPicture::Waiting);
    let phase = if picture == PodPicture::Waiting { "Pending" } else { "Running" };
    let condition = |type_: &str, holds: bool| json!({"type": type_, "status": if holds { "True" } else { "False" }, "lastTransitionTime": now});
    let container = |name: &str, ready: bool| {
        let id = format!("containerd://{:0>64}", format!("{name}{index:08}{restarts:04}"));
        let ended = |exit_code: u8, reason: &str| {
            json!({"terminated": {
                "exitCode": exit_code, "reason": reason, "startedAt": now, "finishedAt": now, "containerID": id,
            }})
        };
        let state = match picture {
            PodPicture::WorkerTerminated { exit_code } if name == "worker" => ended(exit_code, "Error"),
            PodPicture::Restarting => ended(137, RESTARTING),
            PodPicture::Waiting => json!({"waiting": {
                "reason": RESTARTING, "message": "The container is removed because RestartAllContainers in place",
            }}),
            _ => json!({"running": {"startedAt": now}}),
        };
        // The exit code and the id of the old container are lost in a restart.
        let last =
            json!({"terminated": {"exitCode": 137, "reason": RESTARTING, "startedAt": null, "finishedAt": null}});
        json!({
            "name": name,
            "image": format!("registry.example/{name}:1"),
            "imageID": format!("registry.example/{name}@sha256:{}", "0".repeat(64)),
            "containerID": if picture == PodPicture::Waiting { "" } else { &id },
            "restartCount": restarts,
            "ready": ready,
            "started": state.get("running").is_some(),
            "state": state,
            "lastState": if restarts == 0 { json!({}) } else { last },
        })
    };
    // 10.1.0.0 and the addresses after it.
    let ip = Ipv4Addr::from_bits(0x0a01_0000 + u32::try_from(index).unwrap_or_default());
    json!({
        "phase": phase,
        "conditions": [
            condition("PodReadyToStartContainers", true),
            condition("Initialized", !has_ended),
            condition("Ready", is_ready),
            condition("ContainersReady", is_ready),
            condition("PodScheduled", true),
            condition("AllContainersRestarting", picture == PodPicture::Restarting),
        ],
        "hostIP": "10.0.0.1",
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "startTime": now,
        "initContainerStatuses": [container("agent", !has_ended)],
        "containerStatuses": [container("worker", is_ready)],
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodStatus;
    use rstest::rstest;

    use super::*;

    const NOW: &str = "2026-01-01T00:00:00Z";

    #[rstest]
    #[case::worker_ended(PodPicture::WorkerTerminated { exit_code: 7 }, "Running", Some(7), false, false)]
    #[case::all_ended(PodPicture::Restarting, "Running", Some(137), true, false)]
    #[case::waiting(PodPicture::Waiting, "Pending", None, false, false)]
    #[case::ready(PodPicture::Ready, "Running", None, false, true)]
    #[case::restarted_by_supervisor(PodPicture::NotReady, "Running", None, false, false)]
    fn pod_status_matches_kubelet(
        #[case] picture: PodPicture,
        #[case] phase: &str,
        #[case] exit_code: Option<i32>,
        #[case] restarting: bool,
        #[case] ready: bool,
    ) {
        let status: PodStatus = serde_json::from_value(pod_status(picture, 3, 1, NOW)).unwrap();
        assert_eq!(status.phase.as_deref(), Some(phase));
        let worker = &status.container_statuses.as_ref().unwrap()[0];
        let ended = worker.state.as_ref().unwrap().terminated.as_ref().map(|ended| ended.exit_code);
        assert_eq!((ended, worker.ready), (exit_code, ready));
        let holds = |type_: &str| {
            let conditions = status.conditions.as_ref().unwrap();
            conditions.iter().find(|condition| condition.type_ == type_).unwrap().status == "True"
        };
        assert_eq!((holds("AllContainersRestarting"), holds("Ready")), (restarting, ready));
    }
}
