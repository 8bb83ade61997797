//! Injects the agent as the supervisor of the worker. An init container copies the agent's binary into the Pod. The
//! worker's command becomes the argument of the agent, which starts it with the epoch in its environment (KEP-467, "if
//! restartPolicy = OnFailure is used instead").

use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::barrier::{AgentPorts, Barrier};
use super::folder::INSTALLER;
use super::target::{Image, Outcome, Target, add_pull_secrets, init_container, restricted, set_image};
use super::{environment, folder, progress, projected, resources};
use crate::agent::{Agent, FAILED_JOBSET_EXIT_CODE, FATAL_EXIT_CODES, INSTALL, SUPERVISE, is_told};
use crate::field::{Errors, Path};
use crate::last_words;
use crate::restart_rules::{NEVER, RESTART, final_codes};

/// The agent's binary in the shared volume.
const PROGRAM: &str = "/var/run/jobset-agent/jobset-agent";

const NO_COMMAND: &str = "must be set to the worker's program, which the supervisor starts: what the image would run is \
                          not known here. Write it out, or inject the agent as a Sidecar";
const PROBE: &str = "must not be set on a supervised container, which it would kill while it waits at the barrier: use \
                     a readinessProbe, or inject the agent as a Sidecar";
const SHARED_PROCESSES: &str = "must not be true where the agent is the supervisor, which ends all processes that it \
                                finds below it: leave it out, or inject the agent as a Sidecar";
const SEVERAL: &str = "must be the one container that is supervised, or the annotation \
                       kubectl.kubernetes.io/default-container of the Pod template must name it";

/// Splits a command into the supervisor and the worker's command. `None` if the command has no supervisor.
pub(crate) fn wrapping(command: &[String]) -> Option<(&[String], &[String])> {
    let (wrapping, worker) = command.split_at_checked(3)?;
    (is_program(wrapping.first()?) && wrapping[1] == SUPERVISE && wrapping[2] == "--").then_some((wrapping, worker))
}

fn is_program(word: &str) -> bool {
    word.rsplit('/').next() == Some(crate::agent::NAME)
}

pub(super) fn inject(target: &mut Target<'_>, errors: &mut Errors) -> Outcome {
    // A supervisor with another path is part of the worker's own image.
    let is_another = |agent: Agent<'_>| match agent {
        Agent::Sidecar(_, container) => is_told(container),
        Agent::Supervisor(_, container) => !is_installed(container),
    };
    if Agent::all_of(target.pod).into_iter().any(is_another) {
        return Outcome::LeftAlone;
    }
    shared_processes(target.pod, target.path, errors);
    let Some(index) = worker(target, errors) else { return Outcome::Done };
    let list = target.path.child("containers");
    check(&target.pod.containers[index], &list.index(index), errors);
    let name = target.pod.containers[index].name.clone();
    let Some(barrier) = Barrier::choose(target.pod, &name, AgentPorts::Configured, target.path, errors) else {
        return Outcome::Done;
    };
    if !install(target, errors) {
        return Outcome::NoImage;
    }
    let worker = &mut target.pod.containers[index];
    if !is_installed(worker) {
        let command = worker.command.take().unwrap_or_default();
        let supervisor = [PROGRAM, SUPERVISE, "--"].map(str::to_owned);
        worker.command = Some(supervisor.into_iter().chain(command).collect());
    }
    target.rules.give(worker, RESTART, &[FAILED_JOBSET_EXIT_CODE]);
    environment::add_agent_variables(worker, barrier.port);
    if worker.restart_policy.as_deref().is_none_or(|policy| policy == NEVER) {
        let mut fatal = final_codes(worker.restart_policy_rules.as_deref().unwrap_or_default());
        // The agent itself ends with this code. A worker that does so has failed as with any other.
        fatal.retain(|code| *code != FAILED_JOBSET_EXIT_CODE);
        if !fatal.is_empty() {
            environment::add(worker, environment::with_value(FATAL_EXIT_CODES, ranges(&fatal)));
        }
    }
    barrier.declare(worker);
    worker.readiness_probe.get_or_insert_with(|| barrier.probe());
    // The words of an agent that cannot start, or that is killed with its worker.
    last_words::keep(worker);
    folder::mount(worker, true);
    if let Some(stalls) = &target.settings.stalls {
        stalls.tell(worker);
    }
    for volume in projected::mount(worker, target.settings.relay.as_deref()) {
        volume.add(target.pod);
    }
    if target.settings.stalls.is_some() {
        progress::add_volume(target.pod);
    }
    Outcome::Done
}

