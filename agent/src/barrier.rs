//! The barrier that holds the worker back, and its text for people.

use std::fmt::{self, Display};

/// Why the worker may or may not start. The startup probe answers with this text.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Barrier {
    /// The agent has not observed a state of the JobSet yet.
    AwaitsJobSet,
    /// The JobSet of that name has another UID than the JobSet that this Pod belongs to.
    AwaitsOtherJobSet { own: String, observed: String },
    /// The Pod waits until all Pods of the JobSet have reported its epoch. The last one that all have reported is `synced`.
    AwaitsSync { epoch: i32, synced: i32 },
    /// The worker may run in this epoch; in `None` if the JobSet does not restart in place.
    Lifted { epoch: Option<i32> },
    /// The supervised worker is being stopped.
    Stopping,
}

impl Display for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AwaitsJobSet => write!(f, "waiting for the first state of the JobSet"),
            Self::AwaitsOtherJobSet { own, observed } => {
                write!(f, "waiting for the JobSet with UID {own}; the one that exists has UID {observed}")
            }
            Self::AwaitsSync { epoch, synced } => {
                write!(f, "waiting in epoch {epoch} for all Pods of the JobSet; the last synced epoch is {synced}")
            }
            Self::Lifted { epoch: Some(epoch) } => write!(f, "lifted in epoch {epoch}"),
            Self::Stopping => write!(f, "stopping the worker"),
            Self::Lifted { epoch: None } => write!(f, "lifted; the JobSet does not restart in place"),
        }
    }
}
