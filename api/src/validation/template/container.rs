//! What the API server refuses in a container, by `validateContainerCommon` and its like in
//! `pkg/apis/core/validation/validation.go` of Kubernetes 1.36.
//!
//! Restart rules are the matter of [`super::super::restart_rules`], and which volumes are mounted that of
//! [`super::super::volume_mounts`].

use std::collections::HashSet;

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, EnvFromSource, EnvVar, EnvVarSource, LifecycleHandler, Probe, SecurityContext,
    VolumeMount,
};
use serde_json::json;

use super::resources;
use super::row::{Found, Row, apply, apply_each, between, forbidden, formed, invalid, missing, not_negative, one_of};
use super::unique;
use crate::field::{Errors, Path};
use crate::restart_rules::is_sidecar;
use crate::syntax;

/// Users and groups of Linux that Kubernetes accepts.
pub(super) const USER_IDS: (i64, i64) = (0, i32::MAX as i64);
pub(super) const USER_ID: &str = "must be 0 to 2147483647";
const PORTS: (i64, i64) = (1, 65535);
const PORT: &str = "must be 1 to 65535";
const HANDLER: &str = "must be set, or another way to probe: exec, grpc, httpGet or tcpSocket";
const ACTION: &str = "must be set, or another action: exec, httpGet or sleep";
const ONE_HANDLER: &str = "must not be set beside another one: exec, grpc, httpGet, sleep or tcpSocket";
const OF_SIDECAR: &str = "must not be set for an init container without restartPolicy Always";

const CONTAINER: &[Row<Container>] = &[
    missing("name", |it| it.name.is_empty(), syntax::DNS_1123_LABEL),
    formed("name", |it| Some(&it.name), syntax::is_dns1123_label, syntax::DNS_1123_LABEL),
    missing("image", |it| text(it.image.as_ref()).is_empty(), "must be set"),
    one_of("imagePullPolicy", |it| it.image_pull_policy.as_deref(), &["Always", "IfNotPresent", "Never"]),
    one_of(
        "terminationMessagePolicy",
        |it| it.termination_message_policy.as_deref(),
        &["File", "FallbackToLogsOnError"],
    ),
    one_of("restartPolicy", |it| it.restart_policy.as_deref(), &["Always", "Never", "OnFailure"]),
];

const INIT: &[Row<Container>] = &[
    forbidden("lifecycle", |it| !is_sidecar(it) && it.lifecycle.is_some(), OF_SIDECAR),
    forbidden("livenessProbe", |it| !is_sidecar(it) && it.liveness_probe.is_some(), OF_SIDECAR),
    forbidden("readinessProbe", |it| !is_sidecar(it) && it.readiness_probe.is_some(), OF_SIDECAR),
    forbidden("startupProbe", |it| !is_sidecar(it) && it.startup_probe.is_some(), OF_SIDECAR),
];

const SECURITY: &[Row<SecurityContext>] = &[
    between("runAsUser", |it| it.run_as_user, USER_IDS, USER_ID),
    between("runAsGroup", |it| it.run_as_group, USER_IDS, USER_ID),
    forbidden(
        "privileged",
        |it| it.privileged == Some(true) && it.allow_privilege_escalation == Some(false),
        "must not be true with allowPrivilegeEscalation false",
    ),
    forbidden(
        "capabilities.add",
        |it| it.allow_privilege_escalation == Some(false) && adds(it, "CAP_SYS_ADMIN"),
        "must not have CAP_SYS_ADMIN with allowPrivilegeEscalation false",
    ),
];

const CONTAINER_PORT: &[Row<ContainerPort>] = &[
    between("containerPort", |port| Some(port.container_port.into()), PORTS, PORT),
    between("hostPort", |port| port.host_port.filter(|number| *number != 0).map(i64::from), PORTS, PORT),
    one_of("protocol", |port| port.protocol.as_deref(), &["TCP", "UDP", "SCTP"]),
    formed("name", |port| port.name.as_deref(), syntax::is_port_name, syntax::PORT_NAME),
];

