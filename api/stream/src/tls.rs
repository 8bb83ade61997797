//! Certificates and TLS of the stream. TLS 1.3 alone: all participants are of this project.

#[cfg(any(test, feature = "testing"))]
pub mod testing;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::CryptoProvider;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::sign::CertifiedKey;
use rustls::{
    CipherSuite, ClientConfig, DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
    version,
};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use thiserror::Error;
use tokio::sync::watch;
use webpki::EndEntityCert;

/// Entries of a Secret or ConfigMap: certificates of the program, its key, and the CAs that it trusts, in PEM.
pub const CERTIFICATE: &str = "tls.crt";
/// See [`CERTIFICATE`].
pub const KEY: &str = "tls.key";
/// See [`CERTIFICATE`].
pub const AUTHORITIES: &str = "ca.crt";
/// Largest file in bytes: a Secret holds no more.
const FILE_LIMIT: u64 = 1 << 20;
/// How often files are read again.
const INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug, Error)]
pub enum TlsError {
    #[error("cannot read {path}")]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{path} holds no {what} in PEM")]
    Pem { path: PathBuf, what: &'static str },
    /// The key is not that of the certificate, or of an unknown kind. The path is that of their folder.
    #[error("the key in {path} cannot be used with its certificate")]
    Key {
        path: PathBuf,
        #[source]
        source: rustls::Error,
    },
    #[error("cannot set up TLS")]
    Setup(#[from] rustls::Error),
    #[error("cannot verify clients")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
    #[error("{0:?} is no DNS name")]
    Name(String),
}

/// The CAs that a program trusts.
#[derive(Clone, Debug)]
pub struct Authorities(Arc<RootCertStore>);

impl Authorities {
    /// Reads a file of certificates in PEM.
    pub fn read(path: &Path) -> Result<Self, TlsError> {
        let mut roots = RootCertStore::empty();
        let certificates = certificates(&file(path)?);
        let (added, _) = roots.add_parsable_certificates(certificates);
        if added == 0 {
            return Err(TlsError::Pem { path: path.to_owned(), what: "certificate" });
        }
        Ok(Self(Arc::new(roots)))
    }

    pub(crate) fn roots(&self) -> &RootCertStore {
        &self.0
    }

    /// TLS of an agent: it knows the relay by its certificate, and tells who it is by its token.
    pub fn agent(&self) -> Result<ClientConfig, TlsError> {
        let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&version::TLS13])?;
        Ok(builder.with_root_certificates(Arc::clone(&self.0)).with_no_client_auth())
    }
}

/// What a relay or the controller shows, and whom it trusts.
#[derive(Clone, Debug)]
pub struct Identity {
    pub certified: Arc<CertifiedKey>,
    pub authorities: Authorities,
    /// `ca.crt` as it was read.
    pub authorities_pem: Vec<u8>,
}

impl Identity {
    /// Reads `tls.crt`, `tls.key` and `ca.crt` of a folder.
    pub fn read(folder: &Path) -> Result<Self, TlsError> {
        // A mounted Secret is swapped by a symbolic link: all files come from the folder that it names now.
        let current = folder.join("..data").canonicalize().unwrap_or_else(|_| folder.to_owned());
        let path = |name| current.join(name);
        let chain = certificates(&file(&path(CERTIFICATE))?);
        if chain.is_empty() {
            return Err(TlsError::Pem { path: path(CERTIFICATE), what: "certificate" });
        }
        let key = PrivateKeyDer::from_pem_slice(&file(&path(KEY))?)
            .map_err(|_| TlsError::Pem { path: path(KEY), what: "private key" })?;
        let certified = CertifiedKey::from_der(chain, key, &provider())
            .map_err(|source| TlsError::Key { path: folder.to_owned(), source })?;
        let authorities = Authorities::read(&path(AUTHORITIES))?;
        let authorities_pem = file(&path(AUTHORITIES))?;
        Ok(Self { certified: Arc::new(certified), authorities, authorities_pem })
    }

    /// Reads the folder, and again every few seconds until the receiver is dropped. What cannot be read leaves the last as it is.
    ///
    /// # Errors
    /// The first time, as [`Identity::read`].
    pub fn follow(folder: PathBuf) -> Result<watch::Receiver<Arc<Self>>, TlsError> {
        let first = Self::read(&folder)?;
        let (sender, receiver) = watch::channel(Arc::new(first));
        tokio::spawn(async move {
            while !sender.is_closed() {
                tokio::time::sleep(INTERVAL).await;
                if let Ok(identity) = Self::read(&folder) {
                    sender.send_if_modified(|present| {
                        let is_new = !present.is_same(&identity);
                        if is_new {
                            *present = Arc::new(identity);
                        }
                        is_new
                    });
                }
            }
        });
        Ok(receiver)
    }

    fn is_same(&self, other: &Self) -> bool {
        self.certified.cert == other.certified.cert && self.authorities_pem == other.authorities_pem
    }

