//! Reads what this crate needs to know out of a certificate.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use pem::{EncodeConfig, LineEnding, Pem};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, UnixTime};
use webpki::{EndEntityCert, KeyUsage, anchor_from_trusted_cert};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;

use crate::Names;
use crate::issue::Usage;

/// From when until when a certificate is valid, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

impl Validity {
    /// Whether the certificate is valid at that time.
    pub fn contains(&self, now: Timestamp) -> bool {
        self.not_before <= now && now <= self.not_after
    }
}

/// The certificates of a PEM file up to the first that is damaged; other sections are skipped.
pub(crate) fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem).map_while(Result::ok).collect()
}

/// One certificate as a PEM section with lines of 64 characters.
pub(crate) fn to_pem(certificate: &CertificateDer<'_>) -> String {
    let config = EncodeConfig::new().set_line_ending(LineEnding::LF);
    pem::encode_config(&Pem::new("CERTIFICATE", certificate.to_vec()), config)
}

/// Certificates as the content of a file or caBundle.
pub(crate) fn bundle(certificates: &[CertificateDer<'_>]) -> Vec<u8> {
    certificates.iter().map(to_pem).collect::<String>().into_bytes()
}

/// A parsed certificate's properties.
pub(crate) struct Properties {
    pub(crate) validity: Validity,
    pub(crate) is_ca: bool,
    pub(crate) names: Names,
    /// Subject public key info, in DER.
    pub(crate) public_key: Vec<u8>,
}

/// Parses a certificate; `None` when it is malformed.
pub(crate) fn properties(certificate: &CertificateDer<'_>) -> Option<Properties> {
    let (rest, parsed) = X509Certificate::from_der(certificate).ok()?;
    if !rest.is_empty() {
        return None;
    }
    let timestamp = |seconds: i64| Timestamp::from_second(seconds).ok();
    let validity = Validity {
        not_before: timestamp(parsed.validity().not_before.timestamp())?,
        not_after: timestamp(parsed.validity().not_after.timestamp())?,
    };
    let names = parsed.subject_alternative_name().ok()?.map(|extension| names(&extension.value.general_names));
    Some(Properties {
        validity,
        is_ca: parsed.is_ca(),
        names: names.unwrap_or_default(),
        public_key: parsed.public_key().raw.to_vec(),
    })
}

fn names(general: &[GeneralName<'_>]) -> Names {
    let mut dns = BTreeSet::new();
    let mut ips = BTreeSet::new();
    for name in general {
        match name {
            GeneralName::DNSName(name) => {
                dns.insert(name.to_ascii_lowercase());
            }
            GeneralName::IPAddress(bytes) => ips.extend(ip(bytes)),
            _ => {}
        }
    }
    Names::from_parts(dns, ips)
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(bytes).map(IpAddr::from).or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

/// Whether the first certificate of the chain is valid for a server of these names at that time, and one of the
/// authorities has signed it, or the next of the chain has, and so on.
pub(crate) fn is_trusted(
    chain: &[CertificateDer<'_>],
    authorities: &[CertificateDer<'_>],
    names: &Names,
    now: Timestamp,
) -> bool {
    is_verified(chain, authorities, Usage::Server, now) && names_not_covered(chain, names).is_empty()
}

/// The same for this usage, whatever the names are.
pub(crate) fn is_verified(
    chain: &[CertificateDer<'_>],
    authorities: &[CertificateDer<'_>],
    usage: Usage,
    now: Timestamp,
) -> bool {
    // An anchor's own validity is not looked at by webpki; the API server does look at it.
    let valid = |authority: &&CertificateDer<'_>| properties(authority).is_some_and(|it| it.validity.contains(now));
    let authorities: Vec<_> = authorities.iter().filter(valid).cloned().collect();
    let Some((certificate, intermediates)) = chain.split_first() else { return false };
    EndEntityCert::try_from(certificate)
        .is_ok_and(|end_entity| is_signed(&end_entity, intermediates, &authorities, usage, now))
}

/// Those of the names that the first certificate of the chain is not valid for.
pub(crate) fn names_not_covered(chain: &[CertificateDer<'_>], names: &Names) -> Names {
    let end_entity = chain.first().and_then(|certificate| EndEntityCert::try_from(certificate).ok());
    names.without(|name| end_entity.as_ref().is_some_and(|it| it.verify_is_valid_for_subject_name(name).is_ok()))
}

/// Whether the authority has signed the certificate for this usage, whatever the time is now.
pub(crate) fn has_signed(
    authority: &CertificateDer<'_>,
    certificate: &CertificateDer<'_>,
    usage: Usage,
    validity: Validity,
) -> bool {
    EndEntityCert::try_from(certificate).is_ok_and(|end_entity| {
        is_signed(&end_entity, &[], std::slice::from_ref(authority), usage, validity.not_before)
    })
}

fn is_signed(
    end_entity: &EndEntityCert<'_>,
    intermediates: &[CertificateDer<'_>],
    authorities: &[CertificateDer<'_>],
    usage: Usage,
    at: Timestamp,
) -> bool {
    let anchors: Vec<_> = authorities.iter().filter_map(|authority| anchor_from_trusted_cert(authority).ok()).collect();
    let time = UnixTime::since_unix_epoch(Duration::from_secs(u64::try_from(at.as_second()).unwrap_or(0)));
    let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms.all;
    let usage = match usage {
        Usage::Server => KeyUsage::server_auth(),
        Usage::Client => KeyUsage::client_auth(),
    };
    end_entity.verify_for_usage(algorithms, &anchors, intermediates, time, usage, None, None).is_ok()
}
