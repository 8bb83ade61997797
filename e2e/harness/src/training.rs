//! The image of the example that trains (`e2e/training`): Python and its libraries from Debian's packages, NumPy from PyPI.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use sha2::{Digest as _, Sha256};

use crate::programs::{filled, locked, run, short};
use crate::progress::progress;
use crate::{images, paths};

pub const IMAGE: &str = "localhost/training:test";

/// The version of Python in Debian 12.
const VERSION: &str = "3.11";

/// Debian's packages that have Python, what NumPy imports of it, and the libraries of both.
const PACKAGES: [&str; 12] = [
    "python3.11-minimal",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    "libbz2-1.0",
    "libc6",
    "libexpat1",
    "libffi8",
    "libgcc-s1",
    "liblzma5",
    "libssl3",
    "libstdc++6",
    "zlib1g",
];

/// Where Debian's Python looks for packages.
const SITE: &str = "usr/lib/python3/dist-packages";

/// What no program reads.
const UNUSED: [&str; 2] = ["usr/share", "usr/lib/python3/dist-packages/bin"];

/// The folder of the example in the checkout.
pub fn sources() -> PathBuf {
    paths::workspace().join("e2e/training")
}

/// Builds the image, as an OCI archive below `target/images`.
pub fn image() -> Result<PathBuf> {
    let files = modules()?.into_iter().map(|(name, file)| (format!("training/{name}"), file));
    images::of_folder(IMAGE, &root()?, &files.collect::<Vec<_>>())
}

/// The modules of the example and its tests, by name of the file.
pub fn modules() -> Result<Vec<(String, PathBuf)>> {
    let folder = sources();
    let entries = fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let files = entries.flatten().filter(|entry| entry.path().extension().is_some_and(|extension| extension == "py"));
    let named = files.map(|entry| (entry.file_name().to_string_lossy().into_owned(), entry.path()));
    let mut modules: Vec<_> = named.collect();
    modules.sort();
    Ok(modules)
}

/// A folder with Python and NumPy as they are in the image, without the example. It is made once, below the target folder.
pub fn root() -> Result<PathBuf> {
    let requirements = sources().join("requirements.txt");
    let mut hash = Sha256::new_with_prefix(PACKAGES.join(" "));
    hash.update(fs::read(&requirements).with_context(|| format!("cannot read {}", requirements.display()))?);
    let (folder, _lock) = locked("training")?;
    filled(&folder, "root", &short(hash), |root| {
        progress("unpacking Debian's Python, and NumPy from PyPI");
        unpack(root)?;
        install(&requirements, &root.join(SITE))?;
        UNUSED.iter().try_for_each(|path| paths::remove(&root.join(path)))?;
        symlink(format!("python{VERSION}"), root.join("usr/bin/python3"))?;
        compile(root)
    })
}

/// Unpacks Debian's packages. They are not installed: the machine may have others.
fn unpack(root: &Path) -> Result<()> {
    let packages = root.join("packages");
    fs::create_dir(&packages).with_context(|| format!("cannot create {}", packages.display()))?;
    run(Command::new("apt-get").arg("download").args(PACKAGES).current_dir(&packages))
        .context("Python comes from the packages of Debian 12")?;
    for package in fs::read_dir(&packages)?.flatten() {
        run(Command::new("dpkg").arg("--extract").arg(package.path()).arg(root))?;
    }
    paths::remove(&packages)
}

/// Installs what the example requires for the Python of the image, whatever the machine's own is.
fn install(requirements: &Path, site: &Path) -> Result<()> {
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--only-binary=:all:"]);
    pip.args(["--python-version", VERSION, "--target"]).arg(site).arg("--requirement").arg(requirements);
    run(&mut pip).context("NumPy is installed by pip: apt-get install -y --no-install-recommends python3-pip")
}

/// Compiles all modules, so that a worker does not do so at each start. The files do not depend on times, which an image does
/// not keep.
fn compile(root: &Path) -> Result<()> {
    let python = format!("/usr/bin/python{VERSION}");
    let mut compile = Command::new("chroot");
    compile.arg(root).args([&python, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]);
    run(compile.args([format!("/usr/lib/python{VERSION}"), format!("/{SITE}")]))
}
