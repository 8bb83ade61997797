//! The command-line flags of the Go manager.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use super::program::{Program, Translated};

/// How a flag of the Go manager is translated.
#[derive(Clone, Copy)]
enum Translation {
    /// To the flag with this name. The function translates the value; `None` means that the value has no meaning here.
    To(&'static str, fn(&str) -> Option<String>),
    /// Dropped silently: only the other program has the flag.
    OtherProgram,
    /// Dropped with a warning: neither program has the flag.
    Ignored,
}

/// The flags of the Go manager, and whether their value is optional.
const FLAGS: [(&str, Translation, bool); 17] = [
    ("health-probe-bind-address", Translation::To("health-listen", address), false),
    ("kube-api-qps", Translation::To("kube-api-qps", whole), false),
    ("zap-encoder", Translation::To("log-format", log_format), false),
    ("leader-election-namespace", Translation::To("leader-elect-resource-namespace", same), false),
    ("leader-election-lease-duration", Translation::To("leader-elect-lease-duration", same), false),
    ("leader-election-renew-deadline", Translation::To("leader-elect-renew-deadline", same), false),
    ("leader-election-retry-period", Translation::To("leader-elect-retry-period", same), false),
    // The Go manager serves HTTPS with authentication at this address. Plain HTTP must not replace it.
    ("metrics-bind-address", Translation::Ignored, false),
    ("kubeconfig", Translation::Ignored, false),
    ("zap-devel", Translation::Ignored, true),
    ("zap-log-level", Translation::Ignored, false),
    ("zap-stacktrace-level", Translation::Ignored, false),
    ("zap-time-encoding", Translation::Ignored, false),
    ("leader-elect", Translation::To("leader-elect", truth), true),
    ("kube-api-burst", Translation::To("kube-api-burst", whole), false),
    ("config", Translation::To("config", same), false),
    ("feature-gates", Translation::To("feature-gates", same), false),
];

fn find(program: Program, name: &str) -> Option<(Translation, bool)> {
    let (_, flag, alone) = FLAGS.iter().find(|(known, ..)| *known == name)?;
    // Only the controller has leader election and a client-side rate limit.
    let of_controller = name.starts_with("leader-elect") || name.starts_with("kube-api");
    let flag = if program == Program::Webhook && of_controller { Translation::OtherProgram } else { *flag };
    Some((flag, *alone))
}

/// Translates the flags of the Go manager. Other arguments do not change.
pub(super) fn translate(program: Program, arguments: Vec<String>) -> Translated {
    let mut translated = Translated::default();
    let mut rest = arguments.into_iter();
    translated.arguments.extend(rest.next());
    while let Some(argument) = rest.next() {
        let Some((flag, alone, found)) = name(&argument).and_then(|found| {
            let (flag, alone) = find(program, found)?;
            Some((flag, alone, found.to_owned()))
        }) else {
            translated.arguments.push(argument);
            continue;
        };
        let value = match argument.split_once('=') {
            Some((_, value)) => Some(value.to_owned()),
            None if alone => None,
            None => rest.next(),
        };
        match (flag, value) {
            (Translation::To(name, write), Some(value)) => match write(&value) {
                Some(value) => set(&mut translated.arguments, name, &format!("--{name}={value}")),
                None => translated.ignored.push(format!("--{found}={value}")),
            },
            (Translation::To(name, _), None) => set(&mut translated.arguments, name, &format!("--{name}")),
            (Translation::OtherProgram, _) => {}
            (Translation::Ignored, _) => translated.ignored.push(format!("--{found}")),
        }
    }
    translated
}

/// Adds a flag and removes earlier ones with the same name. As in Go, the last one counts.
fn set(arguments: &mut Vec<String>, flag: &str, argument: &str) {
    arguments.retain(|other| name(other) != Some(flag));
    arguments.push(argument.to_owned());
}

/// Name of the flag of an argument. Go accepts one dash or two.
pub(super) fn name(argument: &str) -> Option<&str> {
    let name = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'))?;
    let name = name.split_once('=').map_or(name, |(name, _)| name);
    (name.len() > 1).then_some(name)
}

/// Value of a translated flag.
pub(super) fn value(arguments: &[String], name: &str) -> Option<String> {
    let prefix = format!("--{name}=");
    arguments.iter().rev().find_map(|argument| argument.strip_prefix(&prefix)).map(ToOwned::to_owned)
}

// All functions in the table need the same signature.
#[allow(clippy::unnecessary_wraps)]
fn same(value: &str) -> Option<String> {
    Some(value.to_owned())
}

/// An address to listen on. In Go, an absent host means all interfaces, host names are allowed, and `0` means no
/// listener.
pub(super) fn address(value: &str) -> Option<String> {
    let (host, port) = value.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    Some(SocketAddr::new(interface(host)?, port.parse().ok()?).to_string())
}

/// The IP address of a host; an absent one is all addresses, of IPv6 and IPv4. `None` for a host name other than `localhost`.
pub(super) fn interface(host: &str) -> Option<IpAddr> {
    match host {
        "" => Some(Ipv6Addr::UNSPECIFIED.into()),
        "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
        host => host.parse().ok(),
    }
}

/// Requests per second, rounded down to a whole number of at least 1. Go accepts fractions. A negative number, which
/// means no limit in Go, gives `None`.
pub(super) fn whole(value: &str) -> Option<String> {
    let number: f64 = value.parse().ok()?;
    (number.is_finite() && number >= 0.0).then(|| format!("{:.0}", number.floor().clamp(1.0, f64::from(u32::MAX))))
}

/// A boolean in one of the forms that Go accepts.
fn truth(value: &str) -> Option<String> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some("true".to_owned()),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some("false".to_owned()),
        _ => None,
    }
}

// All functions in the table need the same signature.
#[allow(clippy::unnecessary_wraps)]
fn log_format(value: &str) -> Option<String> {
    Some(if value == "json" { "json" } else { "text" }.to_owned())
}
