//! The certificates of the JobSet admission service.
//!
//! A CA and a serving certificate live together in one Secret that all replicas of the service share. Whoever finds it
//! missing, broken or due writes it by compare-and-swap; the others adopt what they find. From there on data flows one
//! way:
//!
//! ```text
//! Secret --> policy --> Secret (if due) --> caBundle of the webhook configurations --> resolver
//! ```
//!
//! A certificate is put into service only after the live configurations trust it, and the certificate authority that it
//! replaces stays trusted for a while. So a rotation refuses no request.
//!
//! Or others issue the certificate, and mount it as a directory: then nothing is written, and the same is waited for.
//!
//! [`policy`] and [`bundle::merge`] decide, and are pure; [`secret`], [`bundle::publish`] and
//! [`maintain()`] act.

pub mod backoff;
pub mod bundle;
mod error;
mod in_service;
pub mod issue;
mod maintain;
pub mod material;
mod metrics;
mod mounted;
pub mod names;
pub mod policy;
pub mod private_key;
pub mod resolver;
pub mod secret;
mod x509;

pub use error::Error;
pub use issue::Lifetimes;
pub use maintain::{Readiness, Settings, Source, maintain};
pub use metrics::Metrics;
pub use names::Names;
pub use resolver::Resolver;
