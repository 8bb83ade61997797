//! TLS of a port, which follows the files of its certificate.

use std::sync::{Arc, Mutex};

use jobset_program::server::pool::lock;
use jobset_stream::tls::{Identity, TlsError};
use rustls::ServerConfig;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tracing::{info, warn};

type Config = dyn Fn(&Identity) -> Result<ServerConfig, TlsError> + Send + Sync;

/// Accepts connections with the certificate that is current.
pub(crate) struct CurrentTls {
    config: Box<Config>,
    current: Mutex<Current>,
}

struct Current {
    identity: watch::Receiver<Arc<Identity>>,
    acceptor: TlsAcceptor,
}

impl CurrentTls {
    /// Follows the identity. `config` makes of it what the port needs.
    pub(crate) fn new(
        mut identity: watch::Receiver<Arc<Identity>>,
        config: impl Fn(&Identity) -> Result<ServerConfig, TlsError> + Send + Sync + 'static,
    ) -> Result<Self, TlsError> {
        let acceptor = TlsAcceptor::from(Arc::new(config(&identity.borrow_and_update())?));
        Ok(Self { config: Box::new(config), current: Mutex::new(Current { identity, acceptor }) })
    }

    /// For the next connection.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let Current { identity, acceptor } = &mut *lock(&self.current);
        if identity.has_changed().unwrap_or_default() {
            match (self.config)(&identity.borrow_and_update()) {
                Ok(config) => {
                    info!("the certificate has been replaced");
                    *acceptor = TlsAcceptor::from(Arc::new(config));
                }
                Err(error) => warn!(%error, "the replaced certificate cannot be used"),
            }
        }
        acceptor.clone()
    }
}
