//! Warnings about admitted JobSets that may not do what the user expects. `kubectl` shows them.

use k8s_openapi::api::core::v1::{Container, ContainerRestartRule, PodSpec, Probe};

use super::subject::Subject;
use super::{
    additional_restarts, annotations, durations, gangs, inject_agent, lone_restarts, managed_by, nodes, overwritten,
    refused_pods, restart_backoff, restart_request, stalls, template,
};
use crate::agent::{Agent, asks_dns_of_node, uses_relay};
use crate::field::Path;
use crate::gates::Gates;
use crate::restart_rules::{ALWAYS, ExitCodes, NEVER, RESTART, TERMINATE, restarts_pod};
use crate::{JobSet, RestartStrategy, labels};

/// Maximum number of warnings of one object. The API server drops warnings beyond 4,096 characters in total.
const KEPT: usize = 12;
/// Seconds that workers can wait at the barrier in normal operation, for nodes or images.
const MIN_STARTUP_SECONDS: i64 = 24 * 60 * 60;
const SHARED_TOKEN: &str = "the worker can use its agent's token: report any epoch and exit for its Pod, and read the JobSets of \
                            the namespace. If you do not trust the worker, inject the agent as a Sidecar";

const DNS_OF_NODE: &str = "the DNS of the node knows no Services: the agent does not find the relays and uses the API server, so a large \
                           group restarts slower. With hostNetwork, set ClusterFirstWithHostNet";

/// The warnings about a JobSet. Each is one line that starts with the path of a field.
///
/// Call it only for JobSets without errors.
pub fn warnings(jobset: &JobSet) -> Vec<String> {
    let subject = Subject::new(jobset, Gates::default());
    let mut warnings = Warnings::default();
    annotations::warn(&subject, &mut warnings);
    additional_restarts::warn(&subject, &mut warnings);
    restart_backoff::warn(&subject, &mut warnings);
    durations::warn(&subject, &mut warnings);
    nodes::warn(&subject, &mut warnings);
    restart_request::warn(&subject, &mut warnings);
    managed_by::warn(&subject, &mut warnings);
    let spec = Path::root("spec");
    stalls::warn(&subject, &spec, &mut warnings);
    overwritten::warn(&subject, &spec, &mut warnings);
    template::warn(&subject, &spec, &mut warnings);
    refused_pods::warn(&subject, &spec, &mut warnings);
    lone_restarts::warn(&subject, &spec, &mut warnings);
    gangs::warn(&subject, &spec, &mut warnings);
    if subject.spec.restart_strategy() == RestartStrategy::InPlaceRestart {
        in_place(&subject, &mut warnings);
    } else if jobset.annotation(labels::INJECT_AGENT).is_some() {
        let strategy = subject.spec.restart_strategy();
        let text = format_args!("no agent is added with restartStrategy {strategy:?}: it is for InPlaceRestart");
        warnings.push(&Path::annotation(labels::INJECT_AGENT), text);
    }
    warnings.finish()
}

/// The warnings about an update. If only annotations have changed, these are the warnings that the change adds.
///
/// Call it only for updates without errors.
pub fn update_warnings(old: &JobSet, new: &JobSet) -> Vec<String> {
    let is_same_spec = old.spec == new.spec;
    if is_same_spec && old.metadata.annotations == new.metadata.annotations {
        return Vec::new();
    }
    let mut of_update = Warnings::default();
    inject_agent::warn_of_update(old, new, &mut of_update);
    stalls::warn_of_update(old, new, &mut of_update);
    let previous = if is_same_spec { warnings(old) } else { Vec::new() };
    let added = warnings(new).into_iter().filter(|warning| !previous.contains(warning));
    of_update.0.into_iter().chain(added).collect()
}

/// The warnings about one JobSet.
#[derive(Default)]
pub(super) struct Warnings(Vec<String>);

impl Warnings {
    pub(super) fn push(&mut self, path: &Path<'_>, text: impl std::fmt::Display) {
        self.0.push(format!("{path}: {text}"));
    }

    fn finish(mut self) -> Vec<String> {
        let more = self.0.len().saturating_sub(KEPT);
        if more > 0 {
            self.0.truncate(KEPT);
            self.0.push(format!("and {more} more warnings"));
        }
        self.0
    }
}