const ENV: &[Row<EnvVar>] = &[
    missing("name", |it| it.name.is_empty(), VARIABLE),
    formed("name", |it| Some(&it.name), is_variable, VARIABLE),
    forbidden(
        "valueFrom",
        |it| it.value_from.is_some() && it.value.as_ref().is_some_and(|value| !value.is_empty()),
        "must not be set beside value",
    ),
    missing("valueFrom", |it| it.value_from.as_ref().is_some_and(|from| sources(from) == 0), SOURCE),
    forbidden(
        "valueFrom",
        |it| it.value_from.as_ref().is_some_and(|from| sources(from) > 1),
        "must have one source: write a variable for each",
    ),
];

const VARIABLE: &str = "must consist of printable ASCII characters other than '='";
const SOURCE: &str = "must have a source: configMapKeyRef, fieldRef, fileKeyRef, resourceFieldRef or secretKeyRef";

const ENV_FROM: &[Row<EnvFromSource>] = &[
    formed("prefix", |it| it.prefix.as_deref(), is_variable, VARIABLE),
    missing(
        "configMapRef",
        |it| it.config_map_ref.is_none() && it.secret_ref.is_none(),
        "must be set, or secretRef in place of it",
    ),
    forbidden(
        "secretRef",
        |it| it.config_map_ref.is_some() && it.secret_ref.is_some(),
        "must not be set beside configMapRef: write two entries",
    ),
];

const MOUNT: &[Row<VolumeMount>] = &[
    missing("mountPath", |it| it.mount_path.is_empty(), "must be a path in the container"),
    one_of("mountPropagation", |it| it.mount_propagation.as_deref(), &["Bidirectional", "HostToContainer", "None"]),
    formed("subPath", |it| it.sub_path.as_deref(), is_below, BELOW),
    formed("subPathExpr", |it| it.sub_path_expr.as_deref(), is_below, BELOW),
    forbidden(
        "subPathExpr",
        |it| [&it.sub_path, &it.sub_path_expr].iter().all(|it| it.as_ref().is_some_and(|path| !path.is_empty())),
        "must not be set beside subPath",
    ),
];

const BELOW: &str = "must be a path within the volume: it must not begin with '/', and not contain '..'";

const PROBE: &[Row<Probe>] = &[
    not_negative("initialDelaySeconds", |it| it.initial_delay_seconds.map(i64::from)),
    not_negative("timeoutSeconds", |it| it.timeout_seconds.map(i64::from)),
    not_negative("periodSeconds", |it| it.period_seconds.map(i64::from)),
    not_negative("successThreshold", |it| it.success_threshold.map(i64::from)),
    not_negative("failureThreshold", |it| it.failure_threshold.map(i64::from)),
    missing("httpGet", |it| handlers(it) == 0, HANDLER),
    forbidden("httpGet", |it| it.http_get.is_some() && handlers(it) > 1, ONE_HANDLER),
    forbidden("exec", |it| it.http_get.is_none() && it.exec.is_some() && handlers(it) > 1, ONE_HANDLER),
    forbidden("grpc", |it| it.http_get.is_none() && it.exec.is_none() && handlers(it) > 1, ONE_HANDLER),
    missing(
        "exec.command",
        |it| it.exec.as_ref().is_some_and(|exec| exec.command.as_ref().is_none_or(Vec::is_empty)),
        "must be a command",
    ),
];

const RESTARTING_PROBE: &[Row<Probe>] = &[
    invalid(
        "successThreshold",
        |it| it.success_threshold.filter(|times| *times > 1).map(|times| json!(times)),
        "must be 1: only a readiness probe may need more successes",
    ),
    between(
        "terminationGracePeriodSeconds",
        |it| it.termination_grace_period_seconds,
        (1, i64::MAX),
        "must be at least 1",
    ),
];

const READINESS_PROBE: &[Row<Probe>] = &[forbidden(
    "terminationGracePeriodSeconds",
    |it| it.termination_grace_period_seconds.is_some(),
    "must not be set for a readiness probe, which ends nothing",
)];

const LIFECYCLE: &[Row<LifecycleHandler>] = &[
    missing("exec", |it| actions(it) == 0, ACTION),
    forbidden("exec", |it| it.exec.is_some() && actions(it) > 1, ONE_HANDLER),
    forbidden("httpGet", |it| it.exec.is_none() && actions(it) > 1, ONE_HANDLER),
];

