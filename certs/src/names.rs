//! The names that a serving certificate is valid for.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

use rustls_pki_types::{DnsName, ServerName};

use crate::Error;

/// DNS names and IP addresses of the admission service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    dns: BTreeSet<String>,
    ips: BTreeSet<IpAddr>,
}

impl Names {
    /// The names of a Service: `<service>.<namespace>.svc`, by which the API server calls it, and the fully qualified
    /// `<service>.<namespace>.svc.cluster.local`.
    pub fn of_service(service: &str, namespace: &str) -> Result<Self, Error> {
        Self::of_host(service, namespace)?.with(&format!("{service}.{namespace}.svc.cluster.local"))
    }

    /// The one name of a Service that the API server calls it by, or of a client: `<name>.<namespace>.svc`.
    pub fn of_host(service: &str, namespace: &str) -> Result<Self, Error> {
        Self::default().with(&format!("{service}.{namespace}.svc"))
    }

    /// These names and one more, a DNS name or an IP address.
    pub fn with(mut self, name: &str) -> Result<Self, Error> {
        if let Ok(ip) = name.parse() {
            self.ips.insert(ip);
        } else if DnsName::try_from(name).is_ok() {
            self.dns.insert(name.to_ascii_lowercase());
        } else {
            return Err(Error::InvalidName(name.to_owned()));
        }
        Ok(self)
    }

    /// The names of this that the other lacks.
    #[must_use]
    pub fn missing_from(&self, other: &Self) -> Self {
        Self { dns: &self.dns - &other.dns, ips: &self.ips - &other.ips }
    }

    pub fn is_empty(&self) -> bool {
        self.dns.is_empty() && self.ips.is_empty()
    }

    pub fn dns(&self) -> impl Iterator<Item = &str> {
        self.dns.iter().map(String::as_str)
    }

    pub fn ips(&self) -> impl Iterator<Item = IpAddr> {
        self.ips.iter().copied()
    }

    /// Those of them for which, as a TLS client names a server, this does not hold.
    pub(crate) fn without(&self, holds: impl Fn(&ServerName<'_>) -> bool) -> Self {
        let dns = |name: &&String| !ServerName::try_from(name.as_str()).is_ok_and(|name| holds(&name));
        let ip = |ip: &IpAddr| !holds(&ServerName::IpAddress((*ip).into()));
        Self { dns: self.dns.iter().filter(dns).cloned().collect(), ips: self.ips.iter().copied().filter(ip).collect() }
    }

    pub(crate) fn from_parts(dns: BTreeSet<String>, ips: BTreeSet<IpAddr>) -> Self {
        Self { dns, ips }
    }
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.dns.iter().cloned().chain(self.ips.iter().map(ToString::to_string));
        f.write_str(&names.collect::<Vec<_>>().join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_has_its_short_and_its_qualified_name() {
        let names = Names::of_service("hook", "ns").unwrap();
        assert_eq!(names.to_string(), "hook.ns.svc, hook.ns.svc.cluster.local");
    }

    #[test]
    fn extra_name_is_ip_address_or_dns_name() {
        let names = Names::default().with("127.0.0.1").unwrap().with("::1").unwrap().with("Host.Example").unwrap();
        assert_eq!(names.to_string(), "host.example, 127.0.0.1, ::1");
        for bad in ["", "a b", "-a", "https://a", "a:443"] {
            assert!(Names::default().with(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn missing_names_are_those_the_other_lacks() {
        let wanted = Names::default().with("a").unwrap().with("127.0.0.1").unwrap();
        let present = Names::default().with("a").unwrap().with("b").unwrap();
        assert_eq!(wanted.missing_from(&present).to_string(), "127.0.0.1");
        assert!(wanted.missing_from(&wanted).is_empty());
    }
}
