//! The contents of the Secret: what is stored, and what there is to know about it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use rcgen::{KeyPair, PublicKeyData as _};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::issue::{self, Issued, Lifetimes};
use crate::private_key::PrivateKeyPem;
use crate::x509::{self, Validity};
use crate::{Error, Names};

/// Key of the Secret: the CAs to trust, in PEM. The first has signed the serving certificate and signs the next; those
/// after it are its predecessors.
pub const CA_CERTIFICATES: &str = "ca.crt";
/// Key of the Secret: the private key of the first CA.
pub const CA_KEY: &str = "ca.key";
/// Key of the Secret: the serving certificate, in PEM.
pub const CERTIFICATE: &str = "tls.crt";
/// Key of the Secret: the private key of the serving certificate.
pub const KEY: &str = "tls.key";

/// What is wrong with an entry of the Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    /// There is no such entry.
    Missing(&'static str),
    /// The entry does not hold what it should: truncated, not PEM, not a certificate, not a key.
    Malformed(&'static str),
    /// The certificate is not that of a CA.
    NotAnAuthority(&'static str),
    /// The private key is not that of the certificate.
    KeyMismatch(&'static str),
    /// The serving certificate was not signed by the CA.
    Unsigned,
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(entry) => write!(f, "{entry} is missing"),
            Self::Malformed(entry) => write!(f, "{entry} is malformed"),
            Self::NotAnAuthority(entry) => write!(f, "{entry} is not the certificate of a CA"),
            Self::KeyMismatch(entry) => write!(f, "{entry} is not the key of its certificate"),
            Self::Unsigned => write!(f, "{CERTIFICATE} was not signed by {CA_CERTIFICATES}"),
        }
    }
}

/// A CA that can sign, and its predecessors.
#[derive(Clone, Debug)]
pub struct Authority {
    /// Certificate and key.
    pub issued: Issued,
    /// The certificate.
    pub certificate: CertificateDer<'static>,
    /// When it is valid.
    pub validity: Validity,
}

/// A serving certificate that is ready for use.
#[derive(Clone, Debug)]
pub struct Serving {
    /// Certificate and key for rustls, whose `Debug` does not show the key.
    pub certified: Arc<CertifiedKey>,
    /// When it is valid.
    pub validity: Validity,
    /// Names it is valid for.
    pub names: Names,
}

impl Serving {
    /// The certificate.
    pub fn certificate(&self) -> Option<&CertificateDer<'static>> {
        self.certified.cert.first()
    }
}

/// What a Secret holds, entry by entry.
#[derive(Clone, Debug)]
pub struct Material {
    /// The CA.
    pub authority: Result<Authority, Defect>,
    /// Certificates of the CAs before it.
    pub predecessors: Vec<CertificateDer<'static>>,
    /// The serving certificate. A defect as well when the CA is one that did not sign it.
    pub serving: Result<Serving, Defect>,
}

impl Material {
    /// Reads the data of a Secret. Any bytes will do.
    pub fn read(data: &BTreeMap<String, ByteString>) -> Self {
        let mut certificates = entry(data, CA_CERTIFICATES).map(x509::certificates).unwrap_or_default();
        let predecessors = if certificates.is_empty() { Vec::new() } else { certificates.split_off(1) };
        let authority = read_authority(data, certificates.pop());
        let serving = read_serving(data, authority.as_ref().ok());
        Self { authority, predecessors, serving }
    }

    /// The certificates to be trusted: the CA's and those of its predecessors.
    pub fn authorities(&self) -> Vec<CertificateDer<'static>> {
        let current = self.authority.as_ref().ok().map(|authority| authority.certificate.clone());
        current.into_iter().chain(self.predecessors.iter().cloned()).collect()
    }
}

/// Makes the data of a Secret with a new serving certificate of this CA. Predecessors stay trusted.
///
/// # Errors
/// When the certificate cannot be issued.
pub fn with_new_serving(
    authority: &Issued,
    predecessors: &[CertificateDer<'static>],
    names: &Names,
    now: Timestamp,
    lifetimes: &Lifetimes,
) -> Result<BTreeMap<String, ByteString>, Error> {
    let serving = issue::serving(authority, names, now, lifetimes)?;
    let mut authorities = authority.certificate.clone();
    for predecessor in predecessors {
        authorities.push_str(&x509::to_pem(predecessor));
    }
    let entries = [
        (CA_CERTIFICATES, authorities.as_str()),
        (CA_KEY, authority.key.expose()),
        (CERTIFICATE, serving.certificate.as_str()),
        (KEY, serving.key.expose()),
    ];
    Ok(entries.map(|(key, value)| (key.to_owned(), ByteString(value.as_bytes().to_vec()))).into())
}

fn entry<'a>(data: &'a BTreeMap<String, ByteString>, key: &'static str) -> Result<&'a [u8], Defect> {
    data.get(key).map(|bytes| bytes.0.as_slice()).filter(|bytes| !bytes.is_empty()).ok_or(Defect::Missing(key))
}

fn read_authority(
    data: &BTreeMap<String, ByteString>,
    certificate: Option<CertificateDer<'static>>,
) -> Result<Authority, Defect> {
    entry(data, CA_CERTIFICATES)?;
    let key = entry(data, CA_KEY)?;
    let certificate = certificate.ok_or(Defect::Malformed(CA_CERTIFICATES))?;
    let properties = x509::properties(&certificate).ok_or(Defect::Malformed(CA_CERTIFICATES))?;
    if !properties.is_ca {
        return Err(Defect::NotAnAuthority(CA_CERTIFICATES));
    }
    let key = std::str::from_utf8(key).map_err(|_| Defect::Malformed(CA_KEY))?;
    let pair = KeyPair::from_pem(key).map_err(|_| Defect::Malformed(CA_KEY))?;
    if pair.subject_public_key_info() != properties.public_key {
        return Err(Defect::KeyMismatch(CA_KEY));
    }
    let issued = Issued { certificate: x509::to_pem(&certificate), key: PrivateKeyPem::new(key.to_owned()) };
    Ok(Authority { issued, certificate, validity: properties.validity })
}

fn read_serving(data: &BTreeMap<String, ByteString>, authority: Option<&Authority>) -> Result<Serving, Defect> {
    let chain = x509::certificates(entry(data, CERTIFICATE)?);
    let key = entry(data, KEY)?;
    let leaf = chain.first().ok_or(Defect::Malformed(CERTIFICATE))?;
    let properties = x509::properties(leaf).ok_or(Defect::Malformed(CERTIFICATE))?;
    if authority.is_some_and(|authority| !x509::has_signed(&authority.certificate, leaf, properties.validity)) {
        return Err(Defect::Unsigned);
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| Defect::Malformed(KEY))?;
    let private = rustls::crypto::ring::sign::any_supported_type(&key).map_err(|_| Defect::Malformed(KEY))?;
    let certified = CertifiedKey::new(chain, private);
    certified.keys_match().map_err(|_| Defect::KeyMismatch(KEY))?;
    Ok(Serving { certified: Arc::new(certified), validity: properties.validity, names: properties.names })
}