    /// TLS of a relay, for agents.
    pub fn server(&self) -> Result<ServerConfig, TlsError> {
        self.server_for(WebPkiClientVerifier::no_client_auth())
    }

    /// TLS of a relay, for controllers: clients with a certificate of this DNS name.
    pub fn server_of(&self, client: &str) -> Result<ServerConfig, TlsError> {
        self.server_for(Arc::new(self.named_client(client)?))
    }

    /// Whether a client with these certificates and this DNS name is let in now. A connection outlives the certificate that it
    /// began with: that may have expired, or its CA was taken back.
    pub fn admits(&self, client: &str, chain: &[CertificateDer<'_>]) -> bool {
        let Some((end_entity, intermediates)) = chain.split_first() else { return false };
        let verify = |it: NamedClient| it.verify_client_cert(end_entity, intermediates, UnixTime::now()).is_ok();
        self.named_client(client).is_ok_and(verify)
    }

    fn named_client(&self, name: &str) -> Result<NamedClient, TlsError> {
        let name = ServerName::try_from(name.to_owned()).map_err(|_| TlsError::Name(name.to_owned()))?;
        let inner = WebPkiClientVerifier::builder_with_provider(Arc::clone(&self.authorities.0), provider()).build()?;
        Ok(NamedClient { inner, name })
    }

    fn server_for(&self, clients: Arc<dyn ClientCertVerifier>) -> Result<ServerConfig, TlsError> {
        let builder = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&version::TLS13])?;
        let resolver = Arc::new(rustls::sign::SingleCertAndKey::from(Arc::clone(&self.certified)));
        let mut config = builder.with_client_cert_verifier(clients).with_cert_resolver(resolver);
        // Neither agents nor controllers have a memory from one process to the next, so nobody would use a ticket.
        config.send_tls13_tickets = 0;
        // Agents of earlier releases have another suite first.
        config.ignore_client_order = true;
        Ok(config)
    }

    /// TLS of the controller, which dials relays.
    pub fn client(&self) -> Result<ClientConfig, TlsError> {
        let builder = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&version::TLS13])?;
        let resolver = Arc::new(rustls::sign::SingleCertAndKey::from(Arc::clone(&self.certified)));
        Ok(builder.with_root_certificates(Arc::clone(&self.authorities.0)).with_client_cert_resolver(resolver))
    }
}

/// Verifies that a client has the certificate of a certain name.
#[derive(Debug)]
struct NamedClient {
    inner: Arc<dyn ClientCertVerifier>,
    name: ServerName<'static>,
}

impl ClientCertVerifier for NamedClient {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.inner.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        let verified = self.inner.verify_client_cert(end_entity, intermediates, now)?;
        let malformed = |_| rustls::Error::InvalidCertificate(rustls::CertificateError::BadEncoding);
        let certificate = EndEntityCert::try_from(end_entity).map_err(malformed)?;
        certificate
            .verify_is_valid_for_subject_name(&self.name)
            .map_err(|_| rustls::Error::InvalidCertificate(rustls::CertificateError::NotValidForName))?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.inner.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.inner.supported_verify_schemes()
    }
}

/// The cryptography. The cipher suite with SHA-256 comes first: processors have instructions for it, and few for SHA-384.
pub fn provider() -> Arc<CryptoProvider> {
    let mut provider = rustls::crypto::ring::default_provider();
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
}

fn file(path: &Path) -> Result<Vec<u8>, TlsError> {
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(FILE_LIMIT).read_to_end(&mut bytes))
        .map_err(|source| TlsError::Read { path: path.to_owned(), source })?;
    Ok(bytes)
}

fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem).map_while(Result::ok).collect()
}

#[cfg(test)]
mod tests {
    use rcgen::ExtendedKeyUsagePurpose;
    use rstest::rstest;
    use tokio_rustls::{TlsAcceptor, TlsConnector};

    use super::testing::Pki;
    use super::*;

    const LEADER: &str = "jobset-controller.ns.svc";
    const RELAY: &str = "jobset-relay.ns.svc";

    /// The cipher suite, if both sides end the handshake with success.
    async fn shake(server: ServerConfig, client: ClientConfig) -> Option<CipherSuite> {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let (near, far) = tokio::io::duplex(1 << 14);
        let name = ServerName::try_from(RELAY).unwrap();
        let accepted = tokio::spawn(async move {
            let mut stream = TlsAcceptor::from(Arc::new(server)).accept(near).await?;
            stream.write_all(b"x").await
        });
        let connected = async {
            // A client that is refused notices with the first bytes it reads.
            let mut stream = TlsConnector::from(Arc::new(client)).connect(name, far).await?;
            stream.read_u8().await?;
            io::Result::Ok(stream.get_ref().1.negotiated_cipher_suite().unwrap().suite())
        };
        let connected = connected.await.ok();
        accepted.await.unwrap().ok().and(connected)
    }

