//! The JobSet in-place restart agent. It runs in every worker Pod, as a sidecar of the worker or as the supervisor of it.
//!
//! The agent reports the epoch of its Pod. It holds the worker back until all Pods of the JobSet have reported the same epoch,
//! and restarts the worker when that epoch is deprecated.
//!
//! - [`decide`] makes every decision, as a state machine without clock, client or async. [`run`] feeds it with inputs (the
//!   [`watch`] on the JobSet, the answer to a [`report`], [`signals`], the exit of the [`worker`], the timer) and carries out
//!   its outputs.
//! - [`channels`] decides, as pure, what goes over the [`stream`] to a relay and what through the API server. [`transport`]
//!   carries that out. [`liveness`] judges which statements count, and whether the relay passes them on.
//! - [`annotation`] is what a report tells beside the epoch: when the agent started, and how its worker failed.
//! - [`connect`] makes the client, which authenticates with the [`token`]. [`backoff`] and `watch_backoff` space out retries.
//! - [`probe`] shows the [`barrier`] to the kubelet. [`epoch_file`] shows the epoch to the worker.
//! - [`save`] lets the worker beside a sidecar save its state before the Pod restarts.
//! - [`log`] says what is logged. [`termination_log`] shows in the Pod's status why the agent could not start, or how its worker ended.
//! - [`progress`] decides, as pure, when a worker makes no progress, and what is reported of it. [`follow`] reads what the worker
//!   tells, [`progress_file`] its file. [`evidence`] and [`stall_command`] say what was seen of a worker that makes none. [`group`] has
//!   what the JobSet says.
//! - [`descendants`] finds the processes of a supervised worker, so that none survives into the next epoch.

pub mod annotation;
pub mod args;
pub mod backoff;
pub mod barrier;
pub mod channels;
pub mod connect;
pub mod decide;
pub mod descendants;
pub mod epoch_file;
pub mod error;
pub mod evidence;
pub mod follow;
pub mod group;
pub mod install;
pub mod jobset;
pub mod liveness;
pub mod log;
pub mod output;
pub mod probe;
pub mod progress;
pub mod progress_file;
mod relay_address;
pub mod report;
pub mod request_failure;
pub mod run;
pub mod save;
pub mod signals;
pub mod stall_command;
pub mod stream;
pub mod termination_log;
pub mod token;
pub mod transport;
pub mod watch;
mod watch_backoff;
pub mod worker;
pub mod worker_exit;
