//! The JobSet admission service: defaulting and validation over HTTPS.
//!
//! ```text
//! TLS --> serve --> review --> jobset (pure) --> patch or refusal
//! ```
//!
//! [`jobset`] decides and knows nothing of HTTP; [`review`] speaks AdmissionReview; [`serve`] owns connections. The
//! certificate comes from `jobset-certs`.

pub mod args;
mod error;
pub mod field;
pub mod health;
pub mod jobset;
pub mod patch;
pub mod review;
pub mod run;
pub mod serve;

pub use error::Error;
