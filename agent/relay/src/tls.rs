//! TLS of a port, which follows the files of its certificate.

use std::sync::Arc;

use jobset_stream::tls::{Identity, TlsError};
use rustls::ServerConfig;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};

/// Accepts connections with the certificate that is current.
pub(crate) struct CurrentTls<F> {
    identity: watch::Receiver<Arc<Identity>>,
    config: F,
    current: TlsAcceptor,
}

impl<F: Fn(&Identity) -> Result<ServerConfig, TlsError>> CurrentTls<F> {
    /// Follows the identity. `config` makes of it what the port needs.
    pub(crate) fn new(mut identity: watch::Receiver<Arc<Identity>>, config: F) -> Result<Self, TlsError> {
        let current = TlsAcceptor::from(Arc::new(config(&identity.borrow_and_update())?));
        Ok(Self { identity, config, current })
    }

    /// For the next connection.
    pub(crate) fn acceptor(&mut self) -> TlsAcceptor {
        if self.identity.has_changed().unwrap_or_default() {
            match (self.config)(&self.identity.borrow_and_update()) {
                Ok(config) => {
                    info!("the certificate has been replaced");
                    self.current = TlsAcceptor::from(Arc::new(config));
                }
                Err(error) => warn!(%error, "the replaced certificate cannot be used"),
            }
        }
        self.current.clone()
    }
}
