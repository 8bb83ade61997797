//! IPv4 and IPv6: a cluster has one of them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    /// Prefix of the addresses of a node, and of its Pods.
    pub(super) fn subnet(self) -> u8 {
        match self {
            Self::V4 => 24,
            Self::V6 => 64,
        }
    }

    /// Prefix of all addresses of a cluster but those of Services.
    pub(super) fn network(self) -> u8 {
        match self {
            Self::V4 => 16,
            Self::V6 => 48,
        }
    }

    /// The API server's `--service-cluster-ip-range`.
    pub(super) fn services(self) -> &'static str {
        match self {
            Self::V4 => "10.96.0.0/16",
            Self::V6 => "fd0e:2e:ffff::/112",
        }
    }

    /// The address of the `kubernetes` Service: the first of that range.
    pub(super) fn kubernetes_service(self) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::new(10, 96, 0, 1).into(),
            Self::V6 => Ipv6Addr::new(0xfd0e, 0x2e, 0xffff, 0, 0, 0, 0, 1).into(),
        }
    }

    /// All addresses, as a route.
    pub(super) fn any(self) -> &'static str {
        match self {
            Self::V4 => "0.0.0.0/0",
            Self::V6 => "::/0",
        }
    }

    /// All addresses, to listen on.
    pub(super) fn unspecified(self) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Self::V6 => Ipv6Addr::UNSPECIFIED.into(),
        }
    }

    /// The zone of names of addresses.
    pub(super) fn reverse_zone(self) -> &'static str {
        match self {
            Self::V4 => "in-addr.arpa",
            Self::V6 => "ip6.arpa",
        }
    }

    /// What `ip addr add` needs at its end, so that the address can be used at once: without it, the kernel looks for another owner of
    /// an IPv6 address for a second.
    pub(super) fn at_once(self) -> &'static str {
        match self {
            Self::V4 => "",
            Self::V6 => " nodad",
        }
    }
}
