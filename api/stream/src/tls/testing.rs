//! A CA for tests.

#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test has to fail where this fails")]

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tempfile::TempDir;

pub use rcgen::ExtendedKeyUsagePurpose;

use super::{AUTHORITIES, Arc, Authorities, CERTIFICATE, CertifiedKey, Identity, KEY};

#[derive(Debug)]
pub struct Pki(CertifiedIssuer<'static, KeyPair>);

/// A certificate with its key.
#[derive(Debug)]
pub struct Issued {
    /// Both, as rustls takes them.
    pub certified: Arc<CertifiedKey>,
    /// A folder with both and with the CA, as a Secret is mounted.
    pub folder: TempDir,
}

impl Default for Pki {
    fn default() -> Self {
        Self::new()
    }
}

impl Pki {
    /// Makes a CA.
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// The certificate of the CA in PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// The CA as that which a program trusts.
    pub fn authorities(&self) -> Authorities {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(AUTHORITIES), self.pem()).unwrap();
        Authorities::read(&folder.path().join(AUTHORITIES)).unwrap()
    }

    /// A certificate for this DNS name.
    pub fn issue(&self, name: &str, usage: ExtendedKeyUsagePurpose) -> Issued {
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        params.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| std::fs::write(folder.path().join(name), text).unwrap();
        write(CERTIFICATE, certificate.pem());
        write(KEY, key.serialize_pem());
        write(AUTHORITIES, self.pem());
        let certified = Identity::read(folder.path()).unwrap().certified;
        Issued { certified, folder }
    }
}
