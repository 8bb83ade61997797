//! What a machine must have before a cluster can start there, and what to do about what is missing.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cluster::check_cgroups;
use crate::images::{BASH_PROGRAM, BUSYBOX_PROGRAM};
use crate::programs::Set;

/// The oldest Go that builds the modules in `e2e/cluster`.
const GO: (u32, u32) = (1, 26);

/// A Debian package, how its presence shows, and whether a control plane alone needs it, too.
struct Package {
    name: &'static str,
    shows: Shows,
    control_plane: bool,
}

enum Shows {
    Command(&'static str),
    File(&'static str),
}

const PACKAGES: [Package; 10] = [
    Package { name: "iproute2", shows: Shows::Command("ip"), control_plane: true },
    Package { name: "util-linux", shows: Shows::Command("unshare"), control_plane: true },
    Package { name: "mount", shows: Shows::Command("mount"), control_plane: true },
    Package { name: "gcc", shows: Shows::Command("gcc"), control_plane: true },
    Package { name: "libc6-dev", shows: Shows::File("/usr/include/stdio.h"), control_plane: true },
    Package { name: "pkg-config", shows: Shows::Command("pkg-config"), control_plane: false },
    Package { name: "libseccomp-dev", shows: Shows::File("/usr/include/seccomp.h"), control_plane: false },
    Package { name: "bash-static", shows: Shows::File(BASH_PROGRAM), control_plane: false },
    Package { name: "busybox-static", shows: Shows::File(BUSYBOX_PROGRAM), control_plane: false },
    Package { name: "nftables", shows: Shows::Command("nft"), control_plane: false },
];

/// Fails with one line that says what to do when something is missing.
pub fn check(set: Set) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("a test cluster makes namespaces and cgroups: run this as root (sudo -E ...)");
    }
    check_go()?;
    let missing = missing(set);
    if !missing.is_empty() {
        bail!("Debian packages are missing: apt-get install -y --no-install-recommends {}", missing.join(" "));
    }
    if set == Set::Cluster { check_cgroups() } else { Ok(()) }
}

pub fn missing(set: Set) -> Vec<&'static str> {
    PACKAGES
        .iter()
        .filter(|package| set == Set::Cluster || package.control_plane)
        .filter(|package| !is_there(&package.shows))
        .map(|package| package.name)
        .collect()
}

/// Installs the missing Debian packages.
pub fn install() -> Result<()> {
    let missing = missing(Set::Cluster);
    if missing.is_empty() {
        return Ok(());
    }
    for args in [vec!["update"], [vec!["install", "-y", "--no-install-recommends"], missing].concat()] {
        let status = Command::new("apt-get")
            .args(&args)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .status()
            .context("cannot run apt-get: install the packages by your distribution's own means")?;
        if !status.success() {
            bail!("apt-get {} ended with {status}", args.join(" "));
        }
    }
    Ok(())
}

fn is_there(shows: &Shows) -> bool {
    match shows {
        Shows::File(path) => Path::new(path).exists(),
        Shows::Command(name) => {
            let path = std::env::var("PATH").unwrap_or_default();
            path.split(':').chain(["/usr/sbin", "/sbin"]).any(|dir| Path::new(dir).join(name).exists())
        }
    }
}

fn check_go() -> Result<()> {
    let (major, minor) = GO;
    let wanted = format!("install Go {major}.{minor} or newer (https://go.dev/dl) and put it on the PATH");
    let output = Command::new("go")
        .args(["env", "GOVERSION"])
        .env("GOTOOLCHAIN", "local")
        .output()
        .with_context(|| format!("Go is missing: {wanted}"))?;
    let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !is_recent(&version) {
        bail!("Go is too old ({version}): {wanted}");
    }
    Ok(())
}

/// Whether a version as `go env GOVERSION` prints it (`go1.26.8`) is recent enough.
fn is_recent(version: &str) -> bool {
    let mut numbers = version.trim_start_matches("go").split(['.', '-', ' ']).map(|number| {
        number.chars().take_while(char::is_ascii_digit).collect::<String>().parse::<u32>().unwrap_or_default()
    });
    (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default()) >= GO
}

#[cfg(test)]
mod tests {
    use super::is_recent;

    #[test]
    fn go_version_is_compared_by_number() {
        for recent in ["go1.26", "go1.26.8", "go1.27rc1", "go1.100.1", "go2.0"] {
            assert!(is_recent(recent), "{recent}");
        }
        for old in ["go1.25.9", "go1.3", "", "devel"] {
            assert!(!is_recent(old), "{old}");
        }
    }
}
