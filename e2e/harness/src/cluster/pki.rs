//! The certificates and kubeconfigs of one cluster: an authority of its own, valid as long as the cluster lives.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use k8s_openapi::ByteString;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SanType,
};
use serde_json::json;

/// A certificate authority whose files lie in one folder.
pub(super) struct Authority {
    dir: PathBuf,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// Makes an authority and writes `ca.crt`, and `service-account.key` and `.pub` for the tokens of service
    /// accounts.
    pub(super) fn create(dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "jobset-e2e");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
        let authority = Self { dir: dir.to_path_buf(), issuer };
        authority.write("ca.crt", &authority.issuer.pem())?;
        let tokens = KeyPair::generate()?;
        authority.write("service-account.key", &tokens.serialize_pem())?;
        authority.write("service-account.pub", &tokens.public_key_pem())?;
        Ok(authority)
    }

    /// Writes `<name>.crt` and `<name>.key`: a serving certificate for the names and addresses.
    pub(super) fn serving(&self, name: &str, dns: &[&str], addresses: &[IpAddr]) -> Result<()> {
        let mut params = CertificateParams::new(dns.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.subject_alt_names.extend(addresses.iter().map(|&address| SanType::IpAddress(address)));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.issue(name, params).map(|_| ())
    }

    /// Writes `<name>.crt`, `<name>.key` and `<name>.kubeconfig`: a client certificate for the user and groups.
    /// Returns the path of the kubeconfig.
    pub(super) fn client(&self, name: &str, user: &str, groups: &[&str], server: &str) -> Result<PathBuf> {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, user);
        for &group in groups {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let (certificate, key) = self.issue(name, params)?;
        // JSON is YAML. The certificates are inside, so that the file can be copied elsewhere.
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "e2e",
            "clusters": [{ "name": "e2e", "cluster": {
                "server": server, "certificate-authority-data": ByteString(self.issuer.pem().into_bytes()),
            }}],
            "users": [{ "name": "e2e", "user": {
                "client-certificate-data": ByteString(certificate.into_bytes()), "client-key-data": ByteString(key.into_bytes()),
            }}],
            "contexts": [{ "name": "e2e", "context": { "cluster": "e2e", "user": "e2e" } }],
        });
        self.write(&format!("{name}.kubeconfig"), &format!("{kubeconfig:#}\n"))
    }

    fn issue(&self, name: &str, mut params: CertificateParams) -> Result<(String, String)> {
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().context("cannot make a key")?;
        let certificate = params.signed_by(&key, &self.issuer).with_context(|| format!("cannot sign {name}"))?;
        let (certificate, key) = (certificate.pem(), key.serialize_pem());
        self.write(&format!("{name}.crt"), &certificate)?;
        self.write(&format!("{name}.key"), &key)?;
        Ok((certificate, key))
    }

    fn write(&self, name: &str, content: &str) -> Result<PathBuf> {
        let path = self.dir.join(name);
        let written = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
        written
            .and_then(|mut file| std::io::Write::write_all(&mut file, content.as_bytes()))
            .with_context(|| format!("cannot write {}", path.display()))?;
        Ok(path)
    }
}
