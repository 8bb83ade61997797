//! Container images without a registry and without a daemon: an OCI layout in a tar file, the same bytes for the same
//! input, made from a static binary.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::architecture::Architecture;
use crate::archive::Archive;
use crate::{notices, paths};

const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";
const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
const LAYER_TYPE: &str = "application/vnd.oci.image.layer.v1.tar";
const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";

/// User and group of the product's images, those that other images from scratch have, too.
const PRODUCT_USER: &str = "65532:65532";

/// Labels of the product's images, by the names that the OCI has for them.
const PRODUCT_LABELS: [(&str, &str); 3] = [
    ("org.opencontainers.image.title", "jobset-rs"),
    ("org.opencontainers.image.version", env!("CARGO_PKG_VERSION")),
    ("org.opencontainers.image.licenses", env!("CARGO_PKG_LICENSE")),
];

#[derive(Clone, Debug)]
pub struct ImageSpec<'a> {
    /// The full name with a tag, for instance `localhost/jobset-agent:test`. The tag should not be `latest`: the
    /// kubelet would try to pull it.
    pub name: &'a str,
    /// The static binary; it lies in the image's root under its own file name.
    pub binary: &'a Path,
    /// The entrypoint; empty means the binary without arguments.
    pub entrypoint: &'a [&'a str],
    /// Further programs as path in the image and file.
    pub programs: &'a [(&'a str, &'a Path)],
    /// Files to be read in the image's root, by their name there.
    pub documents: Vec<(&'a str, PathBuf)>,
    /// Symbolic links in the image's root, as name and target.
    pub links: &'a [(&'a str, &'a str)],
    /// Names in `/bin` that link to `/busybox`.
    pub applets: &'a [&'a str],
    /// The user of the image's config, as `uid` or `uid:gid`; empty means root.
    pub user: &'a str,
    pub labels: &'a [(&'a str, &'a str)],
    /// What its binary runs on; without one, this machine.
    pub architecture: Option<Architecture>,
}

impl<'a> ImageSpec<'a> {
    /// An image whose entrypoint is the binary, run as root.
    pub fn new(name: &'a str, binary: &'a Path) -> Self {
        Self {
            name,
            binary,
            entrypoint: &[],
            programs: &[],
            documents: Vec::new(),
            links: &[],
            applets: &[],
            user: "",
            labels: &[],
            architecture: None,
        }
    }

    /// An image of the product: it is not run as root, says what it is, and has the licences of all that its program is made of.
    pub fn product(name: &'a str, binary: &'a Path) -> Self {
        let documents = vec![("LICENSE", paths::workspace().join("LICENSE")), ("THIRD-PARTY-NOTICES", notices::file())];
        Self { user: PRODUCT_USER, labels: &PRODUCT_LABELS, documents, ..Self::new(name, binary) }
    }
}

/// Writes the image as an OCI layout tar below `target/images` and returns its path.
pub fn build(spec: &ImageSpec<'_>) -> Result<PathBuf> {
    let file_name = spec.binary.file_name().and_then(|name| name.to_str()).context("the binary has no file name")?;
    let binary = fs::read(spec.binary).with_context(|| format!("cannot read {}", spec.binary.display()))?;
    let layer = layer(file_name, &binary, spec)?;
    let own_entrypoint = [format!("/{file_name}")];
    let entrypoint = if spec.entrypoint.is_empty() { json!(own_entrypoint) } else { json!(spec.entrypoint) };
    let mut config = json!({ "Entrypoint": entrypoint });
    if !spec.user.is_empty() {
        config["User"] = json!(spec.user);
    }
    if !spec.labels.is_empty() {
        config["Labels"] = spec.labels.iter().copied().collect::<BTreeMap<_, _>>().into_iter().collect();
    }
    pack(spec.name, spec.architecture.map_or_else(Architecture::of_host, Ok)?, config, &layer)
}

/// Writes an image as an OCI layout tar below `target/images` and returns its path. It has what is in a folder, and further
/// files, each with its path in the image. It has no entrypoint.
///
/// # Errors
/// If a file cannot be read, or the folder has something else than files, folders and symbolic links.
pub fn of_folder(name: &str, root: &Path, files: &[(String, PathBuf)]) -> Result<PathBuf> {
    let mut layer = Archive::new();
    layer.folder("tmp/", 0o1777)?;
    layer.tree("", root)?;
    for (path, file) in files {
        let content = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        layer.file(path, 0o644, &content)?;
    }
    pack(name, Architecture::of_host()?, json!({}), &layer.finish()?)
}

