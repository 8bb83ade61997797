//! The Go manager's flags.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::program::{Program, Translated};

/// What becomes of a flag of the Go manager.
#[derive(Clone, Copy)]
enum Flag {
    /// It has this name here, and the value is written as this; without a text it has no meaning here.
    Is(&'static str, fn(&str) -> Option<String>),
    /// The other program reads it alone.
    OfTheOther,
    /// Neither program has it.
    Ignored,
}

/// The flags of the Go manager, and whether they may stand without a value.
const FLAGS: [(&str, Flag, bool); 17] = [
    ("health-probe-bind-address", Flag::Is("health-listen", address), false),
    ("kube-api-qps", Flag::Is("kube-api-qps", whole), false),
    ("zap-encoder", Flag::Is("log-format", log_format), false),
    ("leader-election-namespace", Flag::Is("leader-elect-resource-namespace", same), false),
    ("leader-election-lease-duration", Flag::Is("leader-elect-lease-duration", same), false),
    ("leader-election-renew-deadline", Flag::Is("leader-elect-renew-deadline", same), false),
    ("leader-election-retry-period", Flag::Is("leader-elect-retry-period", same), false),
    // The Go manager serves HTTPS there, with authentication: plain HTTP must not appear in its place.
    ("metrics-bind-address", Flag::Ignored, false),
    ("kubeconfig", Flag::Ignored, false),
    ("zap-devel", Flag::Ignored, true),
    ("zap-log-level", Flag::Ignored, false),
    ("zap-stacktrace-level", Flag::Ignored, false),
    ("zap-time-encoding", Flag::Ignored, false),
    ("leader-elect", Flag::Is("leader-elect", truth), true),
    ("kube-api-burst", Flag::Is("kube-api-burst", whole), false),
    ("config", Flag::Is("config", same), false),
    ("feature-gates", Flag::Is("feature-gates", same), false),
];

fn find(program: Program, name: &str) -> Option<(Flag, bool)> {
    let (_, flag, alone) = FLAGS.iter().find(|(known, ..)| *known == name)?;
    // Only the controller elects a leader and limits its requests.
    let of_controller = name.starts_with("leader-elect") || name.starts_with("kube-api");
    let flag = if program == Program::Webhook && of_controller { Flag::OfTheOther } else { *flag };
    Some((flag, *alone))
}

/// Rewrites the flags of the Go manager. Other arguments stay as they are, for the program to judge.
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
            (Flag::Is(name, write), Some(value)) => match write(&value) {
                Some(value) => set(&mut translated.arguments, name, &format!("--{name}={value}")),
                None => translated.ignored.push(format!("--{found}={value}")),
            },
            (Flag::Is(name, _), None) => set(&mut translated.arguments, name, &format!("--{name}")),
            (Flag::OfTheOther, _) => {}
            (Flag::Ignored, _) => translated.ignored.push(format!("--{found}")),
        }
    }
    translated
}

/// Adds a flag. The last one counts, as in Go.
fn set(arguments: &mut Vec<String>, flag: &str, argument: &str) {
    arguments.retain(|other| name(other) != Some(flag));
    arguments.push(argument.to_owned());
}

/// Name of the flag that an argument is. Go takes one dash or two.
pub(super) fn name(argument: &str) -> Option<&str> {
    let name = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'))?;
    let name = name.split_once('=').map_or(name, |(name, _)| name);
    (name.len() > 1).then_some(name)
}

/// Value of a flag that was rewritten.
pub(super) fn value(arguments: &[String], name: &str) -> Option<String> {
    let prefix = format!("--{name}=");
    arguments.iter().rev().find_map(|argument| argument.strip_prefix(&prefix)).map(ToOwned::to_owned)
}

// The table needs one shape for all.
#[allow(clippy::unnecessary_wraps)]
fn same(value: &str) -> Option<String> {
    Some(value.to_owned())
}

/// An address to listen on. Go leaves out the host for every interface, takes host names, and `0` for no listener at all.
pub(super) fn address(value: &str) -> Option<String> {
    let (host, port) = value.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    Some(SocketAddr::new(interface(host)?, port.parse().ok()?).to_string())
}

/// The interface that a host stands for.
pub(super) fn interface(host: &str) -> Option<IpAddr> {
    match host {
        "" => Some(Ipv4Addr::UNSPECIFIED.into()),
        "localhost" => Some(Ipv4Addr::LOCALHOST.into()),
        host => host.parse().ok(),
    }
}

/// Requests per second, which Go writes as a fraction: a part of a request counts as none, but never less than one in all.
/// A negative number is no limit there.
pub(super) fn whole(value: &str) -> Option<String> {
    let number: f64 = value.parse().ok()?;
    (number.is_finite() && number >= 0.0).then(|| format!("{:.0}", number.floor().clamp(1.0, f64::from(u32::MAX))))
}

/// A truth value in one of the forms that Go takes.
fn truth(value: &str) -> Option<String> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some("true".to_owned()),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some("false".to_owned()),
        _ => None,
    }
}

// The table needs one shape for all.
#[allow(clippy::unnecessary_wraps)]
fn log_format(value: &str) -> Option<String> {
    Some(if value == "json" { "json" } else { "text" }.to_owned())
}
