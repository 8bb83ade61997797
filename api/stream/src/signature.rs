//! Signatures of the leading controller.
//!
//! The leader signs with the key of the certificate by which relays know it. Agents verify that certificate against the CA of
//! their Pod, and its name.

use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, SystemTimeError};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::SignatureScheme;
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::sign::{CertifiedKey, SigningKey};
use rustls_pki_types::{CertificateDer, InvalidDnsNameError, ServerName, UnixTime};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use webpki::{EndEntityCert, KeyUsage};

use crate::message::Statement;
use crate::tls::Authorities;

/// Stands before each payload, so that the signature of a statement is that of nothing else.
const CONTEXT: &[u8] = b"jobset agent stream 1\0";
/// The schemes in the order of preference.
const SCHEMES: [SignatureScheme; 4] = [
    SignatureScheme::ECDSA_NISTP256_SHA256,
    SignatureScheme::ED25519,
    SignatureScheme::ECDSA_NISTP384_SHA384,
    SignatureScheme::RSA_PSS_SHA256,
];

/// A signed [`Statement`]. A relay passes it on as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signed {
    payload: String,
    /// [`SignatureScheme`] of the signature.
    scheme: u16,
    /// In base64.
    signature: String,
}

/// Why a statement cannot be signed, or is not believed.
#[derive(Debug, Error)]
pub enum SignatureError {
    #[error("the key of the certificate cannot sign with any of the schemes of TLS 1.3")]
    Key,
    #[error("the statement cannot be signed")]
    Sign(#[source] rustls::Error),
    /// The message is not base64 or not JSON.
    #[error("the message is malformed")]
    Malformed,
    #[error("the leader has sent no certificate")]
    NoCertificate,
    #[error("the certificate is not that of {name}, or its CA is not trusted")]
    Untrusted {
        name: String,
        #[source]
        source: webpki::Error,
    },
    #[error("{0:?} is no DNS name")]
    Name(String, #[source] InvalidDnsNameError),
    #[error("the clock is wrong")]
    Clock(#[from] SystemTimeError),
    #[error("the signature is not that of the leader")]
    Forged,
}

#[derive(Clone, Debug)]
pub struct Signer(Arc<dyn SigningKey>);

impl Signer {
    pub fn new(certified: &CertifiedKey) -> Self {
        Self(Arc::clone(&certified.key))
    }

    /// Signs a statement.
    pub fn sign(&self, statement: &Statement) -> Result<Signed, SignatureError> {
        let payload = serde_json::to_string(statement).map_err(|_| SignatureError::Malformed)?;
        let signer = self.0.choose_scheme(&SCHEMES).ok_or(SignatureError::Key)?;
        let signature = signer.sign(&signed_bytes(&payload)).map_err(SignatureError::Sign)?;
        Ok(Signed { payload, scheme: signer.scheme().into(), signature: STANDARD.encode(signature) })
    }
}

/// A signature that is made once for several connections.
#[derive(Clone, Debug, Default)]
pub struct SharedSignature(Arc<OnceLock<(Signer, Signed)>>);

impl SharedSignature {
    /// The statement, signed by this key. It is always the same statement: whoever comes first signs it.
    pub fn sign(&self, signer: &Signer, statement: &Statement) -> Result<Signed, SignatureError> {
        // While the certificate is replaced, a connection may have another key.
        if let Some((Signer(key), signed)) = self.0.get()
            && Arc::ptr_eq(key, &signer.0)
        {
            return Ok(signed.clone());
        }
        let made = signer.sign(statement)?;
        // Another connection may have signed in the same moment.
        let _first = self.0.set((signer.clone(), made.clone()));
        Ok(made)
    }
}

/// A certificate chain as [`message`](crate::message) carries it.
pub fn encode_chain(chain: &[CertificateDer<'_>]) -> Vec<String> {
    chain.iter().map(|certificate| STANDARD.encode(certificate)).collect()
}

#[derive(Clone, Debug)]
pub struct LeaderCertificate {
    certificate: CertificateDer<'static>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl LeaderCertificate {
    /// Verifies the certificates that a leader has sent: one of the authorities has signed them, they are valid at present for a
    /// client, and the first has this DNS name.
    pub fn verify(chain: &[String], authorities: &Authorities, name: &str) -> Result<Self, SignatureError> {
        let decode = |text: &String| STANDARD.decode(text).map(CertificateDer::from);
        let chain: Vec<_> =
            chain.iter().map(decode).collect::<Result<_, _>>().map_err(|_| SignatureError::Malformed)?;
        let (certificate, intermediates) = chain.split_first().ok_or(SignatureError::NoCertificate)?;
        let server_name = ServerName::try_from(name).map_err(|source| SignatureError::Name(name.to_owned(), source))?;
        let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms;
        let now = UnixTime::since_unix_epoch(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?);
        let verify = || {
            let end_entity = EndEntityCert::try_from(certificate)?;
            let anchors = &authorities.roots().roots;
            let usage = KeyUsage::client_auth();
            end_entity.verify_for_usage(algorithms.all, anchors, intermediates, now, usage, None, None)?;
            end_entity.verify_is_valid_for_subject_name(&server_name)
        };
        verify().map_err(|source| SignatureError::Untrusted { name: name.to_owned(), source })?;
        Ok(Self { certificate: certificate.clone(), algorithms })
    }

    /// The statement, if this leader has signed it.
    pub fn open(&self, signed: &Signed) -> Result<Statement, SignatureError> {
        let signature = STANDARD.decode(&signed.signature).map_err(|_| SignatureError::Malformed)?;
        let end_entity = EndEntityCert::try_from(&self.certificate).map_err(|_| SignatureError::Malformed)?;
        let scheme = SignatureScheme::from(signed.scheme);
        let of_scheme = self.algorithms.mapping.iter().filter(|(it, _)| *it == scheme && SCHEMES.contains(it));
        let message = signed_bytes(&signed.payload);
        of_scheme
            .flat_map(|(_, algorithms)| *algorithms)
            .find(|algorithm| end_entity.verify_signature(**algorithm, &message, &signature).is_ok())
            .ok_or(SignatureError::Forged)?;
        serde_json::from_str(&signed.payload).map_err(|_| SignatureError::Malformed)
    }
}

fn signed_bytes(payload: &str) -> Vec<u8> {
    [CONTEXT, payload.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use rcgen::ExtendedKeyUsagePurpose;
    use rstest::rstest;

    use super::*;
    use crate::tls::testing::Pki;

    const NAME: &str = "jobset-controller.ns.svc";

    fn statement(time: i64) -> Statement {
        Statement::beat(time)
    }

    #[test]
    fn statement_of_leader_is_opened_and_changed_one_is_not() {
        let pki = Pki::new();
        let leader = pki.issue(NAME, ExtendedKeyUsagePurpose::ClientAuth);
        let signer = Signer::new(&leader.certified);
        let verified =
            LeaderCertificate::verify(&encode_chain(&leader.certified.cert), &pki.authorities(), NAME).unwrap();
        let sent = signer.sign(&statement(7)).unwrap();
        assert_eq!(verified.open(&sent).unwrap(), statement(7));
        let changed = Signed { payload: sent.payload.replace('7', "8"), ..sent.clone() };
        assert!(matches!(verified.open(&changed), Err(SignatureError::Forged)));
        let another = Signer::new(&pki.issue(NAME, ExtendedKeyUsagePurpose::ClientAuth).certified);
        assert!(matches!(verified.open(&another.sign(&statement(7)).unwrap()), Err(SignatureError::Forged)));
        let unknown = Signed { scheme: 1, ..sent };
        assert!(matches!(verified.open(&unknown), Err(SignatureError::Forged)));
    }

    #[test]
    fn shared_statement_is_signed_once_for_each_key() {
        let pki = Pki::new();
        let [signer, other] =
            [(); 2].map(|()| Signer::new(&pki.issue(NAME, ExtendedKeyUsagePurpose::ClientAuth).certified));
        let shared = SharedSignature::default();
        let first = shared.sign(&signer, &statement(7)).unwrap();
        // An ECDSA signature has a random part.
        assert_ne!(signer.sign(&statement(7)).unwrap(), first);
        assert_eq!(shared.clone().sign(&signer, &statement(7)).unwrap(), first);
        assert_ne!(shared.sign(&other, &statement(7)).unwrap(), first);
        assert_eq!(shared.sign(&signer, &statement(7)).unwrap(), first);
    }

    #[rstest]
    #[case::relay("jobset-relay.ns.svc", ExtendedKeyUsagePurpose::ServerAuth)]
    #[case::other_name("jobset-webhook-service.ns.svc", ExtendedKeyUsagePurpose::ClientAuth)]
    #[case::server_of_that_name(NAME, ExtendedKeyUsagePurpose::ServerAuth)]
    fn certificate_of_another_part_does_not_sign(#[case] name: &str, #[case] usage: ExtendedKeyUsagePurpose) {
        let pki = Pki::new();
        let chain = encode_chain(&pki.issue(name, usage).certified.cert);
        let error = LeaderCertificate::verify(&chain, &pki.authorities(), NAME).unwrap_err();
        assert!(matches!(error, SignatureError::Untrusted { .. }), "{error}");
    }

    #[test]
    fn certificate_of_another_ca_does_not_sign() {
        let chain = encode_chain(&Pki::new().issue(NAME, ExtendedKeyUsagePurpose::ClientAuth).certified.cert);
        let error = LeaderCertificate::verify(&chain, &Pki::new().authorities(), NAME).unwrap_err();
        assert!(matches!(error, SignatureError::Untrusted { .. }), "{error}");
        assert!(LeaderCertificate::verify(&[], &Pki::new().authorities(), NAME).is_err());
        assert!(LeaderCertificate::verify(&["?".to_owned()], &Pki::new().authorities(), NAME).is_err());
    }
}
