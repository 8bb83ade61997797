//! The JobSet admission service: defaulting and validation of JobSets, and placement of their Pods, over HTTPS.
//!
//! ```text
//! connections --> limits --> serve --> review --> jobset (pure) ------> patch or refusal
//!                                             |--> pod (placement) --|
//!                                             \--> nodes (affinity) --/
//! ```
//!
//! The rules are those of `jobset-api`, by which the controller goes as well. [`jobset`] says which of them a request has
//! to keep; [`pod`] places Pods that ask for exclusive placement, and [`nodes`] keeps Pods away from bad nodes; [`review`] speaks
//! AdmissionReview, of which [`wire`] reads what is needed; [`serve`] has its paths; [`limits`] is what a client may ask for, and [`connections`] the TLS and HTTP
//! below it, and [`metrics`] what is measured around them. The certificate comes from `jobset-certs`.
//!
//! [`check`] is a client: it asks an API server whether admission works.

pub mod args;
pub mod check;
pub mod cluster;
pub mod connections;
mod error;
pub mod jobset;
pub mod limits;
mod memory;
pub mod metrics;
pub mod nodes;
mod party;
pub mod patch;
mod places;
pub mod pod;
mod progress;
pub mod review;
pub mod run;
pub mod serve;
mod size;
mod strict;
pub mod tls;
mod turn;
mod unreviewed;
pub mod wire;

pub use error::Error;
