//! The parts of objects that are read from the wire. The rest is skipped while it is parsed: of five thousand Pods of 9 kB
//! each, a few hundred bytes are looked at.

mod condition;
mod job;
mod pod;

pub use condition::Condition;
pub use job::JobWire;
pub use pod::{ContainerStatus, PodWire, Terminated, Waiting};
