//! A Pod's cell in the grid.

use serde::{Serialize, Serializer};

use crate::status::{PodBarrier, PodNode};

/// The state of a Pod as the grid shows it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum CellKind {
    /// The Pod does not exist.
    #[default]
    Missing,
    /// The Pod starts, or its agent has not reported yet.
    Starting,
    /// The Pod waits at the barrier for the others.
    Waiting,
    Running,
    /// The epoch of the Pod is deprecated: the Pod restarts.
    Restarting,
    Failed,
    Completed,
    Deleting,
}

impl CellKind {
    pub fn of(pod: &PodNode) -> Self {
        match pod.barrier {
            _ if pod.failed => Self::Failed,
            _ if pod.ended => Self::Completed,
            _ if pod.state == "Terminating" => Self::Deleting,
            _ if pod.has_error() => Self::Failed,
            Some(PodBarrier::Invalid) => Self::Failed,
            Some(PodBarrier::Restarting) => Self::Restarting,
            Some(PodBarrier::Waiting) => Self::Waiting,
            _ if pod.runs() => Self::Running,
            _ => Self::Starting,
        }
    }

    /// The letter that the page knows it by, and draws.
    pub fn letter(self) -> char {
        match self {
            Self::Missing => '-',
            Self::Starting => 'S',
            Self::Waiting => 'W',
            Self::Running => 'R',
            Self::Restarting => 'O',
            Self::Failed => 'F',
            Self::Completed => 'C',
            Self::Deleting => 'D',
        }
    }
}

impl Serialize for CellKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_char(self.letter())
    }
}

/// What the grid shows of a Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// Name of the Pod; empty if it does not exist.
    pub pod: String,
    pub kind: CellKind,
    /// The epoch that it is in, if it is known.
    pub epoch: Option<i32>,
}

impl Cell {
    pub fn of(pod: &PodNode) -> Self {
        let epoch = pod.epoch.as_ref().and_then(|epoch| epoch.parse().ok());
        Self { pod: pod.name.clone(), kind: CellKind::of(pod), epoch }
    }
}
