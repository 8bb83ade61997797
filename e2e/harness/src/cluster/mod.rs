//! A cluster: the values that describe it, its owner process, and the handles by which tests hold it.

mod cgroups;
mod components;
mod configs;
mod down;
mod enforcement;
mod family;
mod handle;
mod holding;
mod layout;
mod network;
mod owner;
mod pki;
mod policies;
mod power;
mod readiness;
mod shared;
mod slot;
mod storage;
mod supervisor;

pub(crate) use cgroups::check as check_cgroups;
pub use down::down;
pub use enforcement::Enforcement;
pub use handle::{Cluster, ControlPlane, Handle};
pub use layout::{Options, Ready};
pub use owner::own;
pub use shared::shared;
pub use storage::{Ending, new_dir};
pub use supervisor::supervise;

/// The line on the owner's standard input by which a holder asks it to keep nothing of the cluster.
pub const REMOVE: &str = "remove";
