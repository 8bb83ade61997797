//! A private key in PEM that no output shows.

use std::fmt;

/// A private key in PEM. `Debug` redacts it, and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct PrivateKeyPem(String);

impl PrivateKeyPem {
    pub(crate) fn new(pem: String) -> Self {
        Self(pem)
    }

    /// The key itself. Store or parse it; do not print it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PrivateKeyPem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKeyPem(redacted)")
    }
}