    #[tokio::test]
    async fn suite_is_the_one_with_instructions_whatever_clients_prefer() {
        let pki = Pki::new();
        let relay = Identity::read(pki.issue(RELAY, ExtendedKeyUsagePurpose::ServerAuth).folder.path()).unwrap();
        let earlier = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&version::TLS13])
            .unwrap()
            .with_root_certificates(Arc::clone(&pki.authorities().0))
            .with_no_client_auth();
        for client in [pki.authorities().agent().unwrap(), earlier] {
            let suite = shake(relay.server().unwrap(), client).await;
            assert_eq!(suite, Some(CipherSuite::TLS13_AES_128_GCM_SHA256));
        }
    }

    #[rstest]
    #[case::leader(LEADER, ExtendedKeyUsagePurpose::ClientAuth, true)]
    #[case::another_name("jobset-webhook-service.ns.svc", ExtendedKeyUsagePurpose::ClientAuth, false)]
    #[case::another_usage(LEADER, ExtendedKeyUsagePurpose::ServerAuth, false)]
    #[tokio::test]
    async fn relay_lets_in_the_leader_alone(
        #[case] name: &str,
        #[case] usage: ExtendedKeyUsagePurpose,
        #[case] is_let_in: bool,
    ) {
        let pki = Pki::new();
        let relay = Identity::read(pki.issue(RELAY, ExtendedKeyUsagePurpose::ServerAuth).folder.path()).unwrap();
        let client = Identity::read(pki.issue(name, usage).folder.path()).unwrap();
        assert_eq!(shake(relay.server_of(LEADER).unwrap(), client.client().unwrap()).await.is_some(), is_let_in);
    }

    #[test]
    fn certificate_whose_ca_was_taken_back_is_not_admitted() {
        let (pki, next) = (Pki::new(), Pki::new());
        let issued = pki.issue(RELAY, ExtendedKeyUsagePurpose::ServerAuth);
        let leader = pki.issue(LEADER, ExtendedKeyUsagePurpose::ClientAuth).certified;
        let admits = |authorities: String| {
            std::fs::write(issued.folder.path().join(AUTHORITIES), authorities).unwrap();
            Identity::read(issued.folder.path()).unwrap().admits(LEADER, &leader.cert)
        };
        assert!(admits(pki.pem()));
        assert!(admits(pki.pem() + &next.pem()), "while both are trusted");
        assert!(!admits(next.pem()));
        assert!(!Identity::read(issued.folder.path()).unwrap().admits(LEADER, &[]));
    }

    #[tokio::test]
    async fn agent_knows_the_relay_and_no_other() {
        let (pki, other) = (Pki::new(), Pki::new());
        let relay = Identity::read(pki.issue(RELAY, ExtendedKeyUsagePurpose::ServerAuth).folder.path()).unwrap();
        assert!(shake(relay.server().unwrap(), pki.authorities().agent().unwrap()).await.is_some());
        assert!(shake(relay.server().unwrap(), other.authorities().agent().unwrap()).await.is_none());
        let webhook =
            Identity::read(pki.issue("jobset-webhook.ns.svc", ExtendedKeyUsagePurpose::ServerAuth).folder.path());
        assert!(shake(webhook.unwrap().server().unwrap(), pki.authorities().agent().unwrap()).await.is_none());
    }

    #[test]
    fn folder_that_lacks_a_file_is_named() {
        let issued = Pki::new().issue(RELAY, ExtendedKeyUsagePurpose::ServerAuth);
        let path = issued.folder.path();
        for (name, text) in [(CERTIFICATE, "no PEM"), (KEY, ""), (AUTHORITIES, "")] {
            let before = std::fs::read(path.join(name)).unwrap();
            std::fs::write(path.join(name), text).unwrap();
            let error = Identity::read(path).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
            std::fs::remove_file(path.join(name)).unwrap();
            let error = Identity::read(path).unwrap_err().to_string();
            assert!(error.contains(name), "{error}");
            std::fs::write(path.join(name), before).unwrap();
        }
        assert!(Identity::read(path).is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn replaced_files_are_followed_and_broken_ones_are_not() {
        let pki = Pki::new();
        let issued = pki.issue(RELAY, ExtendedKeyUsagePurpose::ServerAuth);
        let mut identity = Identity::follow(issued.folder.path().to_owned()).unwrap();
        let next = pki.issue(RELAY, ExtendedKeyUsagePurpose::ServerAuth);
        std::fs::write(issued.folder.path().join(KEY), "").unwrap();
        tokio::time::sleep(3 * INTERVAL).await;
        assert!(!identity.has_changed().unwrap());
        for name in [CERTIFICATE, KEY] {
            std::fs::copy(next.folder.path().join(name), issued.folder.path().join(name)).unwrap();
        }
        identity.changed().await.unwrap();
        assert_eq!(identity.borrow().certified.cert, next.certified.cert);
    }
}
