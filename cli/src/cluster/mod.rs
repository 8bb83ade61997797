//! Requests to the API server. Those of [`change`] change a JobSet; all others only read.

mod change;
mod connect;
mod facts;
mod feed;
mod fetch;
mod log;
mod watch;

pub use connect::{Cluster, connect};
pub use feed::{Feed, FeedScope};
pub use watch::{ChangeStream, WatchScope};
