//! What can go wrong between this crate, the API server and the certificates it finds there.

use crate::bundle::Configuration;
use crate::policy::Cause;

/// Failure of an operation. The text leaves out the source, which [`std::error::Error::source`] gives.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A name for the serving certificate is neither a DNS name nor an IP address.
    #[error("{0:?} is neither a DNS name nor an IP address")]
    InvalidName(String),
    /// Lifetimes under which certificates could not be renewed in time.
    #[error("the lifetime of the CA must be at least twice that of the serving certificate")]
    InvalidLifetimes,
    /// A serving certificate that expires before it can be replaced.
    #[error("the lifetime of the serving certificate must be at least {0:?}")]
    ShortLifetime(std::time::Duration),
    /// A certificate or key could not be made.
    #[error("cannot issue a certificate")]
    Issue(#[source] rcgen::Error),
    /// What was just issued cannot be put into service. This should not happen.
    #[error("the certificates that were just issued cannot be used: {0}")]
    Unusable(Cause),
    #[error("cannot read Secret {secret}")]
    ReadSecret { secret: String, source: kube::Error },
    /// The Secret could not be created or updated.
    #[error("cannot write Secret {secret}")]
    WriteSecret { secret: String, source: kube::Error },
    #[error("cannot read {configuration}")]
    ReadConfiguration { configuration: Configuration, source: kube::Error },
    /// The caBundle of a webhook configuration could not be written.
    #[error("cannot patch the caBundle of {configuration}")]
    PatchConfiguration { configuration: Configuration, source: kube::Error },
}

impl Error {
    /// Whether it says that what was to be read does not exist.
    pub(crate) fn is_missing_configuration(&self) -> bool {
        matches!(self, Self::ReadConfiguration { source: kube::Error::Api(status), .. } if status.is_not_found())
    }

    /// Whether somebody else has changed the object since it was read.
    pub(crate) fn is_conflict(&self) -> bool {
        matches!(self, Self::PatchConfiguration { source: kube::Error::Api(status), .. } if status.is_conflict())
    }
}
