//! Feature gates: features that a flag switches on and off.

use std::fmt;
use std::str::FromStr;

/// Which features are on. Controller and webhook read the same flag, `--feature-gates`, with the Go JobSet's names.
///
/// While a gate is off, admission rejects new uses of the feature. A JobSet that was admitted before still runs.
// Each gate is independent of the others.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gates {
    /// `InPlaceRestart`: restart strategy InPlaceRestart (KEP-467). Off: admission rejects the strategy, and a JobSet
    /// that already has it restarts by recreation.
    pub in_place_restart: bool,
    /// `RestartJob`: actions of the failure policy that recreate a single Job (KEP-262). Off: admission rejects these
    /// actions.
    pub restart_job: bool,
    /// `ElasticJobSet`: resizing while the JobSet runs (KEP-463). Off: admission rejects another size, and the
    /// controller does not resize Jobs.
    pub elastic_job_set: bool,
    /// `TLSOptions`: the section `tls` of the Go JobSet's configuration file. Off: the section is ignored.
    pub tls_options: bool,
    /// `ExecutionAttemptsTracking`: `status.executionAttempts`, and the annotation of the same number on Jobs and Pods
    /// (KEP-1282). Off, which is the default: the controller leaves both alone.
    pub execution_attempts_tracking: bool,
    /// `JobSetActiveDeadlineSeconds`: `spec.activeDeadlineSeconds` and `status.startTime` (KEP-1186). Off, which is the
    /// default: admission rejects a value that is set or changed, and the controller neither writes the time nor fails a
    /// JobSet by it.
    pub job_set_active_deadline_seconds: bool,
    /// `MutablePodResourcesForSuspendedJobSets`: requests and limits of containers change while the JobSet is suspended
    /// (KEP-1150). Off, which is the default: admission rejects such a change, and the controller does not change the
    /// resources of a Job that it resumes. The API server needs its own feature gate MutablePodResourcesForSuspendedJobs,
    /// which is on by default since Kubernetes 1.36.
    pub mutable_pod_resources_for_suspended_job_sets: bool,
    /// `AgentStream`: restarts in place over the stream between the agents and the controller. Off: the controller connects
    /// to no relay, and all agents watch their JobSet. The gate is not in the Go JobSet. A controller that has no certificates
    /// for relays, as one that was installed by hand, works as with the gate off.
    pub agent_stream: bool,
}

/// Which gates `AllAlpha` or `AllBeta` switches.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Alpha,
    Beta,
}

/// Name, stage and field of a gate.
type Gate = (&'static str, Stage, fn(&mut Gates) -> &mut bool);

const GATES: [Gate; 8] = [
    ("InPlaceRestart", Stage::Alpha, |gates| &mut gates.in_place_restart),
    ("RestartJob", Stage::Alpha, |gates| &mut gates.restart_job),
    ("ElasticJobSet", Stage::Alpha, |gates| &mut gates.elastic_job_set),
    ("TLSOptions", Stage::Beta, |gates| &mut gates.tls_options),
    ("ExecutionAttemptsTracking", Stage::Alpha, |gates| &mut gates.execution_attempts_tracking),
    ("JobSetActiveDeadlineSeconds", Stage::Alpha, |gates| &mut gates.job_set_active_deadline_seconds),
    ("MutablePodResourcesForSuspendedJobSets", Stage::Alpha, |gates| {
        &mut gates.mutable_pod_resources_for_suspended_job_sets
    }),
    ("AgentStream", Stage::Beta, |gates| &mut gates.agent_stream),
];

impl Default for Gates {
    fn default() -> Self {
        Self {
            in_place_restart: true,
            restart_job: true,
            elastic_job_set: true,
            tls_options: true,
            execution_attempts_tracking: false,
            job_set_active_deadline_seconds: false,
            mutable_pod_resources_for_suspended_job_sets: false,
            agent_stream: true,
        }
    }
}

impl Gates {
    /// The gates with these values set. The value of a single gate overrides `AllAlpha` and `AllBeta`, as in
    /// Kubernetes.
    pub fn with<'a>(mut self, values: impl IntoIterator<Item = (&'a str, bool)>) -> Result<Self, InvalidGates> {
        let (of_stages, of_gates): (Vec<_>, Vec<_>) = values.into_iter().partition(|(name, _)| stage(name).is_some());
        for (name, value) in of_stages {
            for (.., of) in GATES.into_iter().filter(|(_, of_gate, _)| stage(name) == Some(*of_gate)) {
                *of(&mut self) = value;
            }
        }
        for (name, value) in of_gates {
            let gate = GATES.into_iter().find(|(known, ..)| *known == name);
            let (.., of) = gate.ok_or_else(|| InvalidGates::Unknown(name.to_owned()))?;
            *of(&mut self) = value;
        }
        Ok(self)
    }
}

