//! The integration tests of the harness, and of JobSet on a real Kubernetes: one binary, one shared cluster.

mod breaks;
mod cert_manager;
mod chart;
mod clients;
mod conformance;
mod crd;
mod features;
mod hangs;
mod harness;
mod kubelet;
mod objects;
mod readme;
mod seat;
mod seeds;
mod takeover;
mod training;
