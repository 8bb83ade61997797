//! The JobSet in-place restart agent: a sidecar of every worker Pod.
//!
//! It reports its Pod's epoch, holds the worker back at a barrier until all Pods of the JobSet have reported the same
//! epoch, and restarts its Pod in place when the epoch is over.
//!
//! [`decide`] holds every decision, as a state machine without clock, client or async. [`run`] brings it what happened
//! ([`watch`] on the JobSet, answers to a [`report`], signals, time) and does what it says; [`probe`] shows the barrier
//! to the kubelet.

pub mod args;
pub mod backoff;
pub mod connect;
pub mod decide;
pub mod error;
pub mod jobset;
pub mod probe;
pub mod report;
pub mod run;
pub mod watch;