/// The gates that a name stands for, if it is not that of a single gate.
fn stage(name: &str) -> Option<Stage> {
    match name {
        "AllAlpha" => Some(Stage::Alpha),
        "AllBeta" => Some(Stage::Beta),
        _ => None,
    }
}

/// The value of the flag is not a list of known gates.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum InvalidGates {
    #[error("{0:?} is not of the form Gate=true or Gate=false")]
    Form(String),
    #[error("unknown feature gate {_0:?}, known are {known}", known = GATES.map(|(name, ..)| name).join(", "))]
    Unknown(String),
}

/// Parses `Gate=true` and `Gate=false`, separated by commas. All other gates keep their default.
impl FromStr for Gates {
    type Err = InvalidGates;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = |gate: &'_ str| -> Result<(String, bool), InvalidGates> {
            let form = || InvalidGates::Form(gate.to_owned());
            let (name, value) = gate.split_once('=').ok_or_else(form)?;
            Ok((name.trim().to_owned(), value.trim().parse().map_err(|_| form())?))
        };
        let gates = text.split(',').map(str::trim).filter(|gate| !gate.is_empty());
        let values: Vec<(String, bool)> = gates.map(read).collect::<Result<_, _>>()?;
        Self::default().with(values.iter().map(|(name, value)| (name.as_str(), *value)))
    }
}

impl fmt::Display for Gates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut gates = *self;
        let gates = GATES.into_iter().map(|(name, _, of)| format!("{name}={}", of(&mut gates)));
        f.write_str(&gates.collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn gates_from_text_match_kubernetes_syntax() {
        let off = Gates { in_place_restart: false, ..Gates::default() };
        assert_eq!("".parse(), Ok(Gates::default()));
        assert_eq!("InPlaceRestart=false".parse(), Ok(off));
        assert_eq!(" InPlaceRestart=false , InPlaceRestart=true,".parse(), Ok(Gates::default()));
        assert_eq!("InPlaceRestart".parse::<Gates>(), Err(InvalidGates::Form("InPlaceRestart".to_owned())));
        assert_eq!("InPlaceRestart=1".parse::<Gates>(), Err(InvalidGates::Form("InPlaceRestart=1".to_owned())));
        assert_eq!("Elastic=true".parse::<Gates>(), Err(InvalidGates::Unknown("Elastic".to_owned())));
    }

    #[rstest]
    #[case("RestartJob=false", Gates { restart_job: false, ..Gates::default() })]
    #[case("ElasticJobSet=false", Gates { elastic_job_set: false, ..Gates::default() })]
    #[case("TLSOptions=false", Gates { tls_options: false, ..Gates::default() })]
    #[case("AgentStream=false", Gates { agent_stream: false, ..Gates::default() })]
    #[case("ExecutionAttemptsTracking=true", Gates { execution_attempts_tracking: true, ..Gates::default() })]
    #[case("JobSetActiveDeadlineSeconds=true", Gates { job_set_active_deadline_seconds: true, ..Gates::default() })]
    #[case(
        "MutablePodResourcesForSuspendedJobSets=true",
        Gates { mutable_pod_resources_for_suspended_job_sets: true, ..Gates::default() }
    )]
    #[case(
        "AllAlpha=true,AllBeta=true",
        Gates {
            execution_attempts_tracking: true,
            job_set_active_deadline_seconds: true,
            mutable_pod_resources_for_suspended_job_sets: true,
            ..Gates::default()
        }
    )]
    #[case("AllBeta=false", Gates { tls_options: false, agent_stream: false, ..Gates::default() })]
    #[case("AllBeta=false,AgentStream=true", Gates { tls_options: false, ..Gates::default() })]
    #[case(
        "RestartJob=true,AllAlpha=false",
        Gates { in_place_restart: false, elastic_job_set: false, ..Gates::default() }
    )]
    fn gate_name_switches_its_gate(#[case] text: &str, #[case] expected: Gates) {
        assert_eq!(text.parse(), Ok(expected));
        assert_eq!(expected.to_string().parse(), Ok(expected));
    }
}
