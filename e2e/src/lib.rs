//! Other projects' programs on a test cluster, the Go JobSet and those who make JobSets, and their test suites against these
//! programs.

pub mod cert_manager;
pub mod clients;
pub mod conformance;
pub mod go_jobset;
pub mod manifests;
