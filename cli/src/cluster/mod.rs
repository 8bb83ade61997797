//! Requests to the API server. All of them only read.

mod connect;
mod facts;
mod feed;
mod fetch;
mod watch;

pub use connect::{Cluster, connect};
pub use feed::{Feed, FeedScope};
pub use watch::{ChangeStream, WatchScope};
