//! Gangs of Kubernetes 1.37. The Job controller forms the gang of a Job that has an owner, as a JobSet, only if a Workload names the
//! owner and an annotation of the Job names one of the Workload's templates (KEP-5547). The JobSet leaves both to the user.

use super::subject::Subject;
use super::warnings::Warnings;
use crate::field::Path;
use crate::{ReplicatedJob, RestartStrategy, labels};

/// Warns of gangs that Kubernetes does not form, or that do not come back.
pub(super) fn warn(subject: &Subject<'_>, spec: &Path<'_>, warnings: &mut Warnings) {
    subject.for_each_job(spec, |replicated_job, path| of_job(subject, replicated_job, path, warnings));
}

fn of_job(subject: &Subject<'_>, replicated_job: &ReplicatedJob, path: &Path<'_>, warnings: &mut Warnings) {
    let template = &replicated_job.template;
    let annotations = template.metadata.as_ref().and_then(|metadata| metadata.annotations.as_ref());
    if annotations.is_none_or(|annotations| !annotations.contains_key(labels::POD_GROUP_TEMPLATE)) {
        if template.spec.scheduling.is_some() {
            let text = format_args!(
                "has no effect: Kubernetes takes the gang of a Job of a JobSet from a Workload whose controllerRef is the JobSet, \
                 and from the annotation {} of the template",
                labels::POD_GROUP_TEMPLATE
            );
            warnings.push(&path.child("template.spec.scheduling"), text);
        }
        return;
    }
    if replicated_job.replicas() > 1 {
        let annotations = path.child("template.metadata.annotations");
        let text = "names one PodGroup for all Jobs, and only the first Job gets Pods: use replicas 1, and a replicatedJob for \
                    each gang";
        warnings.push(&annotations.key(labels::POD_GROUP_TEMPLATE), text);
    }
    let in_place = subject.spec.restart_strategy() == RestartStrategy::InPlaceRestart;
    if !in_place && template.spec.backoff_limit != Some(0) {
        let text = "is not 0: once a worker of a gang has completed, Kubernetes schedules no replacement of another one \
                    (kubernetes#142330). With 0, the JobSet restarts instead";
        warnings.push(&path.child("template.spec.backoffLimit"), text);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::testing::{assert_one, in_place, jobset, read};
    use super::super::warnings::warnings;
    use crate::labels;

    const TEMPLATE: &str = "/spec/replicatedJobs/1/template";
    const REPLICAS: &str = "/spec/replicatedJobs/1/replicas";

    fn gang() -> [(String, Value); 2] {
        [
            (format!("{TEMPLATE}/metadata"), json!({ "annotations": { labels::POD_GROUP_TEMPLATE: "workers" } })),
            (REPLICAS.to_owned(), json!(1)),
        ]
    }

    fn with(object: fn(&[(&str, Value)]) -> Value, changes: &[(String, Value)]) -> Vec<String> {
        let changes: Vec<_> = changes.iter().map(|(pointer, value)| (pointer.as_str(), value.clone())).collect();
        warnings(&read(&object(&changes)))
    }

    #[test]
    fn scheduling_without_workload_gets_warning() {
        let scheduling = json!({ "schedulingPolicy": { "gang": { "minCount": 4 } } });
        let changes = [(format!("{TEMPLATE}/spec/scheduling"), scheduling)];
        for object in [jobset, in_place] {
            let found = with(object, &changes);
            assert_one(&found, "spec.replicatedJobs[1].template.spec.scheduling: has no effect");
            assert!(found[0].len() < 256, "the API server cuts it off: {}", found[0].len());
        }
    }

    #[test]
    fn gang_of_several_jobs_gets_warning() {
        let [annotated, _] = gang();
        let key =
            "spec.replicatedJobs[1].template.metadata.annotations[scheduling.k8s.io/group-template-name]: names one";
        assert_one(&with(in_place, &[annotated]), key);
        assert_eq!(with(in_place, &gang()), Vec::<String>::new());
    }

    #[test]
    fn recreated_gang_that_replaces_pods_gets_warning() {
        let [annotated, one] = gang();
        let found = with(jobset, &[annotated.clone(), one.clone()]);
        assert_one(&found, "spec.replicatedJobs[1].template.spec.backoffLimit: is not 0");
        let limit = (format!("{TEMPLATE}/spec/backoffLimit"), json!(0));
        assert_eq!(with(jobset, &[annotated, one, limit]), Vec::<String>::new());
    }
}
