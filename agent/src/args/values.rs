//! The values of single variables; `None` for an invalid one.

use std::num::{NonZeroU8, NonZeroU16};
use std::path::PathBuf;
use std::time::Duration;

use http::Uri;
use jobset_protocol::agent::stall_time;
use rustls_pki_types::ServerName;

use super::Relay;
use crate::probe::HEALTH_PATH;
use crate::progress::StallAfter;

/// Whether the value is a valid name of a namespace, Pod or JobSet. Such a name is safe in the path of a request.
pub(super) fn is_object_name(value: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
    value.len() <= 253 && value.bytes().all(inner) && !value.starts_with(['.', '-']) && !value.ends_with(['.', '-'])
}

pub(super) fn port(value: &str) -> Option<u16> {
    value.parse().ok().map(NonZeroU16::get)
}

pub(super) fn restart_exit_code(value: &str) -> Option<u8> {
    value.parse().ok().map(NonZeroU8::get)
}

/// A duration in seconds, at most one day. Fractions are allowed.
pub(super) fn seconds(value: &str) -> Option<Duration> {
    let seconds: f64 = value.parse().ok().filter(|seconds| (0.0..=86_400.0).contains(seconds))?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// How long a worker may make no progress: `auto`, or a time.
pub(super) fn stall_after(value: &str) -> Option<StallAfter> {
    if value == "auto" { Some(StallAfter::Auto) } else { stall_time(value).map(StallAfter::After) }
}

/// Path of the startup probe: it begins with a slash, has no query, and is not the path of the health endpoint.
pub(super) fn barrier_path(value: &str) -> Option<String> {
    let plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#');
    (value.starts_with('/') && value.bytes().all(plain) && value != HEALTH_PATH).then(|| value.to_owned())
}

/// A URL with the scheme http and a host of the Pod itself.
pub(super) fn local_url(value: &str) -> Option<Uri> {
    let uri: Uri = value.parse().ok()?;
    let is_local = matches!(uri.host(), Some("localhost" | "127.0.0.1" | "[::1]"));
    (is_local && uri.scheme_str() == Some("http")).then_some(uri)
}

/// The relays at an address: `HOST:PORT`, or `NAME=HOST:PORT` if their certificate has another name than the host. A dot ends a
/// full name, and no name in a certificate.
pub(super) fn relay(value: &str, folder: PathBuf) -> Option<Relay> {
    let (name, address) = value.split_once('=').map_or((None, value), |(name, address)| (Some(name), address));
    let (host, number) = address.rsplit_once(':').filter(|(host, _)| !host.is_empty())?;
    port(number)?;
    let name = name.unwrap_or(host);
    let name = name.strip_suffix('.').unwrap_or(name);
    let leader = jobset_stream::leader_name(name)?;
    let name = ServerName::try_from(name.to_owned()).ok().filter(|name| matches!(name, ServerName::DnsName(_)))?;
    Some(Relay { address: address.to_owned(), name, leader, folder })
}
