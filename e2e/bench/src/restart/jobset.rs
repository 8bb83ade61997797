//! The JobSet that restarts: story 1 of KEP-467 with a given number of Pods. Pure.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use jobset_api::restart_rules::compile;
use jobset_harness::workload::{STORY_1, Workload};

use super::case::{Strategy, Way};

pub(super) const NAME: &str = "bench";
pub(super) const NAMESPACE: &str = "default";
/// Most Pods of one Job: what the Job controller creates at once.
const LARGEST_JOB: usize = 500;
/// More restarts than anyone measures.
const MAX_RESTARTS: i32 = 1_000_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) name: &'static str,
    /// Jobs.
    pub(super) replicas: usize,
    /// Pods of each.
    pub(super) parallelism: usize,
}

/// The shape of a JobSet of `pods` Pods: Jobs of 500, and one with the rest.
pub(super) fn shape(pods: usize) -> Vec<Shape> {
    let (jobs, rest) = (pods / LARGEST_JOB, pods % LARGEST_JOB);
    let full = Shape { name: "workers", replicas: jobs, parallelism: LARGEST_JOB };
    let rest = Shape { name: "rest", replicas: 1, parallelism: rest };
    [full, rest].into_iter().filter(|group| group.replicas * group.parallelism > 0).collect()
}

pub(super) fn first_job(shape: &[Shape]) -> Option<String> {
    Some(format!("{NAME}-{}-0", shape.first()?.name))
}

/// The JobSet to create, as admission would leave it.
pub(super) fn manifest(shape: &[Shape], strategy: Strategy) -> Result<Value> {
    let story = serde_yaml_ng::from_str(STORY_1).context("the manifest of story 1 is not YAML")?;
    let mut workload = Workload(story).named(NAME);
    if strategy.way() == Some(Way::Go) {
        let mut translated = Ok(());
        workload.each_pod(|pod| translated = translate_rules(pod));
        translated?;
    }
    workload.each_pod(|pod| pod["restartPolicy"] = json!("Never"));
    let mut jobset = workload.0;
    let group = jobset["spec"]["replicatedJobs"][0].take();
    let groups = shape.iter().map(|shape| {
        let mut group = group.clone();
        group["name"] = json!(shape.name);
        group["groupName"] = json!("default");
        group["replicas"] = json!(shape.replicas);
        let job = &mut group["template"]["spec"];
        job["parallelism"] = json!(shape.parallelism);
        job["completions"] = json!(shape.parallelism);
        job["completionMode"] = json!("Indexed");
        group
    });
    jobset["spec"]["replicatedJobs"] = groups.collect();
    jobset["metadata"]["namespace"] = json!(NAMESPACE);
    // The Go manager relies on them.
    jobset["spec"]["suspend"] = json!(false);
    jobset["spec"]["successPolicy"] = json!({"operator": "All"});
    jobset["spec"]["startupPolicy"] = json!({"startupPolicyOrder": "AnyOrder"});
    jobset["spec"]["network"] = json!({"enableDNSHostnames": true, "publishNotReadyAddresses": true});
    jobset["spec"]["failurePolicy"] =
        json!({"maxRestarts": MAX_RESTARTS, "restartStrategy": strategy.name(), "restartBackoff": no_backoff()});
    Ok(jobset)
}

/// Writes the rules of containers in the names of Kubernetes, as this project's controller does: the Go manager copies what the
/// KEP has, and the API server rejects that.
fn translate_rules(pod: &mut Value) -> Result<()> {
    for kind in ["initContainers", "containers"] {
        for container in pod[kind].as_array_mut().into_iter().flatten() {
            let rules: Vec<_> = serde_json::from_value(container["restartPolicyRules"].take())?;
            container["restartPolicyRules"] = serde_json::to_value(compile(&rules))?;
        }
    }
    Ok(())
}

/// Restarts do not wait, and each of them has its Events.
fn no_backoff() -> Value {
    json!({"initialSeconds": 0, "stableSeconds": 0})
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::super::case::WatchMode;
    use super::*;

    #[rstest]
    #[case::one_job(100, &[("rest", 1, 100)])]
    #[case::whole_jobs(1000, &[("workers", 2, 500)])]
    #[case::one_whole_job(500, &[("workers", 1, 500)])]
    #[case::jobs_and_a_rest(5001, &[("workers", 10, 500), ("rest", 1, 1)])]
    fn shape_has_as_many_pods(#[case] pods: usize, #[case] expected: &[(&str, usize, usize)]) {
        let shape = shape(pods);
        let parts: Vec<_> = shape.iter().map(|group| (group.name, group.replicas, group.parallelism)).collect();
        assert_eq!(parts, expected);
        assert_eq!(shape.iter().map(|group| group.replicas * group.parallelism).sum::<usize>(), pods);
    }

    #[test]
    fn manifest_has_shape_strategy_and_agent() {
        let jobset = manifest(&shape(1001), Strategy::Recreate).unwrap();
        assert_eq!(Workload(jobset.clone()).pods(), 1001);
        assert_eq!(jobset["spec"]["failurePolicy"]["restartStrategy"], "Recreate");
        let pod = &jobset["spec"]["replicatedJobs"][1]["template"]["spec"]["template"]["spec"];
        assert_eq!((&pod["initContainers"][0]["name"], &pod["restartPolicy"]), (&json!("agent"), &json!("Never")));
        assert_eq!(first_job(&shape(1001)).as_deref(), Some("bench-workers-0"));
    }

    #[test]
    fn go_manager_manifest_has_its_fields_and_kubernetes_rules() {
        let strategy = Strategy::InPlace { watch: WatchMode::New, way: Way::Go };
        let jobset = manifest(&shape(2), strategy).unwrap();
        for field in ["successPolicy", "startupPolicy", "network", "failurePolicy"] {
            assert!(jobset["spec"][field].is_object(), "{field}");
        }
        let pod = &jobset["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"];
        for container in ["/initContainers/0", "/containers/0"] {
            let rules = &pod.pointer(container).unwrap()["restartPolicyRules"];
            assert_eq!(rules[0]["action"], "RestartAllContainers", "{rules}");
            assert!(!rules.to_string().contains("Terminate") && !rules.to_string().contains("NoIn"), "{rules}");
        }
    }
}
