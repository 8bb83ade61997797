//! The JobSet controller: `watch -> store -> observe -> plan -> apply -> status`.
//!
//! [`store`], [`observe`], [`plan`] and [`build`] are values and pure functions over them; [`shell`] does the requests.

pub mod args;
pub mod build;
#[cfg(test)]
mod model;
pub mod observe;
pub mod plan;
pub mod run;
pub mod shell;
#[cfg(test)]
mod simulation;
pub mod store;