/// Ascending codes as text, such as `2,3,64-78`.
fn ranges(codes: &[u8]) -> String {
    let runs = codes.chunk_by(|code, next| code.checked_add(1) == Some(*next));
    let text = runs.map(|run| match run {
        [code] => code.to_string(),
        [first, .., last] if run.len() > 2 => format!("{first}-{last}"),
        run => run.iter().map(u8::to_string).collect::<Vec<_>>().join(","),
    });
    text.collect::<Vec<_>>().join(",")
}

fn is_installed(container: &Container) -> bool {
    container.command.iter().flatten().next().is_some_and(|program| program == PROGRAM)
}

fn shared_processes(pod: &PodSpec, path: &Path<'_>, errors: &mut Errors) {
    for (field, shared) in [("shareProcessNamespace", pod.share_process_namespace), ("hostPID", pod.host_pid)] {
        if shared == Some(true) {
            errors.invalid(&path.child(field), true, SHARED_PROCESSES);
        }
    }
}

/// Index of the container that is supervised.
fn worker(target: &Target<'_>, errors: &mut Errors) -> Option<usize> {
    let containers = &target.pod.containers;
    if let Some(index) = containers.iter().position(is_installed) {
        return Some(index);
    }
    if containers.len() == 1 {
        return Some(0);
    }
    let chosen = target.default_container.and_then(|name| containers.iter().position(|it| it.name == name));
    if chosen.is_none() {
        let names: Vec<_> = containers.iter().map(|container| &container.name).collect();
        errors.invalid(&target.path.child("containers"), names, SEVERAL);
    }
    chosen
}

fn check(worker: &Container, path: &Path<'_>, errors: &mut Errors) {
    if worker.command.iter().flatten().next().is_none() {
        errors.required(&path.child("command"), NO_COMMAND);
    }
    for (field, probe) in [("livenessProbe", &worker.liveness_probe), ("startupProbe", &worker.startup_probe)] {
        if probe.is_some() {
            errors.forbidden(&path.child(field), PROBE);
        }
    }
}

/// Adds the init container that copies the binary. Returns false if there is no image of the agent.
fn install(target: &mut Target<'_>, errors: &mut Errors) -> bool {
    let (resources, security) =
        (resources::of_agent(target.pod, &target.settings.agent_resources), restricted(target.pod));
    let Some(installer) = init_container(target.pod, INSTALLER, target.path, errors) else { return true };
    let image = set_image(installer, target.settings);
    if image == Image::Missing {
        return false;
    }
    installer.args.get_or_insert_with(|| vec![INSTALL.to_owned(), folder::PATH.to_owned()]);
    installer.resources = installer.resources.take().or(resources);
    installer.security_context.get_or_insert(security);
    last_words::keep(installer);
    folder::mount(installer, false);
    folder::add_volume(target.pod);
    if image == Image::Injected {
        add_pull_secrets(target.pod, target.settings);
    }
    true
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::ranges;

    #[rstest]
    #[case(&[], "")]
    #[case(&[3], "3")]
    #[case(&[2, 3], "2,3")]
    #[case(&[2, 3, 4, 9, 254, 255], "2-4,9,254,255")]
    fn ranges_of_adjacent_codes_are_joined(#[case] codes: &[u8], #[case] text: &str) {
        assert_eq!(ranges(codes), text);
    }
}
