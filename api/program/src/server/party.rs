//! Whom places are counted for.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

/// Bits of an IPv6 address that its owner cannot choose: a host may have all addresses of a /64.
const OWNED_BITS: u128 = (1 << 64) - 1;

/// A network, and in it a namespace. Networks are compared first: a client may name any namespace, and has one address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Party {
    /// An IPv4 address, or the first address of an IPv6 /64.
    pub network: IpAddr,
    /// Empty where no namespace is known.
    pub namespace: Arc<str>,
}

impl Party {
    /// The party of a client at this address. An IPv4 address that a dual-stack socket has mapped to IPv6 is that IPv4 address.
    pub fn of(address: IpAddr) -> Self {
        let network = match address.to_canonical() {
            IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !OWNED_BITS).into(),
            address @ IpAddr::V4(_) => address,
        };
        Self { network, namespace: Arc::default() }
    }

    #[must_use]
    pub fn with_namespace(&self, namespace: impl Into<Arc<str>>) -> Self {
        Self { network: self.network, namespace: namespace.into() }
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::addresses_of_one_slash_64("2001:db8:0:1::1", "2001:db8:0:1:ffff:ffff:ffff:ffff", true)]
    #[case::two_slash_64s("2001:db8:0:1::1", "2001:db8:0:2::1", false)]
    #[case::two_ipv4_addresses("10.0.0.1", "10.0.0.2", false)]
    #[case::two_mapped_ipv4_addresses("::ffff:10.0.0.1", "::ffff:10.0.0.2", false)]
    #[case::ipv4_address_and_itself_mapped("10.0.0.1", "::ffff:10.0.0.1", true)]
    fn party_of_address_is_its_ipv4_address_or_ipv6_network(
        #[case] one: &str,
        #[case] other: &str,
        #[case] same: bool,
    ) {
        let [one, other] = [one, other].map(|address| Party::of(address.parse().unwrap()));
        assert_eq!(one == other, same, "{one:?} {other:?}");
    }
}
