//! The thin shell around the rules: watches in, requests out. No rule lives here.

mod apply;
mod error;
mod feed;
mod health;
mod notes;
mod queue;
mod reconcile;

pub use error::Error;
pub use health::{Health, serve as serve_health};
pub use reconcile::{Options, run};
