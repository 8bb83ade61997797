//! The one thing that clusters on a machine could fight over: a number, held by a file lock, from which follow the
//! cluster's addresses, its network device and its cgroups.

use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::cgroups;
use super::family::Family;

/// The slots' locks; `/run` is emptied when the machine starts, as are the things that the locks stand for.
const LOCKS: &str = "/run/jobset-e2e";
/// The names of slots begin so.
const PREFIX: &str = "jobset-e2e-";
/// The second byte of the slots' networks, 10.160.0.0/16 to 10.223.0.0/16.
const NETWORKS: std::ops::Range<u8> = 160..224;

/// A held slot. It is free again when this is dropped or its process has ended.
pub(super) struct NetworkSlot {
    network: u8,
    _lock: File,
}

impl NetworkSlot {
    /// Takes the first slot that no other cluster holds and whose network the machine does not route elsewhere.
    pub(super) fn take() -> Result<Self> {
        fs::create_dir_all(LOCKS).with_context(|| format!("cannot create {LOCKS}"))?;
        let routes = Command::new("ip").args(["-4", "route", "show"]).output().context("cannot run ip")?;
        let routes = String::from_utf8_lossy(&routes.stdout).into_owned();
        for network in NETWORKS {
            if let Some(slot) = Self::claim(network)?.filter(|_| !is_routed(&routes, network)) {
                return Ok(slot);
            }
        }
        bail!(
            "no free network among 10.{}.0.0/16 to 10.{}.0.0/16: end other test clusters (e2e-cluster down --dir DIR)",
            NETWORKS.start,
            NETWORKS.end - 1
        )
    }

    /// Removes the cgroups of slots whose holder was killed.
    pub(super) fn sweep() -> Result<()> {
        fs::create_dir_all(LOCKS).with_context(|| format!("cannot create {LOCKS}"))?;
        for name in cgroups::names(PREFIX)? {
            let Some(network) = name.strip_prefix(PREFIX).and_then(|network| network.parse().ok()) else { continue };
            // The slot stays claimed meanwhile, so that nobody takes it in between.
            if let Some(slot) = Self::claim(network)? {
                cgroups::remove(&slot.name())?;
            }
        }
        Ok(())
    }

    fn claim(network: u8) -> Result<Option<Self>> {
        let path = Path::new(LOCKS).join(format!("{network}.lock"));
        let lock = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
        Ok(lock.try_lock().is_ok().then_some(Self { network, _lock: lock }))
    }

    /// The name of this slot's cgroups and, being short, of its network device on the host.
    pub(super) fn name(&self) -> String {
        format!("{PREFIX}{}", self.network)
    }

    /// An address in the slot's network of this family.
    pub(super) fn address(&self, family: Family, subnet: u8, host: u8) -> IpAddr {
        let [network, subnet_6, host_6] = [self.network, subnet, host].map(u16::from);
        match family {
            Family::V4 => Ipv4Addr::new(10, self.network, subnet, host).into(),
            Family::V6 => Ipv6Addr::new(0xfd0e, 0x2e, network, subnet_6, 0, 0, 0, host_6).into(),
        }
    }
}

/// Whether a line of `ip route` leads to 10.`network`.0.0/16 or a part of it.
fn is_routed(routes: &str, network: u8) -> bool {
    let prefix = format!("10.{network}.");
    routes.lines().filter_map(|line| line.split_whitespace().next()).any(|to| to.starts_with(&prefix))
}

#[cfg(test)]
mod tests {
    use super::is_routed;

    #[test]
    fn network_with_a_route_is_taken() {
        let routes = "default via 10.0.0.1 dev eth0\n10.161.0.0/16 via 10.161.0.2 dev x\n10.16.0.0/16 dev y\n";
        assert!(is_routed(routes, 161));
        assert!(!is_routed(routes, 160));
        assert!(!is_routed(routes, 16 + 1));
    }
}
