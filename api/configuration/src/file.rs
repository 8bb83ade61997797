//! The Go manager's configuration file.

use std::net::SocketAddr;

use serde_json::Value;

use super::flags::{address, interface, whole};
use super::program::Program::{self, Controller, Webhook};

/// Flags of a program: names and values.
type Flags = Vec<(&'static str, String)>;

/// Path of a field in the file; the programs that read it; and how its value becomes flags. The error says which type the value must
/// have.
type Field = (&'static str, &'static [Program], fn(&Value) -> Result<Flags, &'static str>);

/// The value of a field has the wrong type.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mismatch {
    pub field: String,
    pub value: String,
    pub expected: &'static str,
}

/// Content of a configuration file for one program.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Read {
    pub flags: Flags,
    /// Fields that neither program reads.
    pub ignored: Vec<String>,
}

/// Default port of the Go manager for admission.
const PORT: u16 = 9443;
/// Default directory of the Go manager for a mounted certificate.
const CERT_DIR: &str = "/tmp/k8s-webhook-server/serving-certs";

const FIELDS: [Field; 16] = [
    ("apiVersion", &[], |_| Ok(Vec::new())),
    ("kind", &[], |_| Ok(Vec::new())),
    ("leaderElection.leaderElect", &[Controller], |it| flag("leader-elect", it)),
    ("leaderElection.resourceName", &[Controller], |it| text("leader-elect-resource-name", it)),
    ("leaderElection.resourceNamespace", &[Controller], |it| text("leader-elect-resource-namespace", it)),
    ("leaderElection.leaseDuration", &[Controller], |it| text("leader-elect-lease-duration", it)),
    ("leaderElection.renewDeadline", &[Controller], |it| text("leader-elect-renew-deadline", it)),
    ("leaderElection.retryPeriod", &[Controller], |it| text("leader-elect-retry-period", it)),
    ("clientConnection.qps", &[Controller], |it| number("kube-api-qps", it)),
    ("clientConnection.burst", &[Controller], |it| number("kube-api-burst", it)),
    ("health.healthProbeBindAddress", &[Controller, Webhook], |it| {
        let flags = text("health-listen", it)?.into_iter();
        Ok(flags.filter_map(|(name, it)| Some((name, address(&it)?))).collect())
    }),
    ("featureGates", &[Controller, Webhook], gates),
    ("webhook", &[Webhook], listen),
    ("internalCertManagement.webhookServiceName", &[Webhook], |it| text("service-name", it)),
    ("internalCertManagement.enable", &[Webhook], |it| flag("", it).map(|_| Vec::new())),
    ("tls.minVersion", &[Webhook], |it| text("tls-min-version", it)),
];

/// Translates the file into flags. `gates` are the feature gates of the command line, which override those of the file.
pub(super) fn flags(program: Program, file: &Value, gates: Option<&str>) -> Result<Read, Mismatch> {
    let mut read = Read::default();
    for (path, _, translate) in FIELDS.iter().filter(|(_, readers, _)| readers.contains(&program)) {
        let Some(value) = at(file, path).filter(|value| !value.is_null()) else { continue };
        let mismatch = |expected| Mismatch { field: (*path).to_owned(), value: value.to_string(), expected };
        let flags = translate(value).map_err(mismatch)?;
        // A value that is valid in Go and means "off" or "none" has no flag.
        if flags.is_empty() && (value.is_number() || value.as_str().is_some_and(|text| !text.is_empty())) {
            read.ignored.push((*path).to_owned());
        }
        read.flags.extend(flags);
    }
    if program == Webhook {
        certificates(file, &mut read.flags);
    }
    read.ignored.extend(ignored("", file));
    let in_file = read.flags.iter().find(|(name, _)| *name == "feature-gates").map(|(_, gates)| gates.clone());
    let gates = gates.map(ToOwned::to_owned).or(in_file).unwrap_or_default();
    let minimum = read.flags.iter().position(|(name, _)| *name == "tls-min-version");
    if let Some(minimum) = minimum
        && (gates.contains("TLSOptions=false") || !matches!(&*read.flags[minimum].1, "VersionTLS12" | "VersionTLS13"))
    {
        read.flags.remove(minimum);
        read.ignored.push("tls.minVersion".to_owned());
    }
    Ok(read)
}

fn at<'a>(file: &'a Value, path: &str) -> Option<&'a Value> {
    path.split('.').try_fold(file, |value, key| value.get(key))
}

/// Paths of the fields that neither program reads.
fn ignored(path: &str, value: &Value) -> Vec<String> {
    let known = |path: &str| {
        let others = ["webhook.port", "webhook.host", "webhook.certDir"];
        FIELDS.iter().any(|(known, ..)| *known == path && *known != "webhook") || others.contains(&path)
    };
    match value {
        _ if known(path) || value.is_null() => Vec::new(),
        Value::Object(fields) if fields.values().any(|it| !it.is_null()) => {
            let child = |key: &str| if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") };
            fields.iter().flat_map(|(key, value)| ignored(&child(key), value)).collect()
        }
        Value::Object(_) => Vec::new(),
        _ => vec![path.to_owned()],
    }
}

/// Adds the flags for a mounted certificate if the file disables internal certificates.
fn certificates(file: &Value, flags: &mut Flags) {
    if at(file, "internalCertManagement.enable") == Some(&Value::Bool(false)) {
        let directory = at(file, "webhook.certDir").and_then(Value::as_str).filter(|it| !it.is_empty());
        flags.push(("cert-source", "mounted".to_owned()));
        flags.push(("cert-dir", directory.unwrap_or(CERT_DIR).to_owned()));
    }
}

fn flag(name: &'static str, value: &Value) -> Result<Flags, &'static str> {
    value.as_bool().map(|value| vec![(name, value.to_string())]).ok_or("true or false")
}

/// A text field. Go treats an empty text as absent.
fn text(name: &'static str, value: &Value) -> Result<Flags, &'static str> {
    let value = value.as_str().ok_or("a text")?;
    Ok(if value.is_empty() { Vec::new() } else { vec![(name, value.to_owned())] })
}

fn number(name: &'static str, value: &Value) -> Result<Flags, &'static str> {
    if !value.is_number() {
        return Err("a number");
    }
    Ok(whole(&value.to_string()).map(|number| (name, number)).into_iter().collect())
}

fn gates(value: &Value) -> Result<Flags, &'static str> {
    let gates = value.as_object().ok_or("a map of gates to true or false")?;
    let gate = |(name, value): (&String, &Value)| Some(format!("{name}={}", value.as_bool()?));
    let gates: Option<Vec<String>> = gates.iter().map(gate).collect();
    let gates = gates.ok_or("a map of gates to true or false")?;
    Ok(if gates.is_empty() { Vec::new() } else { vec![("feature-gates", gates.join(","))] })
}

fn listen(value: &Value) -> Result<Flags, &'static str> {
    let expected = "a section with a host, a port number and a certDir";
    let field = |name: &str| value.get(name).filter(|field| !field.is_null());
    let host = field("host").map(|host| host.as_str().ok_or(expected)).transpose()?;
    let port = field("port").map(|port| port.as_u64().and_then(|it| u16::try_from(it).ok()).ok_or(expected));
    let port = port.transpose()?;
    if host.is_none_or(str::is_empty) && port.is_none() {
        return Ok(Vec::new());
    }
    let host = interface(host.unwrap_or_default()).ok_or("a section whose host is an IP address")?;
    Ok(vec![("listen", SocketAddr::new(host, port.unwrap_or(PORT)).to_string())])
}