/// Writes the image of one layer; `config` is what its containers run with.
fn pack(name: &str, architecture: Architecture, mut config: Value, layer: &[u8]) -> Result<PathBuf> {
    config["Env"] = json!(["PATH=/usr/sbin:/usr/bin:/sbin:/bin"]);
    config["WorkingDir"] = json!("/");
    let config = json!({
        "architecture": architecture.name(),
        "os": "linux",
        "config": config,
        "rootfs": { "type": "layers", "diff_ids": [digest(layer)] },
    });
    let config = config.to_string().into_bytes();
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": descriptor(CONFIG_TYPE, &config),
        "layers": [descriptor(LAYER_TYPE, layer)],
    })
    .to_string()
    .into_bytes();
    let mut in_index = descriptor(MANIFEST_TYPE, &manifest);
    in_index["annotations"] = json!({ "io.containerd.image.name": name });
    let index = json!({ "schemaVersion": 2, "mediaType": INDEX_TYPE, "manifests": [in_index] }).to_string();

    let mut layout = Archive::new();
    layout.file("oci-layout", 0o644, br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    layout.file("index.json", 0o644, index.as_bytes())?;
    for blob in [&config, &manifest, layer] {
        layout.file(&format!("blobs/sha256/{}", hex(blob)), 0o644, blob)?;
    }
    let is_foreign = architecture != Architecture::of_host()?;
    let foreign = if is_foreign { format!("_{}", architecture.name()) } else { String::new() };
    write(&format!("{name}{foreign}"), &layout.finish()?)
}

/// The one layer: the binary, a writable `/tmp`, further programs, and the links.
fn layer(file_name: &str, binary: &[u8], spec: &ImageSpec<'_>) -> Result<Vec<u8>> {
    let mut layer = Archive::new();
    layer.folder("tmp/", 0o1777)?;
    layer.file(file_name, 0o755, binary)?;
    if !spec.applets.is_empty() {
        layer.folder("bin/", 0o755)?;
    }
    for (path, program) in spec.programs {
        let program = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
        layer.file(path, 0o755, &program)?;
    }
    for (name, document) in &spec.documents {
        let text = fs::read(document).with_context(|| format!("cannot read {}", document.display()))?;
        layer.file(name, 0o644, &text)?;
    }
    for (path, target) in spec.links {
        layer.link(path, target)?;
    }
    spec.applets.iter().try_for_each(|applet| layer.link(&format!("bin/{applet}"), "/busybox"))?;
    layer.finish()
}

fn descriptor(media_type: &str, blob: &[u8]) -> Value {
    json!({ "mediaType": media_type, "digest": digest(blob), "size": blob.len() })
}

fn digest(blob: &[u8]) -> String {
    format!("sha256:{}", hex(blob))
}

fn hex(blob: &[u8]) -> String {
    format!("{:x}", Sha256::digest(blob))
}

fn write(name: &str, bytes: &[u8]) -> Result<PathBuf> {
    let dir = paths::target().join("images");
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let path = dir.join(format!("{}.tar", name.replace(['/', ':'], "_")));
    // Written aside and renamed: two tests may build the same image at once.
    let aside = dir.join(format!("{:016x}.part", fastrand::u64(..)));
    fs::write(&aside, bytes).with_context(|| format!("cannot write {}", aside.display()))?;
    fs::rename(&aside, &path).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;

    /// The files in the image's layer, with what they hold.
    fn files(image: &[u8]) -> BTreeMap<String, Vec<u8>> {
        let read = |archive: &[u8]| {
            let mut archive = tar::Archive::new(archive);
            let files = archive.entries().unwrap().map(|entry| {
                let (mut entry, mut content) = (entry.unwrap(), Vec::new());
                entry.read_to_end(&mut content).unwrap();
                (entry.path().unwrap().display().to_string(), content)
            });
            files.collect::<BTreeMap<_, _>>()
        };
        let layout = read(image);
        let layer = layout.iter().filter(|(name, _)| name.starts_with("blobs/")).max_by_key(|(_, blob)| blob.len());
        read(layer.unwrap().1)
    }

    #[test]
    fn product_image_is_the_same_twice_and_has_its_licences() {
        let binary = std::env::current_exe().unwrap();
        let image = || fs::read(build(&ImageSpec::product("localhost/twice:test", &binary)).unwrap()).unwrap();
        let (first, second) = (image(), image());
        assert!(first == second, "the images differ");
        let files = files(&first);
        assert!(files["LICENSE"].windows(14).any(|it| it == b"Apache License"));
        assert!(files["THIRD-PARTY-NOTICES"] == fs::read(notices::file()).unwrap());
    }

    #[test]
    fn dockerfile_makes_the_same_images() {
        let dockerfile = fs::read_to_string(paths::workspace().join("deploy/Dockerfile")).unwrap();
        assert!(dockerfile.contains(&format!("\nUSER {PRODUCT_USER}\n")), "{dockerfile}");
        for (label, value) in PRODUCT_LABELS {
            assert!(dockerfile.contains(&format!("{label}=\"{value}\"")), "{label}");
        }
        assert!(dockerfile.contains("\nCOPY LICENSE deploy/THIRD-PARTY-NOTICES /\n"), "{dockerfile}");
        for program in ["controller", "webhook", "certs", "relay", "agent"] {
            assert!(dockerfile.contains(&format!("FROM base AS {program}\n")), "{program}");
            assert!(dockerfile.contains(&format!("ENTRYPOINT [\"/jobset-{program}\"]\n")), "{program}");
        }
    }
}
