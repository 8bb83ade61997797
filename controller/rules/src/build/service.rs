//! Builds the headless Service of a JobSet.

use std::collections::HashSet;

use jobset_api::JobSet;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// The Service that gives every Pod the name `<pod hostname>.<subdomain>`.
pub fn service(jobset: &JobSet) -> Service {
    let metadata = super::metadata(jobset, jobset.subdomain().to_owned());
    let ports = ports(jobset);
    Service {
        spec: Some(ServiceSpec {
            cluster_ip: Some("None".to_owned()),
            ports: (!ports.is_empty()).then_some(ports),
            selector: metadata.labels.clone(),
            publish_not_ready_addresses: Some(jobset.spec.publish_not_ready_addresses()),
            ..ServiceSpec::default()
        }),
        metadata,
        ..Service::default()
    }
}

/// The declared ports of all containers, each once, with names such as `tcp-8080`. A service mesh routes to declared ports
/// only.
fn ports(jobset: &JobSet) -> Vec<ServicePort> {
    let pods = jobset.spec.replicated_jobs.iter().filter_map(|group| group.template.spec.template.spec.as_ref());
    let declared = pods.flat_map(|pod| &pod.containers).flat_map(|container| container.ports.iter().flatten());
    let (mut ports, mut known): (Vec<ServicePort>, _) = (Vec::new(), HashSet::new());
    for port in declared {
        let protocol = port.protocol.as_deref().unwrap_or("TCP");
        let name = format!("{}-{}", protocol.to_lowercase(), port.container_port);
        if known.insert(name.clone()) {
            ports.push(ServicePort {
                name: Some(name),
                port: port.container_port,
                target_port: Some(IntOrString::Int(port.container_port)),
                protocol: Some(protocol.to_owned()),
                ..ServicePort::default()
            });
        }
    }
    ports
}
