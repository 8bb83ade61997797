//! What the API server refuses in the specification of a Pod, by `ValidatePodSpec` of `pkg/apis/core/validation/validation.go` of
//! Kubernetes 1.36, and what it refuses or changes later, when the Job controller creates the Pods.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{
    Container, PodSchedulingGate, PodSecurityContext, PodSpec, Toleration, TopologySpreadConstraint, Volume,
};
use serde_json::Value;

use super::container::{self, USER_ID, USER_IDS, text};
use super::row::{
    Found, Row, apply, apply_each, at_most, between, doubtful, forbidden, formed, invalid, missing, one_of,
};
use super::{metadata, unique};
use crate::field::{Errors, Path};
use crate::syntax;

const SUBDOMAIN: &str = "must consist of lower-case letters, digits, '-' and '.', begin and end with a letter or digit, and have at most \
                         253 characters";

const POD: &[Row<PodSpec>] = &[
    forbidden(
        "ephemeralContainers",
        |pod| pod.ephemeral_containers.as_ref().is_some_and(|list| !list.is_empty()),
        "must not be set: they are added to a running Pod, by kubectl debug",
    ),
    between(
        "activeDeadlineSeconds",
        |pod| pod.active_deadline_seconds,
        (1, i32::MAX as i64),
        "must be 1 to 2147483647",
    ),
    one_of(
        "dnsPolicy",
        |pod| pod.dns_policy.as_deref(),
        &["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"],
    ),
    missing(
        "dnsConfig.nameservers",
        |pod| pod.dns_policy.as_deref() == Some("None") && nameservers(pod) == 0,
        "must be set with dnsPolicy None",
    ),
    at_most("dnsConfig.nameservers", nameservers, 3, "must have at most 3 items, as Kubernetes allows"),
    at_most(
        "dnsConfig.searches",
        |pod| pod.dns_config.as_ref().and_then(|dns| dns.searches.as_ref()).map_or(0, Vec::len),
        32,
        "must have at most 32 items, as Kubernetes allows",
    ),
    one_of("preemptionPolicy", |pod| pod.preemption_policy.as_deref(), &["PreemptLowerPriority", "Never"]),
    one_of("os.name", |pod| pod.os.as_ref().map(|os| os.name.as_str()), &["linux", "windows"]),
    formed("hostname", |pod| pod.hostname.as_deref(), syntax::is_dns1123_label, syntax::DNS_1123_LABEL),
    formed("nodeName", |pod| pod.node_name.as_deref(), syntax::is_dns1123_subdomain, SUBDOMAIN),
    formed("priorityClassName", |pod| pod.priority_class_name.as_deref(), syntax::is_dns1123_subdomain, SUBDOMAIN),
    formed("runtimeClassName", |pod| pod.runtime_class_name.as_deref(), syntax::is_dns1123_subdomain, SUBDOMAIN),
    formed("serviceAccountName", |pod| pod.service_account_name.as_deref(), syntax::is_dns1123_subdomain, SUBDOMAIN),
    forbidden(
        "shareProcessNamespace",
        |pod| pod.share_process_namespace == Some(true) && pod.host_pid == Some(true),
        "must not be true beside hostPID",
    ),
    forbidden("hostPID", |pod| pod.host_users == Some(false) && pod.host_pid == Some(true), WITHOUT_HOST_USERS),
    forbidden("hostIPC", |pod| pod.host_users == Some(false) && pod.host_ipc == Some(true), WITHOUT_HOST_USERS),
    doubtful(
        "hostnameOverride",
        |pod| pod.hostname_override.is_some() && pod.set_hostname_as_fqdn == Some(true),
        OVERRIDE,
    ),
    doubtful("hostnameOverride", |pod| pod.hostname_override.is_some() && pod.host_network == Some(true), OVERRIDE),
    doubtful(
        "priority",
        |pod| pod.priority.is_some(),
        "the API server sets it, by priorityClassName, and refuses Pods with another value: remove the field",
    ),
    doubtful(
        "overhead",
        |pod| pod.overhead.as_ref().is_some_and(|overhead| !overhead.is_empty()),
        "the API server sets it, by runtimeClassName, and refuses Pods with another value: remove the field",
    ),
    doubtful(
        "terminationGracePeriodSeconds",
        |pod| pod.termination_grace_period_seconds.is_some_and(i64::is_negative),
        "is negative: Kubernetes takes it for 1",
    ),
];

