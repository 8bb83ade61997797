//! The I/O around the engine: watches in, requests out. No rule is here.

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
pub mod scrape;
mod serve;
mod stream;
pub mod thread;

pub use reconcile::run;
pub use serve::Health;