fn in_place(subject: &Subject<'_>, warnings: &mut Warnings) {
    let spec = Path::root("spec");
    if subject.spec.max_restarts() == 0 {
        let path = spec.child("failurePolicy.maxRestarts");
        warnings.push(&path, "is 0, so that the first failure fails the JobSet and nothing is restarted in place");
    }
    if subject.spec.dns_hostnames_enabled() && !subject.spec.publish_not_ready_addresses() {
        let path = spec.child("network.publishNotReadyAddresses");
        let text = "is false: after each restart workers find each other by name only once all of them are ready";
        warnings.push(&path, text);
    }
    if subject.jobset.annotation(labels::DISABLE_IN_PLACE_RESTART).is_some() {
        let text = "agents let their workers run at once and restart nothing: in-place restart is switched off";
        warnings.push(&Path::annotation(labels::DISABLE_IN_PLACE_RESTART), text);
    }
    shared_token(subject, &spec, warnings);
    subject.for_each_pod(&spec, |pod, path| self::pod(pod, path, warnings));
}

/// A supervised worker runs in the container of its agent, so nothing keeps the agent's token from it. One warning stands for
/// all Pods of the JobSet.
fn shared_token(subject: &Subject<'_>, spec: &Path<'_>, warnings: &mut Warnings) {
    let mut is_said = false;
    subject.for_each_pod(spec, |pod, path| {
        if let (false, Some(Agent::Supervisor(index, _))) = (is_said, Agent::all_of(pod).first()) {
            warnings.push(&path.child("containers").index(*index), SHARED_TOKEN);
            is_said = true;
        }
    });
}

fn pod(pod: &PodSpec, path: &Path<'_>, warnings: &mut Warnings) {
    if uses_relay(pod) && asks_dns_of_node(pod) {
        warnings.push(&path.child("dnsPolicy"), DNS_OF_NODE);
    }
    let agent = Agent::all_of(pod).into_iter().next();
    if let Some(Agent::Sidecar(index, container)) = agent
        && let Some(probe) = &container.startup_probe
    {
        let list = path.child("initContainers");
        barrier(probe, &list.index(index).child("startupProbe"), warnings);
    }
    let list = path.child("containers");
    for (index, container) in pod.containers.iter().enumerate() {
        if matches!(agent, Some(Agent::Supervisor(supervised, _)) if supervised == index) {
            supervisor(container, pod, &list.index(index), warnings);
        } else {
            worker(container, pod, &list.index(index), warnings);
        }
    }
}

fn barrier(probe: &Probe, path: &Path<'_>, warnings: &mut Warnings) {
    let (failures, period) = (probe.failure_threshold.unwrap_or(3), probe.period_seconds.unwrap_or(10));
    let seconds = i64::from(failures.max(1)) * i64::from(period.max(1));
    if seconds < MIN_STARTUP_SECONDS {
        let text = format_args!(
            "after {seconds} s at the barrier the kubelet restarts the agent, even if it only waits for other Pods: set \
             failureThreshold to 2147483647"
        );
        warnings.push(&path.child("failureThreshold"), text);
    }
}

/// Effect of an exit of a container.
#[derive(Clone, Copy, PartialEq)]
enum Effect {
    Nothing,
    RestartsItAlone,
    RestartsThePod,
}

/// A supervisor restarts its worker itself. Only if the supervisor exits must the kubelet restart it. The supervisor of
/// the Go JobSet exits at each restart.
fn supervisor(container: &Container, pod: &PodSpec, path: &Path<'_>, warnings: &mut Warnings) {
    let policy = container.restart_policy.as_deref().or(pod.restart_policy.as_deref()).unwrap_or(NEVER);
    let restarts = |rule: &ContainerRestartRule| rule.action == RESTART || restarts_pod(rule);
    if policy == NEVER && !container.restart_policy_rules.iter().flatten().any(restarts) {
        let text = "no exit code restarts this container: when the agent ends, for lack of memory say, its Pod fails and is \
                    replaced. Add Restart for NotIn [0]";
        warnings.push(&path.child("restartPolicyRules"), text);
    }
}

