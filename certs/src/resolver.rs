//! Hands the certificate that is in service to each TLS handshake, and lets it be replaced while connections are open.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// The certificate in service. Before there is one, handshakes fail.
#[derive(Default)]
pub struct Resolver(ArcSwapOption<CertifiedKey>);

impl Resolver {
    /// Puts a certificate into service. Open connections go on with the one that they began with.
    pub fn serve(&self, certified: Arc<CertifiedKey>) {
        self.0.store(Some(certified));
    }

    pub fn current(&self) -> Option<Arc<CertifiedKey>> {
        self.0.load_full()
    }
}

impl ResolvesServerCert for Resolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.current()
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resolver").field("serving", &self.0.load().is_some()).finish()
    }
}
