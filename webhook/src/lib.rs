//! The JobSet admission service: defaulting and validation over HTTPS.
//!
//! ```text
//! TLS --> serve --> review --> jobset (pure) --> patch or refusal
//! ```
//!
//! The rules are those of `jobset-api`, by which the controller goes as well. [`jobset`] says which of them a request has
//! to keep; [`review`] speaks AdmissionReview; [`serve`] owns connections. The certificate comes from `jobset-certs`.

pub mod args;
mod error;
pub mod health;
pub mod jobset;
pub mod patch;
pub mod review;
pub mod run;
pub mod serve;

pub use error::Error;
