//! Issues certificates: a CA of its own and, signed by it, certificates of servers and clients. All keys are ECDSA P-256.

use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, SanType,
};
use time::OffsetDateTime;

use crate::private_key::PrivateKeyPem;
use crate::{Error, Names};

/// Certificates are valid from this long ago, so that a reader whose clock runs behind accepts them.
pub(crate) const BACKDATED: Duration = Duration::from_hours(1);

/// What a certificate is good for: each has this one purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Usage {
    /// A server shows it to its clients.
    Server,
    /// A client shows it to servers.
    Client,
}

/// How long issued certificates are valid, counted from their issue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    ca: Duration,
    serving: Duration,
}

/// The shortest lifetime of a serving certificate. It is replaced when a third is left, and API servers must trust the next
/// one before.
pub const SHORTEST: Duration = Duration::from_secs(30);

impl Lifetimes {
    /// Lifetimes of the CA and of the serving certificate.
    ///
    /// # Errors
    /// When the CA does not live at least twice as long as the serving certificate: it is replaced as soon as it could
    /// not outlive a new serving certificate, so it would be replaced at once. When the serving certificate lives for less
    /// than [`SHORTEST`].
    pub fn new(ca: Duration, serving: Duration) -> Result<Self, Error> {
        if serving < SHORTEST {
            return Err(Error::ShortLifetime(SHORTEST));
        }
        if ca < serving.saturating_mul(2) {
            return Err(Error::InvalidLifetimes);
        }
        Ok(Self { ca, serving })
    }

    pub fn ca(&self) -> Duration {
        self.ca
    }

    pub fn serving(&self) -> Duration {
        self.serving
    }
}

impl Default for Lifetimes {
    /// A year for the CA, 90 days for the serving certificate.
    fn default() -> Self {
        const DAY: Duration = Duration::from_hours(24);
        Self { ca: DAY * 365, serving: DAY * 90 }
    }
}

/// A certificate and its key, in PEM.
#[derive(Clone, Debug)]
pub struct Issued {
    pub certificate: String,
    pub key: PrivateKeyPem,
}

/// Issues a self-signed CA. The time is part of its name, so that two of them in one bundle can be told apart.
pub fn authority(now: Timestamp, lifetimes: &Lifetimes) -> Result<Issued, Error> {
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name(format!("jobset-webhook-ca {}", now.strftime("%Y-%m-%dT%H:%M:%SZ")));
    (params.not_before, params.not_after) = validity(now, lifetimes.ca);
    // No intermediate authorities.
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = generate_key()?;
    let certificate = params.self_signed(&key).map_err(Error::Issue)?;
    Ok(Issued { certificate: certificate.pem(), key: PrivateKeyPem::new(key.serialize_pem()) })
}

/// Issues a certificate for the names, signed by the CA.
pub fn leaf(
    authority: &Issued,
    usage: Usage,
    names: &Names,
    now: Timestamp,
    lifetimes: &Lifetimes,
) -> Result<Issued, Error> {
    let authority_key = KeyPair::from_pem(authority.key.expose()).map_err(Error::Issue)?;
    let issuer = Issuer::from_ca_cert_pem(&authority.certificate, authority_key).map_err(Error::Issue)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = common_name("jobset".to_owned());
    (params.not_before, params.not_after) = validity(now, lifetimes.serving);
    params.subject_alt_names = names
        .dns()
        .map(|name| name.try_into().map(SanType::DnsName))
        .chain(names.ips().map(|ip| Ok(SanType::IpAddress(ip))))
        .collect::<Result<_, _>>()
        .map_err(Error::Issue)?;
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![match usage {
        Usage::Server => ExtendedKeyUsagePurpose::ServerAuth,
        Usage::Client => ExtendedKeyUsagePurpose::ClientAuth,
    }];
    params.use_authority_key_identifier_extension = true;
    let key = generate_key()?;
    let certificate = params.signed_by(&key, &issuer).map_err(Error::Issue)?;
    Ok(Issued { certificate: certificate.pem(), key: PrivateKeyPem::new(key.serialize_pem()) })
}

fn generate_key() -> Result<KeyPair, Error> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(Error::Issue)
}

fn common_name(name: String) -> DistinguishedName {
    let mut distinguished = DistinguishedName::new();
    distinguished.push(DnType::CommonName, name);
    distinguished
}

fn validity(now: Timestamp, lifetime: Duration) -> (OffsetDateTime, OffsetDateTime) {
    let at = |time: Option<Timestamp>| {
        let seconds = time.unwrap_or(Timestamp::MAX).as_second();
        OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH)
    };
    (at(now.checked_sub(BACKDATED).ok()), at(now.checked_add(lifetime).ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ca_lifetime_below_two_certificates_is_rejected() {
        let hour = Duration::from_hours(1);
        assert!(Lifetimes::new(hour, hour).is_err());
        assert!(Lifetimes::new(hour, Duration::ZERO).is_err());
        assert!(Lifetimes::new(hour, Duration::from_millis(500)).is_err());
        assert!(Lifetimes::new(hour, Duration::MAX).is_err());
        assert!(Lifetimes::new(hour * 2, hour).is_ok());
    }
}
