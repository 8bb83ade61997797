//! The status of a Pod of two containers, sidecar and worker, as a kubelet writes it. Pure.

use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// What is to be seen of a Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Picture {
    /// The worker has ended; the sidecar runs.
    WorkerTerminated {
        /// The worker's exit code.
        exit_code: u8,
    },
    /// All containers have ended, and will be restarted.
    Restarting,
    /// No container has started again.
    Waiting,
    /// Everything runs.
    Ready,
    /// The worker is being restarted by its supervisor.
    NotReady,
}

/// A container that is to be seen.
#[derive(Clone, Copy)]
enum Container {
    Running,
    Terminated { exit_code: u8, reason: &'static str },
    Waiting,
}

/// Reason of what ends and starts with a restart of all containers.
const RESTARTING: &str = "RestartingAllContainers";

/// The status of the Pod of this index after so many restarts.
pub(super) fn pod_status(picture: Picture, index: usize, restarts: u32, now: &str) -> Value {
    use Container::{Running, Terminated, Waiting};
    let reset = Terminated { exit_code: 137, reason: RESTARTING };
    let (phase, sidecar, worker) = match picture {
        Picture::WorkerTerminated { exit_code } => ("Running", Running, Terminated { exit_code, reason: "Error" }),
        Picture::Restarting => ("Running", reset, reset),
        Picture::Waiting => ("Pending", Waiting, Waiting),
        Picture::Ready | Picture::NotReady => ("Running", Running, Running),
    };
    let is_ready = picture == Picture::Ready;
    let is_initialized = phase == "Running" && picture != Picture::Restarting;
    let condition = |type_: &str, holds: bool| json!({"type": type_, "status": if holds { "True" } else { "False" }, "lastTransitionTime": now});
    let container = |name: &str, state: Container, ready: bool| container(name, state, ready, index, restarts, now);
    let ip = ip(index);
    json!({
        "phase": phase,
        "conditions": [
            condition("PodReadyToStartContainers", true),
            condition("Initialized", is_initialized),
            condition("Ready", is_ready),
            condition("ContainersReady", is_ready),
            condition("PodScheduled", true),
            condition("AllContainersRestarting", picture == Picture::Restarting),
        ],
        "hostIP": "10.0.0.1",
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "startTime": now,
        "initContainerStatuses": [container("agent", sidecar, is_initialized)],
        "containerStatuses": [container("worker", worker, is_ready)],
    })
}

fn container(name: &str, state: Container, ready: bool, index: usize, restarts: u32, now: &str) -> Value {
    let id = container_id(name, index, restarts);
    let (shown, id, runs) = match state {
        Container::Running => (json!({"running": {"startedAt": now}}), id, true),
        Container::Terminated { exit_code, reason } => {
            let ended = json!({"exitCode": exit_code, "reason": reason, "startedAt": now, "finishedAt": now, "containerID": id});
            (json!({"terminated": ended}), id, false)
        }
        Container::Waiting => {
            let message = "The container is removed because RestartAllContainers in place";
            (json!({"waiting": {"reason": RESTARTING, "message": message}}), String::new(), false)
        }
    };
    // A restart leaves neither the true exit code nor the old container's id.
    let last = if restarts == 0 {
        json!({})
    } else {
        json!({"terminated": {"exitCode": 137, "reason": RESTARTING, "startedAt": null, "finishedAt": null}})
    };
    json!({
        "name": name,
        "image": format!("registry.example/{name}:1"),
        "imageID": format!("registry.example/{name}@sha256:{}", "0".repeat(64)),
        "containerID": id,
        "restartCount": restarts,
        "ready": ready,
        "started": runs,
        "state": shown,
        "lastState": last,
    })
}

/// An id of its own for each container of each Pod after each restart.
fn container_id(name: &str, index: usize, restarts: u32) -> String {
    format!("containerd://{:x}", Sha256::digest(format!("{name} {index} {restarts}")))
}

/// An address of its own for each Pod.
fn ip(index: usize) -> String {
    format!("10.{}.{}.{}", 1 + index / 65_536, index / 256 % 256, index % 256)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use k8s_openapi::api::core::v1::PodStatus;
    use rstest::rstest;

    use super::*;

    const NOW: &str = "2026-01-01T00:00:00Z";

    #[rstest]
    #[case::worker_ended(Picture::WorkerTerminated { exit_code: 7 }, "Running", Some(7), false, false)]
    #[case::all_ended(Picture::Restarting, "Running", Some(137), true, false)]
    #[case::waiting(Picture::Waiting, "Pending", None, false, false)]
    #[case::ready(Picture::Ready, "Running", None, false, true)]
    #[case::restarted_by_its_supervisor(Picture::NotReady, "Running", None, false, false)]
    fn status_shows_what_a_kubelet_would(
        #[case] picture: Picture,
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

    #[test]
    fn containers_have_ids_of_their_own_and_new_ones_after_a_restart() {
        let ids = [("agent", 1, 0), ("worker", 1, 0), ("worker", 2, 0), ("worker", 1, 1)];
        let ids: HashSet<String> = ids.map(|(name, index, restarts)| container_id(name, index, restarts)).into();
        assert_eq!(ids.len(), 4);
        assert_eq!((ip(0), ip(256), ip(65_537)), ("10.1.0.0".into(), "10.1.1.0".into(), "10.2.0.1".into()));
    }
}
