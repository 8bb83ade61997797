//! The certificates of the JobSet admission service, from both sides.
//!
//! `jobset-certs` has a CA of its own in a Secret, issues, and publishes the CA in the caBundles of the webhook
//! configurations: it is the only program that may write there ([`issuer`]). The admission service only reads what it is to
//! serve ([`serve`]): from a Secret that holds nothing else, or from a directory that others fill, as cert-manager does.
//!
//! [`policy`], [`bundle::wanted`] and the handover from a certificate to the next decide, and are pure.

pub mod args;
pub mod bundle;
mod error;
mod handover;
pub mod health;
pub mod issue;
pub mod issuer;
pub mod material;
mod metrics;
pub mod names;
pub mod policy;
pub mod private_key;
mod publish;
pub mod resolver;
mod run;
pub mod serve;
mod source;
pub mod state;
mod watches;
mod x509;

pub use error::Error;
pub use issue::Lifetimes;
pub use metrics::{Metrics, mismatch};
pub use names::Names;
pub use resolver::Resolver;
pub use run::Program;
pub use serve::Source;

/// Whether API servers can call the admission service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    /// The same, but somebody should look at this before long.
    ReadyBut(String),
    /// Not yet, or no longer, for this reason.
    NotReady(String),
}

impl Readiness {
    /// Not ready for these reasons, if there are any; else ready, with these remarks.
    pub(crate) fn of(reasons: impl IntoIterator<Item = String>, remarks: impl IntoIterator<Item = String>) -> Self {
        let mut texts: Vec<_> = reasons.into_iter().collect();
        let is_ready = texts.is_empty();
        texts.extend(remarks);
        match texts.join("; ") {
            text if !is_ready => Self::NotReady(text),
            text if text.is_empty() => Self::Ready,
            text => Self::ReadyBut(text),
        }
    }
}