fn worker(container: &Container, pod: &PodSpec, path: &Path<'_>, warnings: &mut Warnings) {
    let policy = container.restart_policy.as_deref().or(pod.restart_policy.as_deref()).unwrap_or(NEVER);
    let rules = container.restart_policy_rules.as_deref().unwrap_or_default();
    let rules: Vec<_> = rules.iter().filter_map(|rule| Some((ExitCodes::of(rule)?, rule))).collect();
    let effects: Vec<_> = (0..=255).map(|code| effect(&rules, policy, code)).collect();
    let path = path.child("restartPolicyRules");
    if let Some(code) = effects.iter().position(|effect| *effect == Effect::RestartsItAlone) {
        let text = format_args!(
            "exit code {code} restarts this container alone, and the other workers run on: use action \
             RestartAllContainers, so that the group restarts"
        );
        warnings.push(&path, text);
    } else if !effects.contains(&Effect::RestartsThePod) {
        let text = "no exit code restarts the Pod in place: a failure of this container fails the Pod, which is replaced. \
                    Add RestartAllContainers for NotIn [0]";
        warnings.push(&path, text);
    }
}

/// The first matching rule decides. If none matches, the policy decides.
fn effect(rules: &[(ExitCodes, &ContainerRestartRule)], policy: &str, code: i32) -> Effect {
    match rules.iter().find(|(codes, _)| codes.contains(code)).map(|(_, rule)| *rule) {
        Some(rule) if restarts_pod(rule) => Effect::RestartsThePod,
        Some(rule) if rule.action == RESTART => Effect::RestartsItAlone,
        Some(rule) if rule.action == TERMINATE => Effect::Nothing,
        _ if policy == ALWAYS || (policy != NEVER && code != 0) => Effect::RestartsItAlone,
        _ => Effect::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::testing::{assert_one, changed, in_place, read};
    use super::*;

    const POD: &str = "/spec/replicatedJobs/1/template/spec/template/spec";

    #[test]
    fn supervisor_without_restart_gets_warning() {
        let rules = json!([{ "action": "Terminate", "exitCodes": { "operator": "In", "values": [2] } }]);
        let container = json!({ "name": "worker", "command": ["jobset-agent", "supervise"], "restartPolicy": "Never",
            "restartPolicyRules": rules });
        let warnings = warnings(&read(&in_place(&[
            (&format!("{POD}/initContainers"), Value::Null),
            (&format!("{POD}/containers"), json!([container])),
        ])));
        assert_eq!(warnings.len(), 2, "that of the token, and {warnings:?}");
        assert!(warnings[1].contains("containers[0].restartPolicyRules: no exit code restarts this container: when"));
    }

    #[test]
    fn host_network_without_cluster_dns_gets_warning() {
        let volumes = json!([{"name": "r", "projected": {"sources": [{"configMap": {"name": "jobset-relay-ca"}}]}}]);
        let object = in_place(&[(&format!("{POD}/hostNetwork"), json!(true)), (&format!("{POD}/volumes"), volumes)]);
        let expected =
            "spec.replicatedJobs[1].template.spec.template.spec.dnsPolicy: the DNS of the node knows no Services";
        assert_one(&warnings(&read(&object)), expected);
    }

    #[test]
    fn warnings_of_same_spec_are_those_of_changed_annotations() {
        let doubtful = |annotation: &str, changes: &[(&str, Value)]| {
            let object = in_place(&[("/spec/failurePolicy/maxRestarts", Value::Null)]);
            read(&changed(changed(object, &[("/metadata/annotations", json!({ annotation: "1" }))]), changes))
        };
        let misspelt = "jobset.sigs.k8s.io/additional-restart";
        let stored = doubtful("example.com/a", &[]);
        assert_one(&update_warnings(&stored, &doubtful(misspelt, &[])), misspelt);
        let labelled = doubtful(misspelt, &[("/metadata/labels", json!({ "a": "b" }))]);
        assert_eq!(update_warnings(&doubtful(misspelt, &[]), &labelled), Vec::<String>::new());
        let suspended = doubtful("example.com/a", &[("/spec/suspend", json!(true))]);
        assert_one(&update_warnings(&stored, &suspended), "maxRestarts: is 0");
    }
}
