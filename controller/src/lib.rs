//! The JobSet controller: `watch -> engine -> observe -> plan -> apply -> status`.
//!
//! [`engine`], [`observe`], [`plan`] and [`build`] are values and pure functions over them; [`shell`] sends the requests.

pub mod args;
pub mod build;
pub mod engine;
pub mod observe;
pub mod plan;
#[cfg(test)]
mod proof;
pub mod run;
pub mod shell;
pub mod stream;
