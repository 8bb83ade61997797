//! The thin shell around the rules: watches in, requests out. No rule lives here.

mod apply;
pub mod client;
mod error;
mod events;
mod feed;
mod installed;
pub mod lease;
mod metrics;
mod reconcile;
mod retry_log;
mod serve;

pub use error::Error;
pub use reconcile::{Options, run};
pub use serve::{Health, serve};
