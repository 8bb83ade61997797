//! The JobSets that are measured: the same four workers, restarted in different ways. Pure.

use serde_json::json;

use jobset_harness::workload::Workload;

/// How workers are restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// In place, by an injected agent beside each worker.
    Sidecar,
    /// In place, by an injected agent above each worker.
    Supervisor,
    /// By new Pods.
    Recreate,
}

/// What is measured, one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Case {
    /// Name of the case, with which the namespaces of its JobSets begin.
    pub(super) name: &'static str,
    pub(super) mode: Mode,
    /// Whether workers stay alive on SIGTERM.
    pub(super) ignores_sigterm: bool,
}

impl Case {
    /// Restarts after which a new JobSet takes over. When a kubelet asks a sidecar's startup probe, once a second, is
    /// settled for the Pod's whole life, and so is whether the worker starts at the kubelet's next look at the Pod or at
    /// the one after: restarts of one JobSet alone would be one sample.
    pub(super) fn restarts_of_a_group(self) -> usize {
        if self.mode == Mode::Sidecar { 2 } else { usize::MAX }
    }

    /// Makes the manifest of four workers that are recreated one that restarts as the case says, two workers on each node.
    pub(super) fn of(self, workload: Workload) -> Workload {
        let Workload(mut jobset) = workload;
        jobset["metadata"]["name"] = json!("train");
        let annotation = match self.mode {
            Mode::Sidecar => Some("Sidecar"),
            Mode::Supervisor => Some("Supervisor"),
            Mode::Recreate => None,
        };
        // As many as anyone measures.
        jobset["spec"]["failurePolicy"]["maxRestarts"] = json!(1_000_000);
        if let Some(annotation) = annotation {
            jobset["metadata"]["annotations"] = json!({"jobset.sigs.k8s.io/inject-agent": annotation});
            jobset["spec"]["failurePolicy"]["restartStrategy"] = json!("InPlaceRestart");
            for group in jobset["spec"]["replicatedJobs"].as_array_mut().into_iter().flatten() {
                // Admission fills in what a restart in place needs.
                group["template"]["spec"].as_object_mut().map(|job| job.remove("backoffLimit"));
            }
        }
        let mut workload = Workload(jobset);
        workload.each_pod(|pod| {
            // The supervisor has to be told what it supervises; the image's entrypoint is the same program.
            pod["containers"][0]["command"] = json!(["/jobset-test-worker"]);
            pod["topologySpreadConstraints"] = json!([{
                "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"jobset.sigs.k8s.io/jobset-name": "train"}},
            }]);
        });
        if !self.ignores_sigterm {
            return workload;
        }
        // When the JobSet is deleted; a restart in place gives two seconds, whatever the Pod says.
        workload.each_pod(|pod| pod["terminationGracePeriodSeconds"] = json!(2));
        workload.with_env("IGNORE_SIGTERM", "1")
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use jobset_api::labels;
    use rstest::rstest;
    use serde_json::Value;

    use super::*;
    use jobset_harness::workload::RECREATE;

    fn jobset(mode: Mode, ignores_sigterm: bool) -> Value {
        let base = Workload::new(RECREATE, "ns", Path::new("/journals")).unwrap();
        let workload = Case { name: "ns", mode, ignores_sigterm }.of(base);
        assert_eq!((workload.name(), workload.pods()), ("train", 4));
        workload.0
    }

    #[rstest]
    #[case(Mode::Sidecar, json!("Sidecar"), "InPlaceRestart", Value::Null)]
    #[case(Mode::Supervisor, json!("Supervisor"), "InPlaceRestart", Value::Null)]
    #[case(Mode::Recreate, Value::Null, "Recreate", json!(0))]
    fn mode_decides_strategy_and_injection(
        #[case] mode: Mode,
        #[case] injected: Value,
        #[case] strategy: &str,
        #[case] backoff_limit: Value,
    ) {
        let jobset = jobset(mode, false);
        assert_eq!(jobset["metadata"]["annotations"]["jobset.sigs.k8s.io/inject-agent"], injected);
        assert_eq!(jobset["spec"]["failurePolicy"]["restartStrategy"], strategy);
        assert_eq!(jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["backoffLimit"], backoff_limit);
        assert_eq!(jobset["spec"]["failurePolicy"]["maxRestarts"], 1_000_000);
    }

    #[rstest]
    fn each_node_gets_as_many_workers_of_a_known_command(
        #[values(Mode::Sidecar, Mode::Supervisor, Mode::Recreate)] mode: Mode,
    ) {
        let jobset = jobset(mode, false);
        let pod = &jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"];
        assert_eq!(pod["containers"][0]["command"], json!(["/jobset-test-worker"]));
        let spread = json!([{
            "maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {labels::JOBSET_NAME: "train"}},
        }]);
        assert_eq!(pod["topologySpreadConstraints"], spread);
    }

    #[test]
    fn sidecars_alone_are_measured_in_several_jobsets() {
        let restarts = [Mode::Sidecar, Mode::Supervisor, Mode::Recreate]
            .map(|mode| Case { name: "ns", mode, ignores_sigterm: false }.restarts_of_a_group());
        assert_eq!(restarts, [2, usize::MAX, usize::MAX]);
    }

    #[rstest]
    #[case(true, json!(2))]
    #[case(false, Value::Null)]
    fn workers_ignore_sigterm_if_they_are_to_and_do_not_hold_up_their_removal(
        #[case] ignores: bool,
        #[case] grace: Value,
    ) {
        let jobset = jobset(Mode::Sidecar, ignores);
        let pod = &jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"];
        let ignoring = json!({"name": "IGNORE_SIGTERM", "value": "1"});
        assert_eq!(pod["containers"][0]["env"].as_array().unwrap().contains(&ignoring), ignores);
        assert_eq!(pod["terminationGracePeriodSeconds"], grace);
    }
}
