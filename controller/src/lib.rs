//! The program of the JobSet controller: watches, requests, the Lease and the ports around the [engine](jobset_engine).

pub mod args;
pub mod run;
pub mod shell;
