//! Container images without a registry and without a daemon: an OCI layout in a tar file, the same bytes for the same
//! input, made from a static binary.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::paths;

const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar";
const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

/// The image of every sandbox container.
pub const PAUSE: &str = "localhost/pause:test";

/// Debian's static busybox with its applets, loaded into every node: `sh`, `nc`, `nslookup`, `httpd` and so on.
pub const BUSYBOX: &str = "localhost/busybox:test";

/// Where Debian's busybox-static puts its program.
pub(crate) const BUSYBOX_PROGRAM: &str = "/bin/busybox";

/// What an image is made of.
#[derive(Clone, Debug)]
pub struct ImageSpec<'a> {
    /// The full name with a tag, for instance `localhost/jobset-agent:test`. The tag should not be `latest`: the
    /// kubelet would try to pull it.
    pub name: &'a str,
    /// The static binary; it lies in the image's root under its own file name.
    pub binary: &'a Path,
    /// The entrypoint; empty means the binary without arguments.
    pub entrypoint: &'a [&'a str],
    /// Symbolic links as path and target.
    pub links: &'a [(&'a str, &'a str)],
    /// The user of the image's config, as `uid` or `uid:gid`; empty means root.
    pub user: &'a str,
}

impl<'a> ImageSpec<'a> {
    /// An image whose entrypoint is the binary, run as root.
    pub fn new(name: &'a str, binary: &'a Path) -> Self {
        Self { name, binary, entrypoint: &[], links: &[], user: "" }
    }
}

/// Writes the image as an OCI layout tar below `target/images` and returns its path.
///
/// # Errors
/// When the binary cannot be read or the file not be written.
pub fn build(spec: &ImageSpec<'_>) -> Result<PathBuf> {
    let file_name = spec.binary.file_name().and_then(|name| name.to_str()).context("the binary has no file name")?;
    let binary = fs::read(spec.binary).with_context(|| format!("cannot read {}", spec.binary.display()))?;
    let layer = layer(file_name, &binary, spec.links)?;
    let own_entrypoint = [format!("/{file_name}")];
    let entrypoint = if spec.entrypoint.is_empty() { json!(own_entrypoint) } else { json!(spec.entrypoint) };
    let mut config = json!({
        "architecture": architecture(),
        "os": "linux",
        "config": { "Entrypoint": entrypoint, "Env": ["PATH=/usr/sbin:/usr/bin:/sbin:/bin"], "WorkingDir": "/" },
        "rootfs": { "type": "layers", "diff_ids": [digest(&layer)] },
    });
    if !spec.user.is_empty() {
        config["config"]["User"] = json!(spec.user);
    }
    let config = config.to_string().into_bytes();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": descriptor(CONFIG_TYPE, &config),
        "layers": [descriptor(LAYER_TYPE, &layer)],
    })
    .to_string()
    .into_bytes();
    let mut in_index = descriptor(MANIFEST_TYPE, &manifest);
    in_index["annotations"] = json!({ "io.containerd.image.name": spec.name });
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [in_index] }).to_string();

    let mut layout = Archive::new();
    layout.file("oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    layout.file("index.json", 0o644, index.as_bytes())?;
    for blob in [&config, &manifest, &layer] {
        layout.file(&format!("blobs/sha256/{}", hex(blob)), 0o644, blob)?;
    }
    write(spec.name, &layout.finish()?)
}

/// The pause image, from the Go program in `e2e/cluster/pause`.
///
/// # Errors
/// As [`build`].
pub fn pause(program: &Path) -> Result<PathBuf> {
    build(&ImageSpec { user: "65535:65535", ..ImageSpec::new(PAUSE, program) })
}

/// The busybox image with a link for each common applet, from Debian's busybox-static.
///
/// # Errors
/// As [`build`].
pub fn busybox() -> Result<PathBuf> {
    const APPLETS: [&str; 24] = [
        "cat", "cp", "date", "echo", "env", "false", "grep", "hostname", "httpd", "id", "kill", "ls", "mkdir", "nc",
        "nslookup", "ping", "ps", "rm", "sh", "sleep", "test", "touch", "true", "wget",
    ];
    let links: Vec<(String, &str)> = APPLETS.iter().map(|applet| (format!("bin/{applet}"), "/busybox")).collect();
    let links: Vec<(&str, &str)> = links.iter().map(|(path, target)| (path.as_str(), *target)).collect();
    let spec = ImageSpec::new(BUSYBOX, Path::new(BUSYBOX_PROGRAM));
    build(&ImageSpec { entrypoint: &["/bin/sh"], links: &links, ..spec })
}

/// The one layer: the binary, a writable `/tmp`, and the links.
fn layer(file_name: &str, binary: &[u8], links: &[(&str, &str)]) -> Result<Vec<u8>> {
    let mut layer = Archive::new();
    layer.folder("tmp/", 0o1777)?;
    layer.file(file_name, 0o755, binary)?;
    let mut folders: Vec<&str> = links.iter().filter_map(|(path, _)| Some(path.rsplit_once('/')?.0)).collect();
    folders.dedup();
    for folder in folders {
        layer.folder(&format!("{folder}/"), 0o755)?;
    }
    for (path, target) in links {
        layer.link(path, target)?;
    }
    layer.finish()
}

/// A tar archive without times and owners, so that the same input gives the same digest.
struct Archive(tar::Builder<Vec<u8>>);

impl Archive {
    fn new() -> Self {
        Self(tar::Builder::new(Vec::new()))
    }

    fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_size(size);
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        header
    }

    fn file(&mut self, path: &str, mode: u32, content: &[u8]) -> Result<()> {
        let mut header = Self::header(tar::EntryType::Regular, mode, content.len() as u64);
        self.0.append_data(&mut header, path, content).with_context(|| format!("cannot add {path} to the archive"))
    }

    fn folder(&mut self, path: &str, mode: u32) -> Result<()> {
        let mut header = Self::header(tar::EntryType::Directory, mode, 0);
        self.0.append_data(&mut header, path, &[][..]).with_context(|| format!("cannot add {path} to the archive"))
    }

    fn link(&mut self, path: &str, target: &str) -> Result<()> {
        let mut header = Self::header(tar::EntryType::Symlink, 0o777, 0);
        self.0.append_link(&mut header, path, target).with_context(|| format!("cannot add {path} to the archive"))
    }

    fn finish(self) -> Result<Vec<u8>> {
        self.0.into_inner().context("cannot end the archive")
    }
}

fn descriptor(media_type: &str, blob: &[u8]) -> serde_json::Value {
    json!({ "mediaType": media_type, "digest": digest(blob), "size": blob.len() })
}

fn digest(blob: &[u8]) -> String {
    format!("sha256:{}", hex(blob))
}

fn hex(blob: &[u8]) -> String {
    format!("{:x}", Sha256::digest(blob))
}

/// The machine's architecture in the words of an OCI image.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn write(name: &str, bytes: &[u8]) -> Result<PathBuf> {
    let dir = paths::target().join("images");
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let path = dir.join(format!("{}.tar", name.replace(['/', ':'], "_")));
    // Written aside and renamed: two tests may build the same image at once.
    let aside = dir.join(format!("{:016x}.part", fastrand::u64(..)));
    let mut file = File::create(&aside).with_context(|| format!("cannot create {}", aside.display()))?;
    file.write_all(bytes).with_context(|| format!("cannot write {}", aside.display()))?;
    fs::rename(&aside, &path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}
