//! Injects the agent as a sidecar: the first init container. Its startup probe delays the workers, and its exit code
//! restarts the whole Pod (KEP-467).

use k8s_openapi::api::core::v1::Probe;

use super::barrier::{AgentPorts, Barrier};
use super::target::{Image, Outcome, Target, add_pull_secrets, init_container, restricted, set_image};
use super::{environment, epoch, progress, projected, resources};
use crate::agent::{Agent, NAME, is_told};
use crate::field::Errors;
use crate::last_words;
use crate::restart_rules::{ExitCodes, RESTART_ALL_CONTAINERS, rule};

pub(super) fn inject(target: &mut Target<'_>, errors: &mut Errors) -> Outcome {
    let is_another = |agent: Agent<'_>| match agent {
        // A sidecar without the variable for the JobSet's name may have another purpose.
        Agent::Sidecar(_, container) => container.name != NAME && is_told(container),
        Agent::Supervisor(..) => true,
    };
    if Agent::all_of(target.pod).into_iter().any(is_another) {
        return Outcome::LeftAlone;
    }
    let Some(barrier) = Barrier::choose(target.pod, NAME, AgentPorts::All, target.path, errors) else {
        return Outcome::Done;
    };
    let (resources, security) =
        (resources::of_agent(target.pod, &target.settings.agent_resources), restricted(target.pod));
    let Some(agent) = init_container(target.pod, NAME, target.path, errors) else { return Outcome::Done };
    let image = set_image(agent, target.settings);
    if image == Image::Missing {
        return Outcome::NoImage;
    }
    agent.restart_policy.get_or_insert_with(|| "Always".to_owned());
    if agent.restart_policy_rules.iter().flatten().next().is_none() {
        // If the agent restarted alone, it would report a new epoch while its worker still runs in the old one.
        agent.restart_policy_rules = Some(vec![rule(RESTART_ALL_CONTAINERS, ExitCodes::failures())]);
    }
    environment::add_agent_variables(agent, barrier.port);
    barrier.declare(agent);
    // The agent waits without limit: the group starts when all of its Pods are at the barrier.
    agent.startup_probe.get_or_insert_with(|| Probe { failure_threshold: Some(i32::MAX), ..barrier.probe() });
    agent.resources = agent.resources.take().or(resources);
    agent.security_context.get_or_insert(security);
    last_words::keep(agent);
    epoch::write(agent);
    if let Some(stalls) = &target.settings.stalls {
        stalls.tell(agent);
    }
    for volume in projected::mount(agent, target.settings.relay.as_deref()) {
        volume.add(target.pod);
    }
    if image == Image::Injected {
        add_pull_secrets(target.pod, target.settings);
    }
    for worker in &mut target.pod.containers {
        target.rules.give(worker, RESTART_ALL_CONTAINERS, &[]);
        // The restart of the Pod erases its log.
        last_words::keep(worker);
    }
    epoch::read(target.pod, NAME);
    if target.settings.stalls.is_some() {
        target.pod.containers.iter_mut().for_each(progress::let_tell);
        progress::add_volume(target.pod);
    }
    Outcome::Done
}
