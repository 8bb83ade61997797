//! What is done to a group of workers, and to the cluster below it.

use std::fmt;

use clap::ValueEnum;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Fault {
    /// A worker gets SIGKILL.
    WorkerKilled,
    /// An agent gets SIGKILL.
    AgentKilled,
    /// The kernel kills an agent, whose container has no memory left.
    AgentOutOfMemory,
    /// An agent gets SIGTERM, and nobody else does.
    AgentTerminated,
    /// An agent and its worker get SIGKILL at the same moment.
    AgentAndWorkerKilled,
    /// All workers get SIGKILL at the same moment.
    AllWorkersKilled,
    /// Two workers get SIGKILL, the second up to some seconds after the first.
    TwoWorkersKilled,
    /// One worker gets SIGKILL five times, each time as soon as it has started again.
    SameWorkerKilled,
    /// A worker gets SIGKILL after another one has succeeded.
    WorkerKilledAfterSuccess,
    /// A Pod is deleted.
    PodDeleted,
    /// The kubelet of a node is stopped for some seconds, and a worker gets SIGKILL before or meanwhile.
    KubeletStopped,
    /// The API server is stopped and started again, and a worker gets SIGKILL before or meanwhile.
    ApiServerRestarted,
    /// The leading controller gets SIGKILL, and a worker does at about the same time.
    LeaderKilled,
    /// The leading controller gets SIGSTOP, and SIGCONT once another one has led for some seconds, and a worker gets SIGKILL meanwhile: at
    /// any moment, or right before SIGCONT.
    LeaderStopped,
    /// All relays are killed in the middle of a restart.
    StreamCut,
    /// The network drops what relays, agents and controllers send to each other, for some seconds.
    StreamBlocked,
    /// A relay gets SIGSTOP, and SIGCONT some seconds later, and a worker gets SIGKILL before or meanwhile.
    RelayStopped,
    /// The kubelets replace the tokens of all agents, whose connections end in the middle of a restart.
    TokenRotated,
    /// The CA of relays, controller and agents is replaced, and a worker gets SIGKILL before or meanwhile.
    CaRotated,
}

impl Fault {
    /// Whether the fault hits what all groups share. A step then kills the worker of one group beside it; the other groups
    /// must not notice anything. A step of any other fault hits each group by itself.
    pub(super) fn is_of_cluster(self) -> bool {
        self.is_of_stream()
            || matches!(
                self,
                Self::KubeletStopped | Self::ApiServerRestarted | Self::LeaderKilled | Self::LeaderStopped
            )
    }

    /// Whether the fault ends the connections of agents at once. Outside a restart, that is nothing.
    pub(super) fn ends_connections(self) -> bool {
        matches!(self, Self::StreamCut | Self::TokenRotated)
    }

    pub fn is_of_stream(self) -> bool {
        matches!(
            self,
            Self::StreamCut | Self::StreamBlocked | Self::RelayStopped | Self::TokenRotated | Self::CaRotated
        )
    }
}

impl fmt::Display for Fault {
    /// The name by which the command line knows it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_possible_value().map_or(Ok(()), |value| f.pad(value.get_name()))
    }
}

/// How the agents of a group work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Mode {
    /// In containers of their own.
    Sidecar,
    /// As the parents of their workers.
    Supervisor,
}

impl Mode {
    /// Both of them.
    pub const ALL: [Self; 2] = [Self::Sidecar, Self::Supervisor];
}

impl fmt::Display for Mode {
    /// The name by which the command line knows it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_possible_value().map_or(Ok(()), |value| f.pad(value.get_name()))
    }
}
