//! The values of single variables.

use std::collections::BTreeSet;
use std::num::NonZeroU16;
use std::str::FromStr;
use std::time::Duration;

use http::Uri;
use jobset_protocol::agent::exit_codes;
use rustls_pki_types::ServerName;

/// Whether the value is a valid name of a namespace, Pod or JobSet. Such a name is safe in the path of a request.
pub(super) fn is_object_name(value: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    value.len() <= 253 && value.bytes().all(inner) && !value.starts_with(['.', '-']) && !value.ends_with(['.', '-'])
}

/// Exit codes from 1 to 255 and ranges of them, separated by commas ([`exit_codes`]). Admission reads them with the same
/// function.
pub(super) struct ExitCodes(pub BTreeSet<u8>);

impl FromStr for ExitCodes {
    type Err = ();

    fn from_str(value: &str) -> Result<Self, ()> {
        exit_codes(value).map(Self).ok_or(())
    }
}

/// A duration in seconds, at most one day. Fractions are allowed.
pub(super) struct Seconds(pub Duration);

impl FromStr for Seconds {
    type Err = ();

    fn from_str(value: &str) -> Result<Self, ()> {
        let seconds: f64 = value.parse().map_err(|_| ())?;
        if !(0.0..=86_400.0).contains(&seconds) {
            return Err(());
        }
        Duration::try_from_secs_f64(seconds).map(Self).map_err(|_| ())
    }
}

/// A URL with the scheme http and a host of the Pod itself.
pub(super) struct LocalUrl(pub Uri);

impl FromStr for LocalUrl {
    type Err = ();

    fn from_str(value: &str) -> Result<Self, ()> {
        let uri: Uri = value.parse().map_err(|_| ())?;
        let is_local = matches!(uri.host(), Some("localhost" | "127.0.0.1" | "[::1]"));
        if is_local && uri.scheme_str() == Some("http") { Ok(Self(uri)) } else { Err(()) }
    }
}

/// The address of relays: `HOST:PORT`, or `NAME=HOST:PORT` if their certificate has another name than the host.
pub(super) struct RelayAddress {
    pub address: String,
    pub name: ServerName<'static>,
    pub leader: String,
}

impl FromStr for RelayAddress {
    type Err = ();

    fn from_str(value: &str) -> Result<Self, ()> {
        let (name, address) = value.split_once('=').map_or((None, value), |(name, address)| (Some(name), address));
        let (host, port) = address.rsplit_once(':').ok_or(())?;
        port.parse::<NonZeroU16>().map_err(|_| ())?;
        let name = name.unwrap_or(host);
        let leader = jobset_stream::leader_name(name).ok_or(())?;
        let name = ServerName::try_from(name.to_owned()).map_err(|_| ())?;
        if host.is_empty() || !matches!(name, ServerName::DnsName(_)) {
            return Err(());
        }
        Ok(Self { address: address.to_owned(), name, leader })
    }
}
