//! What one check assumes: how many Pods, who is late, and what may go wrong how often.

use crate::proof::RuleMutation;

/// One configuration of the model.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    pub mode: Mode,
    pub pods: usize,
    /// Whether the life begins with the Pods being created. Else all workers run already, in epoch 1.
    pub from_birth: bool,
    pub max_restarts: i32,
    pub late: Late,
    pub faults: Faults,
    pub left: Budget,
    /// Whether an advance is free only if nothing has struck in the epoch that it ends.
    pub strict: bool,
    pub stream: Stream,
    pub broken: Option<RuleMutation>,
}

impl Setting {
    /// The same with three Pods, or with a leader that answers late, or where there are as many, with one fault more: for those who have time. Where somebody is
    /// late or the JobSet is suspended, three Pods are enough of it.
    pub(super) fn larger(self) -> Self {
        if self.stream != Stream::Absent {
            // Three Pods would be hundreds of times as many states.
            let stream = if self.stream == Stream::Prompt { Stream::Late } else { self.stream };
            return Self { stream, ..self };
        }
        let is_prompt = !self.late.statuses && self.late.pods == 0 && !self.late.jobsets && !self.late.writes;
        let more = u8::from(self.pods >= 3 && is_prompt && self.left.suspensions == 0);
        let left = Budget { faults: self.left.faults + more, ..self.left };
        Self { pods: self.pods.max(3), left, ..self }
    }
}

/// How the agents work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Mode {
    /// In a container of their own.
    #[default]
    Sidecar,
    /// As parents of the workers.
    Supervisor,
}

/// Whether agents know a relay. They may connect to it or not, and hear each statement late.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stream {
    /// They know none.
    #[default]
    Absent,
    /// The leader hears of each connection at once, and answers at once.
    Prompt,
    /// The leader hears of connections late, and answers late.
    Late,
    /// The same, and no agent begins a watch: all wait for the stream.
    Alone,
}

/// Who is late. Agents see the JobSet late in every setting, each by itself.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Late {
    /// Kubelets write a status late, or never, because the next one supersedes it.
    pub statuses: bool,
    /// The most events of one Pod that the controller has not observed yet. More than that break its watch, and what is in
    /// between is never observed. 0: it sees everything at once.
    pub pods: usize,
    /// The controller sees late what the JobSet has become, its own writes among it.
    pub jobsets: bool,
    /// The controller's writes arrive after other things have happened.
    pub writes: bool,
}

/// What can make the group restart.
// Each may happen or not whatever the others do.
#[allow(clippy::struct_excessive_bools)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    /// A worker exits with a code that restarts its Pod.
    pub worker: bool,
    /// An agent restarts. A sidecar restarts alone, and its worker runs on; with a supervisor its worker ends.
    pub agent: bool,
    /// All containers of a Pod restart, whatever they are doing: the agent or an init container has failed.
    pub pod: bool,
    /// A Pod is evicted, and another comes in its place.
    pub eviction: bool,
    /// A Pod is deleted by force, with its containers, and another comes in its place.
    pub loss: bool,
}

/// How much may still go wrong.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Budget {
    /// [`Faults`].
    pub faults: u8,
    /// Reports, or their answers, that get lost.
    pub reports: u8,
    /// Crashes of the controller.
    pub crashes: u8,
    /// Suspensions by the user, each taken back at any time, or never.
    pub suspensions: u8,
    /// First reads of an agent that are stale: what a real agent's never is.
    pub stale_reads: u8,
    /// Connections of agents to a relay that break. Each may be followed by another.
    pub breaks: u8,
    /// Reports over the stream that arrive after their connection has ended. Others get lost with it.
    pub late_reports: u8,
    /// Statements of a leader that was stopped, and wakes when others lead.
    pub woken: u8,
    /// Workers that make no progress any longer. The group restarts once none does.
    pub stalls: u8,
    /// Whether relays are hostile: without end.
    pub hostile: bool,
}
