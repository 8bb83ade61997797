//! The headless Service of a JobSet.

use std::collections::BTreeMap;

use jobset_api::{JobSet, labels};
use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use kube::ResourceExt;
use kube::api::ObjectMeta;

/// The Service that gives every Pod the name `<pod hostname>.<subdomain>`.
pub fn service(jobset: &JobSet) -> Service {
    let selector = BTreeMap::from([(labels::JOBSET_NAME.to_owned(), jobset.name_any())]);
    Service {
        metadata: ObjectMeta {
            name: Some(jobset.subdomain().to_owned()),
            namespace: jobset.namespace(),
            labels: Some(selector.clone()),
            owner_references: Some(vec![super::owner_reference(jobset)]),
            ..ObjectMeta::default()
        },
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            selector: Some(selector),
            publish_not_ready_addresses: Some(jobset.spec.publish_not_ready_addresses()),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}