/// A container, or an init container if `is_init`.
pub(super) fn look(container: &Container, is_init: bool, path: &Path<'_>, found: &mut Found<'_>) {
    apply(CONTAINER, container, path, found);
    if is_init {
        apply(INIT, container, path, found);
    }
    if let Some(context) = &container.security_context {
        apply(SECURITY, context, &path.child("securityContext"), found);
    }
    apply_each(CONTAINER_PORT, container.ports.as_deref(), &path.child("ports"), found);
    // The many variables with a name and a value need no look at each row.
    for (index, it) in container.env.iter().flatten().enumerate() {
        if it.value_from.is_some() || it.name.is_empty() || !is_variable(&it.name) {
            apply(ENV, it, &path.child("env").index(index), found);
        }
    }
    apply_each(ENV_FROM, container.env_from.as_deref(), &path.child("envFrom"), found);
    apply_each(MOUNT, container.volume_mounts.as_deref(), &path.child("volumeMounts"), found);
    if !is_init || is_sidecar(container) {
        probes(container, path, found);
    }
    if let Found::Errors(errors) = found {
        port_names(container, &path.child("ports"), errors);
        if let Some(resources) = &container.resources {
            resources::check(resources, &path.child("resources"), errors);
        }
    }
}

fn probes(container: &Container, path: &Path<'_>, found: &mut Found<'_>) {
    for (field, probe) in [("livenessProbe", &container.liveness_probe), ("startupProbe", &container.startup_probe)] {
        if let Some(probe) = probe {
            apply(PROBE, probe, &path.child(field), found);
            apply(RESTARTING_PROBE, probe, &path.child(field), found);
        }
    }
    if let Some(probe) = &container.readiness_probe {
        apply(PROBE, probe, &path.child("readinessProbe"), found);
        apply(READINESS_PROBE, probe, &path.child("readinessProbe"), found);
    }
    let handlers = container
        .lifecycle
        .iter()
        .flat_map(|it| [("lifecycle.postStart", &it.post_start), ("lifecycle.preStop", &it.pre_stop)]);
    for (field, handler) in handlers {
        if let Some(handler) = handler {
            apply(LIFECYCLE, handler, &path.child(field), found);
        }
    }
}

fn port_names(container: &Container, path: &Path<'_>, errors: &mut Errors) {
    let names = container.ports.iter().flatten().map(|port| text(port.name.as_ref())).enumerate();
    let names = names.filter(|(_, name)| !name.is_empty());
    unique(names, &mut HashSet::new(), "must be unique among the ports of the container", path, errors);
}

pub(super) fn text(text: Option<&String>) -> &str {
    text.map_or("", String::as_str)
}

fn adds(context: &SecurityContext, capability: &str) -> bool {
    let added = context.capabilities.as_ref().and_then(|it| it.add.as_ref());
    added.is_some_and(|added| added.iter().any(|it| it == capability))
}

fn sources(from: &EnvVarSource) -> usize {
    let sources = [
        from.config_map_key_ref.is_some(),
        from.field_ref.is_some(),
        from.file_key_ref.is_some(),
        from.resource_field_ref.is_some(),
        from.secret_key_ref.is_some(),
    ];
    count(&sources)
}

fn handlers(probe: &Probe) -> usize {
    count(&[probe.exec.is_some(), probe.grpc.is_some(), probe.http_get.is_some(), probe.tcp_socket.is_some()])
}

fn actions(handler: &LifecycleHandler) -> usize {
    let (http, tcp) = (handler.http_get.is_some(), handler.tcp_socket.is_some());
    count(&[handler.exec.is_some(), http, handler.sleep.is_some(), tcp])
}

fn count(set: &[bool]) -> usize {
    set.iter().filter(|it| **it).count()
}

/// As Kubernetes allows since 1.34.
fn is_variable(name: &str) -> bool {
    name.bytes().all(|byte| matches!(byte, b' '..=b'<' | b'>'..=b'~'))
}

fn is_below(path: &str) -> bool {
    !path.starts_with('/') && path.split('/').all(|step| step != "..")
}
