//! Partial objects of whole ones, as a watch would read them. Programs read partial objects alone.

use k8s_openapi::api::batch::v1::{Job, JobCondition};
use k8s_openapi::api::core::v1::Container;

use crate::condition::PartialCondition;
use crate::job::{PartialJob, PartialJobSpec, PartialJobStatus, PartialPodTemplate, PartialTemplateSpec};
use crate::pod::PartialContainer;

impl From<&Job> for PartialJob {
    fn from(job: &Job) -> Self {
        let (spec, status) = (job.spec.as_ref(), job.status.as_ref());
        let pod = spec.and_then(|spec| spec.template.spec.as_ref());
        let containers = |list: &[Container]| list.iter().map(PartialContainer::from).collect();
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        Self {
            metadata: job.metadata.clone(),
            spec: PartialJobSpec {
                parallelism: spec.and_then(|spec| spec.parallelism),
                completions: spec.and_then(|spec| spec.completions),
                suspend: spec.and_then(|spec| spec.suspend),
                completion_mode: spec.and_then(|spec| spec.completion_mode.clone()).unwrap_or_default(),
                backoff_limit: spec.and_then(|spec| spec.backoff_limit),
                backoff_limit_per_index: spec.and_then(|spec| spec.backoff_limit_per_index),
                max_failed_indexes: spec.and_then(|spec| spec.max_failed_indexes),
                active_deadline_seconds: spec.and_then(|spec| spec.active_deadline_seconds),
                template: PartialPodTemplate {
                    metadata: spec.and_then(|spec| spec.template.metadata.clone()).unwrap_or_default(),
                    spec: PartialTemplateSpec {
                        containers: pod.map(|pod| containers(&pod.containers)).unwrap_or_default(),
                        init_containers: pod
                            .and_then(|pod| pod.init_containers.as_deref())
                            .map(containers)
                            .unwrap_or_default(),
                    },
                },
            },
            status: PartialJobStatus {
                start_time: status.and_then(|status| status.start_time.clone()),
                active: status.and_then(|status| status.active),
                ready: status.and_then(|status| status.ready),
                succeeded: status.and_then(|status| status.succeeded),
                failed: status.and_then(|status| status.failed),
                completed_indexes: status.and_then(|status| status.completed_indexes.clone()).unwrap_or_default(),
                failed_indexes: status.and_then(|status| status.failed_indexes.clone()).unwrap_or_default(),
                conditions: conditions.iter().map(PartialCondition::from).collect(),
            },
        }
    }
}

impl From<&Container> for PartialContainer {
    fn from(container: &Container) -> Self {
        Self {
            name: container.name.clone(),
            restart_policy: container.restart_policy.clone(),
            restart_policy_rules: container.restart_policy_rules.clone().unwrap_or_default(),
        }
    }
}

impl From<&JobCondition> for PartialCondition {
    fn from(condition: &JobCondition) -> Self {
        Self {
            type_: condition.type_.clone(),
            status: condition.status.clone(),
            reason: condition.reason.clone().unwrap_or_default(),
            message: condition.message.clone().unwrap_or_default(),
            last_transition_time: condition.last_transition_time.clone(),
        }
    }
}
