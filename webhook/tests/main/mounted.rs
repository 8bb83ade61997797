//! Certificates that others issue and mount, as cert-manager does it: a directory whose symlink is swapped as the kubelet
//! swaps it, and caBundles that are patched as the cainjector patches them.

use std::os::unix::fs::symlink;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use jobset_certs::issue::{self, Issued};
use jobset_certs::material::{CA_KEY, KEY, Material, with_new_serving};
use jobset_certs::{Lifetimes, Names};
use jobset_harness::admission::{allow, kustomize};
use kube::api::ListParams;
use tempfile::TempDir;

use crate::cluster::{NAMESPACE, Plane, says};
use crate::load::Load;

/// A CA of somebody else.
struct Issuer {
    authority: Issued,
    names: Names,
}

type Files = Vec<(String, Vec<u8>)>;

impl Issuer {
    fn new(plane: &Plane) -> Result<Self> {
        let authority = issue::authority(Timestamp::now(), &Lifetimes::default())?;
        let host = plane.plane.ready().host_address.to_string();
        Ok(Self { authority, names: Names::of_service("jobset-webhook-service", NAMESPACE)?.with(&host)? })
    }

    /// A new certificate as its Secret holds it, and as clients see it that trust its CA.
    fn issue(&self) -> Result<(Files, Material)> {
        let (now, lifetimes) = (Timestamp::now(), Lifetimes::default());
        let mut data = with_new_serving(&self.authority, &self.names, now, &lifetimes)?;
        let material = Material::read(&data);
        data.remove(CA_KEY);
        Ok((data.into_iter().map(|(name, bytes)| (name, bytes.0)).collect(), material))
    }

    fn bundle(&self) -> &[u8] {
        self.authority.certificate.as_bytes()
    }
}

/// A Secret's mount.
struct Mount {
    directory: TempDir,
    generation: u32,
}

impl Mount {
    fn new() -> Result<Self> {
        let mount = Self { directory: TempDir::new()?, generation: 0 };
        for name in ["tls.crt", "tls.key", "ca.crt"] {
            symlink(format!("..data/{name}"), mount.directory.path().join(name))?;
        }
        Ok(mount)
    }

    /// Replaces all files at once: a new directory, a symlink to it beside the old one, a rename, and the old directory
    /// is gone.
    fn swap(&mut self, files: &Files) -> Result<()> {
        let root = self.directory.path();
        let old = root.join(format!("..{}", self.generation));
        self.generation += 1;
        let name = format!("..{}", self.generation);
        std::fs::create_dir(root.join(&name))?;
        for (file, bytes) in files {
            std::fs::write(root.join(&name).join(file), bytes)?;
        }
        symlink(&name, root.join("..data_tmp"))?;
        std::fs::rename(root.join("..data_tmp"), root.join("..data"))?;
        Ok(std::fs::remove_dir_all(old).or_else(|it| if self.generation == 1 { Ok(()) } else { Err(it) })?)
    }
}

#[tokio::test]
async fn mounted_certificate_is_replaced_by_good_ones_alone() -> Result<()> {
    let plane = Arc::new(Plane::bare().await?);
    allow(&plane.plane, &kustomize(&plane.plane, "cert-manager").await?).await?;
    let mut mount = Mount::new()?;
    let directory = format!("--cert-dir={}", mount.directory.path().display());
    let replica = plane.replica_with(&["--cert-source=mounted", &directory, "--ca-bundle-settle=1s"]).await?;
    plane.register(replica.address).await?;

    // Neither cert-manager nor the cainjector has come by yet.
    says(replica.health, "HTTP/1.1 503", "cannot be used: tls.crt is missing").await?;
    let issuer = Issuer::new(&plane)?;
    let (files, first) = issuer.issue()?;
    mount.swap(&files)?;
    says(replica.health, "HTTP/1.1 503", "does not verify the serving certificate").await?;
    replica.has_metric("jobset_webhook_ca_mismatch", 1.0).await?;
    plane.inject(issuer.bundle()).await?;
    replica.ready().await?;
    assert!(replica.serves(&first).await);
    replica.has_metric("jobset_webhook_ca_mismatch", 0.0).await?;

    let load = Load::start(&plane, &[&replica]).await?;
    let (files, second) = issuer.issue()?;
    mount.swap(&files)?;
    replica.wait_until_it_serves_that_of(&second).await?;

    // A key of another certificate.
    let (mut broken, _) = issuer.issue()?;
    let key = files.iter().find(|(name, _)| name == KEY).context("no key")?.clone();
    broken.iter_mut().filter(|(name, _)| name == KEY).for_each(|it| *it = key.clone());
    mount.swap(&broken)?;
    says(replica.health, "HTTP/1.1 200", "cannot be used: tls.key is not the key of its certificate").await?;
    replica.wait_until_it_serves_that_of(&second).await?;

    // Another CA, which nobody trusts until the cainjector has come by.
    let other = Issuer::new(&plane)?;
    let (files, third) = other.issue()?;
    mount.swap(&files)?;
    says(replica.health, "HTTP/1.1 200", "ok\n").await?;
    assert!(replica.serves(&second).await && !replica.serves(&third).await);
    plane.inject(&[issuer.bundle(), other.bundle()].concat()).await?;
    replica.wait_until_serving(&third).await?;
    replica.has_metric("jobset_webhook_cert_reloads_total", 2.0).await?;
    load.stop().await?.expect_at_least(20);

    assert!(plane.secrets().list(&ListParams::default()).await?.items.is_empty(), "nothing was written");
    let writers: Vec<_> = plane.writers().await?.into_iter().collect();
    assert_eq!(writers, ["cainjector", "kubectl"], "of the configurations");
    replica.stop().await?;
    Arc::into_inner(plane).context("the plane is in use")?.plane.stop().await
}
