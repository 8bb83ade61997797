//! The JobSets that are measured: the same four workers, restarted in different ways. Pure.

use jobset_harness::workload::Workload;
use serde_json::json;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MeasuredMode {
    /// In place, by an injected agent beside each worker.
    Sidecar,
    /// In place, by an injected agent above each worker.
    Supervisor,
    /// By new Pods.
    Recreate,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ModeCase {
    /// Name of the case; the namespaces of its JobSets begin with it.
    pub(super) name: &'static str,
    pub(super) mode: MeasuredMode,
    /// Whether workers stay alive on SIGTERM: the kubelet, or the agent as a supervisor, kills each after two seconds.
    pub(super) ignores_sigterm: bool,
    /// Target: requests of one agent for each restart.
    pub(super) most_requests: Option<f64>,
    /// Target: the time from a worker's exit to the last worker's start, in seconds.
    pub(super) most_seconds: Option<f64>,
}

/// The agent as a sidecar of workers that end on SIGTERM.
pub(super) const SIDECAR: ModeCase =
    ModeCase { most_requests: Some(2.0), most_seconds: Some(2.5), ..case("sidecar", MeasuredMode::Sidecar) };

/// All kinds, in their order.
pub(super) const CASES: [ModeCase; 5] = [
    SIDECAR,
    ModeCase { ignores_sigterm: true, ..case("sidecar-ignoring-sigterm", MeasuredMode::Sidecar) },
    ModeCase { most_requests: Some(1.0), most_seconds: Some(0.3), ..case("supervisor", MeasuredMode::Supervisor) },
    ModeCase { ignores_sigterm: true, ..case("supervisor-ignoring-sigterm", MeasuredMode::Supervisor) },
    case("recreate", MeasuredMode::Recreate),
];

pub(super) const CASES_OVER_STREAM: [ModeCase; 2] = [
    ModeCase { most_requests: None, ..SIDECAR },
    ModeCase { most_seconds: Some(0.08), ..case("supervisor", MeasuredMode::Supervisor) },
];

/// A case without targets.
pub(crate) const fn case(name: &'static str, mode: MeasuredMode) -> ModeCase {
    ModeCase { name, mode, ignores_sigterm: false, most_requests: None, most_seconds: None }
}

impl ModeCase {
    pub(super) fn key(self) -> String {
        self.name.replace('-', "_")
    }

    /// Restarts after which a new JobSet takes over. The second in which a kubelet runs a sidecar's startup probe is fixed
    /// for the Pod's life, and so is the sync at which the worker starts: restarts of one JobSet are one sample.
    pub(super) fn restarts_of_a_group(self) -> usize {
        if self.mode == MeasuredMode::Sidecar { 2 } else { usize::MAX }
    }

    /// Changes the manifest of four recreated workers to restart as the case says, with two workers on each node.
    pub(super) fn of(self, workload: Workload) -> Workload {
        // More restarts than anyone measures.
        let mut workload = workload.named("train").with_max_restarts(1_000_000);
        if self.mode != MeasuredMode::Recreate {
            workload = workload.injected(&format!("{:?}", self.mode));
            workload.0["spec"]["failurePolicy"]["restartStrategy"] = json!("InPlaceRestart");
            for group in workload.0["spec"]["replicatedJobs"].as_array_mut().into_iter().flatten() {
                // Admission fills in the fields of a restart in place.
                group["template"]["spec"].as_object_mut().map(|job| job.remove("backoffLimit"));
            }
        }
        workload.each_pod(|pod| {
            // A supervisor needs the command of its worker; the image's entrypoint is the same program.
            pod["containers"][0]["command"] = json!(["/jobset-test-worker"]);
            pod["topologySpreadConstraints"] = json!([{
                "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"jobset.sigs.k8s.io/jobset-name": "train"}},
            }]);
        });
        if !self.ignores_sigterm {
            return workload;
        }
        // For the deletion of the JobSet; a restart in place gives two seconds, whatever the Pod says.
        workload.each_pod(|pod| pod["terminationGracePeriodSeconds"] = json!(2));
        workload.with_env("IGNORE_SIGTERM", "1")
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use jobset_harness::workload::RECREATE;
    use rstest::rstest;
    use serde_json::Value;

    use super::*;

    #[rstest]
    #[case(CASES[0], json!("Sidecar"), "InPlaceRestart", Value::Null, Value::Null)]
    #[case(CASES[1], json!("Sidecar"), "InPlaceRestart", Value::Null, json!(2))]
    #[case(CASES[2], json!("Supervisor"), "InPlaceRestart", Value::Null, Value::Null)]
    #[case(CASES[4], Value::Null, "Recreate", json!(0), Value::Null)]
    fn manifest_of_each_case_has_its_mode(
        #[case] case: ModeCase,
        #[case] injected: Value,
        #[case] strategy: &str,
        #[case] backoff_limit: Value,
        #[case] grace: Value,
    ) {
        let workload = case.of(Workload::new(RECREATE, "ns", Path::new("/journals")).unwrap());
        assert_eq!((workload.name(), workload.pods()), ("train", 4));
        let jobset = workload.0;
        assert_eq!(jobset["metadata"]["annotations"]["jobset.sigs.k8s.io/inject-agent"], injected);
        assert_eq!(jobset["spec"]["failurePolicy"]["restartStrategy"], strategy);
        let job = &jobset["spec"]["replicatedJobs"][0]["template"]["spec"];
        assert_eq!(job["backoffLimit"], backoff_limit);
        let pod = &job["template"]["spec"];
        assert_eq!(pod["topologySpreadConstraints"][0]["maxSkew"], 1);
        let ignoring = json!({"name": "IGNORE_SIGTERM", "value": "1"});
        assert_eq!(pod["containers"][0]["env"].as_array().unwrap().contains(&ignoring), case.ignores_sigterm);
        assert_eq!(pod["terminationGracePeriodSeconds"], grace);
    }
}
