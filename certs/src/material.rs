//! The contents of a Secret: what is stored, and what there is to know about it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use rcgen::{KeyPair, PublicKeyData as _};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::issue::{self, Issued, Lifetimes, Usage};
use crate::private_key::PrivateKeyPem;
use crate::x509::{self, Validity};
use crate::{Error, Names};

pub type Data = BTreeMap<String, ByteString>;

/// Entry with the CA, in PEM: it has signed the serving certificate and signs the next.
pub const CA_CERTIFICATES: &str = "ca.crt";
/// Entry with the private key of the CA.
pub const CA_KEY: &str = "ca.key";
/// Entry with the serving certificate, in PEM.
pub const CERTIFICATE: &str = "tls.crt";
/// Entry with the private key of the serving certificate.
pub const KEY: &str = "tls.key";

/// What is wrong with an entry of the Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    Missing(&'static str),
    /// The entry does not hold what it should: truncated, not PEM, not a certificate, not a key.
    Malformed(&'static str),
    /// The certificate is not that of a CA.
    NotAnAuthority(&'static str),
    KeyMismatch(&'static str),
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

/// A CA that can sign.
#[derive(Clone, Debug)]
pub struct Authority {
    pub issued: Issued,
    pub certificate: CertificateDer<'static>,
    pub validity: Validity,
}

/// A serving certificate that is ready for use.
#[derive(Clone, Debug)]
pub struct Serving {
    /// Certificate and key for rustls, whose `Debug` does not show the key.
    pub certified: Arc<CertifiedKey>,
    pub validity: Validity,
    pub names: Names,
}

impl Serving {
    pub fn certificate(&self) -> Option<&CertificateDer<'static>> {
        self.certified.cert.first()
    }
}

/// What a Secret holds, entry by entry.
#[derive(Clone, Debug)]
pub struct Material {
    pub authority: Result<Authority, Defect>,
    /// The serving certificate. A defect as well when the CA is one that did not sign it.
    pub serving: Result<Serving, Defect>,
}

impl Material {
    /// Reads the data of a Secret with a serving certificate. Any bytes will do.
    pub fn read(data: &Data) -> Self {
        Self::read_for(data, Usage::Server)
    }

    pub fn read_for(data: &Data, usage: Usage) -> Self {
        let authority = read_authority(data);
        let serving = read_serving(data, usage, authority.as_ref().ok());
        Self { authority, serving }
    }
}

/// Makes the data of a Secret with this CA and a new serving certificate.
pub fn with_new_serving(
    authority: &Issued,
    names: &Names,
    now: Timestamp,
    lifetimes: &Lifetimes,
) -> Result<Data, Error> {
    with_new_leaf(authority, Usage::Server, names, now, lifetimes)
}

/// The same with a certificate for this usage.
pub fn with_new_leaf(
    authority: &Issued,
    usage: Usage,
    names: &Names,
    now: Timestamp,
    lifetimes: &Lifetimes,
) -> Result<Data, Error> {
    let leaf = issue::leaf(authority, usage, names, now, lifetimes)?;
    let entries = [
        (CA_CERTIFICATES, authority.certificate.as_str()),
        (CA_KEY, authority.key.expose()),
        (CERTIFICATE, leaf.certificate.as_str()),
        (KEY, leaf.key.expose()),
    ];
    Ok(entries.map(|(key, value)| (key.to_owned(), ByteString(value.as_bytes().to_vec()))).into())
}

fn entry<'a>(data: &'a Data, key: &'static str) -> Result<&'a [u8], Defect> {
    data.get(key).map(|bytes| bytes.0.as_slice()).filter(|bytes| !bytes.is_empty()).ok_or(Defect::Missing(key))
}

fn read_authority(data: &Data) -> Result<Authority, Defect> {
    let certificate = x509::certificates(entry(data, CA_CERTIFICATES)?).into_iter().next();
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

fn read_serving(data: &Data, usage: Usage, authority: Option<&Authority>) -> Result<Serving, Defect> {
    let chain = x509::certificates(entry(data, CERTIFICATE)?);
    let key = entry(data, KEY)?;
    let leaf = chain.first().ok_or(Defect::Malformed(CERTIFICATE))?;
    let properties = x509::properties(leaf).ok_or(Defect::Malformed(CERTIFICATE))?;
    if authority.is_some_and(|authority| !x509::has_signed(&authority.certificate, leaf, usage, properties.validity)) {
        return Err(Defect::Unsigned);
    }
    let key = PrivateKeyDer::from_pem_slice(key).map_err(|_| Defect::Malformed(KEY))?;
    let private = rustls::crypto::ring::sign::any_supported_type(&key).map_err(|_| Defect::Malformed(KEY))?;
    let certified = CertifiedKey::new(chain, private);
    certified.keys_match().map_err(|_| Defect::KeyMismatch(KEY))?;
    Ok(Serving { certified: Arc::new(certified), validity: properties.validity, names: properties.names })
}
