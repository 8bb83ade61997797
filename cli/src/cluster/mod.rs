//! Requests to the API server: what is read of a cluster. Nothing here is written.

mod connect;
mod facts;
mod fetch;
mod pages;
mod watch;

pub use connect::{Cluster, connect};
pub use watch::{Changes, Scope};
