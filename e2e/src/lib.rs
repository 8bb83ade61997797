//! The Go JobSet on a test cluster, and its own test suites against these programs.

pub mod conformance;
pub mod go_jobset;
