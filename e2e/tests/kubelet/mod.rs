//! JobSet on real kubelets: what KEP-467 promises, seen on the Pods and in what the workers wrote down.

mod barrier;
mod chaos;
mod context;
mod crash_loop;
mod dashboard;
mod ends;
mod examples;
mod exit_codes;
pub(crate) mod first;
mod gangs;
mod go_examples;
mod injection;
mod ipv6;
mod last_words;
mod liveness;
mod logs;
pub(crate) mod monitoring;
mod namespace;
mod no_webhook;
mod nodes;
mod policies;
mod progress;
mod restart;
pub(crate) mod shared;
mod skew;
pub(crate) mod stream;
mod success;
mod supervised;

pub(crate) use ends::{has_restarted, notes};
pub(crate) use shared::{assert_in_place, binaries, run_kubectl_jobset};
