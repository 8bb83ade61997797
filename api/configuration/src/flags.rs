//! The Go manager's flags.

use super::{Program, Translated};

/// What becomes of a flag of the Go manager.
#[derive(Clone, Copy)]
enum Flag {
    /// It has this name here, and the value is written as this.
    Is(&'static str, fn(&str) -> String),
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
    ("leader-elect", Flag::Is("leader-elect", same), true),
    ("kube-api-burst", Flag::Is("kube-api-burst", same), false),
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
            (Flag::Is(name, write), Some(value)) => translated.arguments.push(format!("--{name}={}", write(&value))),
            (Flag::Is(name, _), None) => translated.arguments.push(format!("--{name}")),
            (Flag::OfTheOther, _) => {}
            (Flag::Ignored, _) => translated.ignored.push(format!("--{found}")),
        }
    }
    translated
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

fn same(value: &str) -> String {
    value.to_owned()
}

/// Go leaves out the host of an address for every interface.
pub(super) fn address(value: &str) -> String {
    if value.starts_with(':') { format!("0.0.0.0{value}") } else { value.to_owned() }
}

/// Go writes requests per second as a fraction; a part of a request counts as none, but never less than one in all.
pub(super) fn whole(value: &str) -> String {
    match value.parse::<f64>() {
        Ok(number) if number.is_finite() && number >= 0.0 => format!("{:.0}", number.floor().max(1.0)),
        _ => value.to_owned(),
    }
}

fn log_format(value: &str) -> String {
    if value == "json" { "json" } else { "text" }.to_owned()
}
