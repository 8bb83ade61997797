//! The JobSet in-place restart agent, in every worker Pod: a sidecar of the workers, or the supervisor of one.
//!
//! It reports its Pod's epoch, holds the worker back until all Pods of the JobSet have reported the same epoch, and has it
//! restarted when the epoch is over.
//!
//! [`decide`] holds every decision, as a state machine without clock, client or async. [`run`] brings it what happened
//! ([`watch`] on the JobSet, answers to a [`report`], [`signals`], the end of the [`worker`], time) and does what it says.
//! The API server knows it by its [`token`]. [`probe`] shows the [`barrier`] to the kubelet, [`epoch_file`] the epoch to the worker; [`save`] lets a worker beside a
//! sidecar save its state. Of a supervised worker, nothing is left for the next epoch: [`descendants`].

pub mod args;
pub mod backoff;
pub mod barrier;
pub mod connect;
pub mod decide;
pub mod descendants;
pub mod epoch_file;
pub mod error;
pub mod install;
pub mod jobset;
mod pace;
pub mod probe;
pub mod report;
pub mod request_failure;
pub mod run;
pub mod save;
pub mod signals;
pub mod token;
pub mod watch;
pub mod worker;