const WITHOUT_HOST_USERS: &str = "must not be true with hostUsers false";
const OVERRIDE: &str = "the API server refuses it beside setHostnameAsFQDN and beside hostNetwork, unless its feature gate \
                        HostnameOverride is off";

/// The row of Pods without a DNS name of the JobSet, which keep their own subdomain.
const OWN_SUBDOMAIN: &[Row<PodSpec>] =
    &[formed("subdomain", |pod| pod.subdomain.as_deref(), syntax::is_dns1123_label, syntax::DNS_1123_LABEL)];

/// The row of Pods whose host name is `<job>-<index>`.
const INDEXED: &[Row<PodSpec>] = &[doubtful(
    "hostname",
    |pod| pod.hostname.as_ref().is_some_and(|name| !name.is_empty()),
    "is overwritten: Pods of an Indexed Job have the host name <job>-<index>",
)];

const SECURITY: &[Row<PodSecurityContext>] = &[
    between("runAsUser", |it| it.run_as_user, USER_IDS, USER_ID),
    between("runAsGroup", |it| it.run_as_group, USER_IDS, USER_ID),
    between("fsGroup", |it| it.fs_group, USER_IDS, USER_ID),
];

const VOLUME: &[Row<Volume>] = &[
    missing("name", |volume| volume.name.is_empty(), syntax::DNS_1123_LABEL),
    formed("name", |volume| Some(&volume.name), syntax::is_dns1123_label, syntax::DNS_1123_LABEL),
];

const TOLERATION: &[Row<Toleration>] = &[
    formed("key", |it| it.key.as_deref(), syntax::is_label_key, syntax::LABEL_KEY),
    one_of("operator", |it| it.operator.as_deref(), &["Equal", "Exists", "Lt", "Gt"]),
    one_of("effect", |it| it.effect.as_deref(), &["NoSchedule", "PreferNoSchedule", "NoExecute"]),
    invalid(
        "operator",
        |it| {
            let is_refused = text(it.key.as_ref()).is_empty() && text(it.operator.as_ref()) != "Exists";
            is_refused.then(|| text(it.operator.as_ref()).into())
        },
        "must be Exists without a key, which tolerates every taint",
    ),
    forbidden(
        "value",
        |it| text(it.operator.as_ref()) == "Exists" && !text(it.value.as_ref()).is_empty(),
        "must not be set with operator Exists",
    ),
    invalid(
        "value",
        |it| {
            let is_compared = matches!(text(it.operator.as_ref()), "" | "Equal");
            it.value.as_ref().filter(|value| is_compared && !syntax::is_label_value(value)).map(|it| it.as_str().into())
        },
        syntax::LABEL_VALUE,
    ),
    forbidden(
        "tolerationSeconds",
        |it| it.toleration_seconds.is_some() && text(it.effect.as_ref()) != "NoExecute",
        "must not be set without effect NoExecute",
    ),
];

const DO_NOT_SCHEDULE: &str = "DoNotSchedule";

const SPREAD: &[Row<TopologySpreadConstraint>] = &[
    between("maxSkew", |it| Some(it.max_skew.into()), (1, i32::MAX as i64), "must be at least 1"),
    missing("topologyKey", |it| it.topology_key.is_empty(), "must be the key of a label of nodes"),
    one_of("whenUnsatisfiable", |it| Some(&it.when_unsatisfiable), &[DO_NOT_SCHEDULE, "ScheduleAnyway"]),
    between("minDomains", |it| it.min_domains.map(i64::from), (1, i32::MAX as i64), "must be at least 1"),
    invalid(
        "minDomains",
        |it| it.min_domains.filter(|_| it.when_unsatisfiable != DO_NOT_SCHEDULE).map(Value::from),
        "must not be set without whenUnsatisfiable DoNotSchedule",
    ),
];

const GATE: &[Row<PodSchedulingGate>] =
    &[formed("name", |gate| Some(&gate.name), syntax::is_label_key, syntax::LABEL_KEY)];

