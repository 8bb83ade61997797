//! The JobSets that are measured: the same four workers, restarted in different ways. Pure.

use jobset_harness::workload::Workload;
use serde_json::json;

/// How workers are restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MeasuredMode {
    /// In place, by an injected agent beside each worker.
    Sidecar,
    /// In place, by an injected agent above each worker.
    Supervisor,
    /// By new Pods.
    Recreate,
}

/// One kind of restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ModeCase {
    /// Name of the case; the namespaces of its JobSets begin with it.
    pub(super) name: &'static str,
    pub(super) mode: MeasuredMode,
    /// Whether workers stay alive on SIGTERM: the kubelet, or the agent as a supervisor, kills each after two seconds.
    pub(super) ignores_sigterm: bool,
}

/// All kinds, in their order.
pub(super) const CASES: [ModeCase; 5] = {
    use MeasuredMode::{Recreate, Sidecar, Supervisor};
    [
        ModeCase { name: "sidecar", mode: Sidecar, ignores_sigterm: false },
        ModeCase { name: "sidecar-ignoring-sigterm", mode: Sidecar, ignores_sigterm: true },
        ModeCase { name: "supervisor", mode: Supervisor, ignores_sigterm: false },
        ModeCase { name: "supervisor-ignoring-sigterm", mode: Supervisor, ignores_sigterm: true },
        ModeCase { name: "recreate", mode: Recreate, ignores_sigterm: false },
    ]
};

impl ModeCase {
    /// Restarts after which a new JobSet takes over. The second in which a kubelet runs a sidecar's startup probe is fixed
    /// for the Pod's life, and so is the sync at which the worker starts: restarts of one JobSet are one sample.
    pub(super) fn restarts_of_a_group(self) -> usize {
        if self.mode == MeasuredMode::Sidecar { 2 } else { usize::MAX }
    }

    /// Changes the manifest of four recreated workers to restart as the case says, with two workers on each node.
    pub(super) fn of(self, workload: Workload) -> Workload {
        let Workload(mut jobset) = workload;
        jobset["metadata"]["name"] = json!("train");
        // More restarts than anyone measures.
        jobset["spec"]["failurePolicy"]["maxRestarts"] = json!(1_000_000);
        if self.mode != MeasuredMode::Recreate {
            let shape = format!("{:?}", self.mode);
            jobset["metadata"]["annotations"] = json!({"jobset.sigs.k8s.io/inject-agent": shape});
            jobset["spec"]["failurePolicy"]["restartStrategy"] = json!("InPlaceRestart");
            for group in jobset["spec"]["replicatedJobs"].as_array_mut().into_iter().flatten() {
                // Admission fills in the fields of a restart in place.
                group["template"]["spec"].as_object_mut().map(|job| job.remove("backoffLimit"));
            }
        }
        let mut workload = Workload(jobset);
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

    use jobset_api::labels;
    use jobset_harness::workload::RECREATE;
    use rstest::rstest;
    use serde_json::Value;

    use super::*;

    #[rstest]
    #[case(CASES[0], json!("Sidecar"), "InPlaceRestart", Value::Null, Value::Null, 2)]
    #[case(CASES[1], json!("Sidecar"), "InPlaceRestart", Value::Null, json!(2), 2)]
    #[case(CASES[2], json!("Supervisor"), "InPlaceRestart", Value::Null, Value::Null, usize::MAX)]
    #[case(CASES[3], json!("Supervisor"), "InPlaceRestart", Value::Null, json!(2), usize::MAX)]
    #[case(CASES[4], Value::Null, "Recreate", json!(0), Value::Null, usize::MAX)]
    fn manifest_of_each_case_has_its_mode(
        #[case] case: ModeCase,
        #[case] injected: Value,
        #[case] strategy: &str,
        #[case] backoff_limit: Value,
        #[case] grace: Value,
        #[case] restarts: usize,
    ) {
        let workload = case.of(Workload::new(RECREATE, "ns", Path::new("/journals")).unwrap());
        assert_eq!((workload.name(), workload.pods(), case.restarts_of_a_group()), ("train", 4, restarts));
        let jobset = workload.0;
        assert_eq!(jobset["metadata"]["annotations"]["jobset.sigs.k8s.io/inject-agent"], injected);
        assert_eq!(jobset["spec"]["failurePolicy"]["restartStrategy"], strategy);
        assert_eq!(jobset["spec"]["failurePolicy"]["maxRestarts"], 1_000_000);
        let job = &jobset["spec"]["replicatedJobs"][0]["template"]["spec"];
        assert_eq!(job["backoffLimit"], backoff_limit);
        let pod = &job["template"]["spec"];
        assert_eq!(pod["containers"][0]["command"], json!(["/jobset-test-worker"]));
        let spread = json!([{
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {labels::JOBSET_NAME: "train"}},
        }]);
        assert_eq!(pod["topologySpreadConstraints"], spread);
        let ignoring = json!({"name": "IGNORE_SIGTERM", "value": "1"});
        assert_eq!(pod["containers"][0]["env"].as_array().unwrap().contains(&ignoring), case.ignores_sigterm);
        assert_eq!(pod["terminationGracePeriodSeconds"], grace);
    }
}
