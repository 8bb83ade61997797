//! The controller on a real API server with the real Job controller, and no nodes: Pods stay Pending, and the tests
//! write what agents would.

mod bench;
mod epochs;
mod fixture;
mod kubelet;
mod leader;
mod metrics;
mod pods;
mod program;
mod recreate;
mod resume;
mod shared;
mod taken;
mod weather;