/// The specification of the Pods of a Job. `is_indexed` if they have a completion index, `keeps_subdomain` if the controller does
/// not set theirs.
pub(super) fn look(pod: &PodSpec, is_indexed: bool, keeps_subdomain: bool, path: &Path<'_>, found: &mut Found<'_>) {
    apply(POD, pod, path, found);
    if keeps_subdomain {
        apply(OWN_SUBDOMAIN, pod, path, found);
    }
    if is_indexed {
        apply(INDEXED, pod, path, found);
    }
    if let Some(context) = &pod.security_context {
        apply(SECURITY, context, &path.child("securityContext"), found);
    }
    apply_each(VOLUME, pod.volumes.as_deref(), &path.child("volumes"), found);
    apply_each(TOLERATION, pod.tolerations.as_deref(), &path.child("tolerations"), found);
    let spread = path.child("topologySpreadConstraints");
    apply_each(SPREAD, pod.topology_spread_constraints.as_deref(), &spread, found);
    apply_each(GATE, pod.scheduling_gates.as_deref(), &path.child("schedulingGates"), found);
    let init = pod.init_containers.as_deref().unwrap_or_default();
    let (init_path, path_of_containers) = (path.child("initContainers"), path.child("containers"));
    for (index, it) in init.iter().enumerate() {
        container::look(it, true, &init_path.index(index), found);
    }
    for (index, it) in pod.containers.iter().enumerate() {
        container::look(it, false, &path_of_containers.index(index), found);
    }
    if let Found::Errors(errors) = found {
        metadata::labels(pod.node_selector.as_ref(), &path.child("nodeSelector"), |_| false, errors);
        names(pod, path, errors);
        host_ports(&pod.containers, pod.host_network == Some(true), &path_of_containers, errors);
        resource_claims(pod, path, errors);
    }
}

/// Names that are not unique in the Pod. Containers share them with init containers.
fn names(pod: &PodSpec, path: &Path<'_>, errors: &mut Errors) {
    let volumes = pod.volumes.iter().flatten().map(|volume| volume.name.as_str()).enumerate();
    unique(volumes, &mut HashSet::new(), "must be unique among the volumes", &path.child("volumes"), errors);
    let init = pod.init_containers.as_deref().unwrap_or_default();
    let mut seen = HashSet::with_capacity(pod.containers.len() + init.len());
    for (field, list) in [("containers", pod.containers.as_slice()), ("initContainers", init)] {
        let names = list.iter().map(|container| container.name.as_str()).enumerate();
        let names = names.filter(|(_, name)| !name.is_empty());
        let required = "must be unique among the containers and init containers";
        unique(names, &mut seen, required, &path.child(field), errors);
    }
}

/// Ports of the node that containers share, or that differ from those of the container in the network of the node.
fn host_ports(containers: &[Container], is_in_network_of_node: bool, path: &Path<'_>, errors: &mut Errors) {
    let mut seen = HashSet::new();
    for (index, container) in containers.iter().enumerate() {
        let path = path.index(index);
        let path = path.child("ports");
        for (index, port) in container.ports.iter().flatten().enumerate() {
            let Some(number) = port.host_port.filter(|number| *number != 0) else { continue };
            let path = path.index(index);
            let path = path.child("hostPort");
            let protocol = Some(text(port.protocol.as_ref())).filter(|it| !it.is_empty()).unwrap_or("TCP");
            if is_in_network_of_node && number != port.container_port {
                errors.invalid(&path, number, "must equal containerPort with hostNetwork");
            } else if !seen.insert((protocol, text(port.host_ip.as_ref()), number)) {
                errors.duplicate(&path, number, "must be unique among the containers");
            }
        }
    }
}

/// Claims of containers that the Pod does not have.
fn resource_claims(pod: &PodSpec, path: &Path<'_>, errors: &mut Errors) {
    let names: HashSet<&str> = pod.resource_claims.iter().flatten().map(|claim| claim.name.as_str()).collect();
    super::super::subject::for_each_container(pod, path, |container, path| {
        let list = path.child("resources.claims");
        let claims = container.resources.as_ref().and_then(|resources| resources.claims.as_deref());
        for (index, claim) in claims.unwrap_or_default().iter().enumerate() {
            if !names.contains(claim.name.as_str()) {
                errors.not_found(
                    &list.index(index).child("name"),
                    &claim.name,
                    "must be the name of one of the Pod's resourceClaims",
                );
            }
        }
    });
}

fn nameservers(pod: &PodSpec) -> usize {
    pod.dns_config.as_ref().and_then(|dns| dns.nameservers.as_ref()).map_or(0, Vec::len)
}
