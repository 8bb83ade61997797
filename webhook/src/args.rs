//! The command line.

use std::net::{Ipv6Addr, SocketAddr};
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args as ArgGroup, Parser, ValueEnum};
use jobset_api::gates::Gates;
use jobset_api::injection::{self, AgentResources, Amounts};
use jobset_configuration::Program;
use jobset_program::duration::duration;
use jobset_program::listener::any;
use jobset_program::log::LogFormat;
use jobset_program::{Arguments, arguments};

use crate::limits::Limits;
use crate::pod::lookup::LONGEST_WAIT;
use crate::tls::MinVersion;

/// The JobSet admission service: defaulting and validation of JobSets over HTTPS.
#[derive(Clone, Debug, Parser)]
#[command(name = "jobset-webhook", version, args_override_self = true)]
pub struct Args {
    #[command(flatten)]
    pub serving: ServingArgs,
    #[command(flatten)]
    pub limits: Limits,
    #[command(flatten)]
    pub certificates: CertificateArgs,
    #[command(flatten)]
    pub placement: PlacementArgs,
    #[command(flatten)]
    pub features: FeatureArgs,
    #[command(flatten)]
    pub log: LogArgs,

    /// Configuration file of the Go JobSet (config.jobset.x-k8s.io/v1alpha1). Flags win over it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Instead of serving, check that admission works in a namespace, and exit: the API server must set defaults in a valid
    /// JobSet and deny an invalid one. Both are dry runs, for which the program needs the permission to create JobSets there.
    #[arg(long, value_name = "NAMESPACE", value_parser = NonEmptyStringValueParser::new())]
    pub check_admission: Option<String>,

    /// Flags and fields of the Go JobSet's manager that were given and have no meaning here.
    #[arg(skip)]
    pub ignored: Vec<String>,
}

impl Args {
    /// Reads the command line, in which the Go JobSet's manager's flags and configuration file are understood, too. Ends
    /// the program with a help text or an error of usage, as [`Parser::parse`] does.
    pub fn of_command_line() -> Result<Self, jobset_configuration::Error> {
        let Arguments { own, ignored } = arguments::<Self>(Program::Webhook)?;
        Ok(Self { ignored, ..own })
    }
}

/// Where and how to serve.
#[derive(Clone, Debug, ArgGroup)]
#[command(next_help_heading = "Serving")]
pub struct ServingArgs {
    /// Address of the admission service (HTTPS).
    #[arg(long, value_name = "IP:PORT", default_value_t = any(9443))]
    pub listen: SocketAddr,

    /// Address of /healthz and /readyz (HTTP).
    #[arg(long, value_name = "IP:PORT", default_value_t = any(8081))]
    pub health_listen: SocketAddr,

    /// Address of /metrics (HTTP).
    #[arg(long, value_name = "IP:PORT", default_value_t = any(8080))]
    pub metrics_listen: SocketAddr,

    /// Oldest version of TLS that is spoken.
    #[arg(long, value_name = "VERSION", value_enum, default_value_t = MinVersion::Tls12)]
    pub tls_min_version: MinVersion,

    /// How long to accept connections after SIGTERM. The program is unready then, so the Service sends it no more
    /// connections, and it tells each client to close its own.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    pub drain_delay: Duration,

    /// How long requests in flight have to finish after that.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub drain_timeout: Duration,
}

/// The certificate, and who has to trust it.
#[derive(Clone, Debug, ArgGroup)]
#[command(next_help_heading = "Certificates")]
pub struct CertificateArgs {
    /// Namespace that the service runs in.
    #[arg(long, env = "POD_NAMESPACE")]
    pub namespace: String,

    /// Service by which the API server reaches this one.
    #[arg(long, value_name = "NAME", default_value = "jobset-webhook-service")]
    pub service_name: String,

    /// Where the certificate comes from.
    #[arg(long = "cert-source", value_name = "SOURCE", value_enum, default_value_t = CertificateSource::Issued)]
    pub source: CertificateSource,

    /// With --cert-source=self, the Secret with the certificate, which jobset-certs fills and renews.
    #[arg(long, value_name = "NAME", default_value = "jobset-webhook-leaf")]
    pub leaf_secret_name: String,

    /// With --cert-source=mounted, the directory of tls.crt, tls.key and, if it is there, ca.crt, in PEM, as cert-manager
    /// writes them into a Secret and the kubelet mounts it. Looked at once a second.
    #[arg(long = "cert-dir", value_name = "DIRECTORY", required_if_eq("source", "mounted"))]
    pub directory: Option<PathBuf>,

    /// With --cert-source=mounted, how long API servers get to see a changed caBundle, before a certificate that needs it
    /// replaces a good one.
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = duration)]
    pub ca_bundle_settle: Duration,

    /// With --cert-source=mounted, the ValidatingWebhookConfiguration whose caBundle has to verify the certificate.
    #[arg(long, value_name = "NAME", default_value = "jobset-validating-webhook-configuration")]
    pub validating_webhook_configuration: String,

    /// With --cert-source=mounted, the MutatingWebhookConfiguration whose caBundle has to verify the certificate.
    #[arg(long, value_name = "NAME", default_value = "jobset-mutating-webhook-configuration")]
    pub mutating_webhook_configuration: String,

    /// One more DNS name or IP address that the certificate must be valid for, as for running outside of the cluster. May be
    /// given several times.
    #[arg(long = "extra-dns-name", value_name = "NAME")]
    pub extra_dns_names: Vec<String>,
}

/// How Pods are placed exclusively.
#[derive(Clone, Debug, ArgGroup)]
#[command(next_help_heading = "Placement")]
pub struct PlacementArgs {
    /// How long a Pod that follows its leader waits for the scheduler to decide about it, at most 1.5s. It saves refused
    /// requests, and holds a worker of the Job controller meanwhile; 0s refuses at once.
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = leader_wait)]
    pub leader_wait: Duration,

    /// Node labels whose values may be topology domains of exclusive placement, separated by commas. Empty: any label but those
    /// that all nodes of a kind share. JobSets that exist keep theirs.
    #[arg(long, value_name = "KEY,...", value_delimiter = ',')]
    pub exclusive_topology_keys: Vec<String>,
}

/// Where the certificate comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CertificateSource {
    /// Issued by jobset-certs, which has a CA of its own and puts it into the caBundles.
    #[value(name = "self")]
    Issued,
    /// Issued by others, as cert-manager, who also fill the caBundles.
    Mounted,
}

/// What may be asked for.
#[derive(Clone, Debug, ArgGroup)]
#[command(next_help_heading = "Features")]
pub struct FeatureArgs {
    /// Feature gates, separated by commas. The controller must have the same.
    #[arg(long = "feature-gates", value_name = "GATE=BOOL", default_value_t)]
    pub gates: Gates,

    /// Image of the agent that is injected into the Pods of JobSets that ask for it. Without it, they are refused.
    #[arg(long, env = "AGENT_IMAGE", value_name = "IMAGE", value_parser = NonEmptyStringValueParser::new())]
    pub agent_image: Option<String>,

    /// Pull policy of that image. Without it, Kubernetes decides by the image's tag.
    #[arg(long, value_name = "POLICY", value_parser = ["Always", "IfNotPresent", "Never"])]
    pub agent_image_pull_policy: Option<String>,

    /// Secret with which that image can be pulled, of the namespace of each JobSet. It is added to the imagePullSecrets of the
    /// Pods. May be given several times. For a Pod that names a Secret, Kubernetes does not add those of its ServiceAccount.
    #[arg(long = "agent-image-pull-secret", value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub agent_image_pull_secrets: Vec<String>,

    /// What the container of an injected agent requests, if the manifest does not say it. Other than cpu and memory, only
    /// ephemeral-storage. Empty: nothing. With a supervisor, this is the container that installs it: the agent itself runs in that
    /// of the worker.
    #[arg(long, value_name = "NAME=QUANTITY,...", default_value_t = AgentResources::default().requests)]
    pub agent_requests: Amounts,

    /// The limits of that container. A ResourceQuota of limits refuses Pods of which a container has none. In a Pod whose other
    /// containers have limits equal to their requests, it requests its limits.
    #[arg(long, value_name = "NAME=QUANTITY,...", default_value_t = AgentResources::default().limits)]
    pub agent_limits: Amounts,

    /// Address of the relays' Service, such as jobset-relay.jobset-system.svc:9443. Injected agents get it, and a token for
    /// the relays. Without this flag, they get neither. JobSets that exist keep what they have. The controller needs the
    /// feature gate AgentStream.
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    pub agent_relay: Option<String>,
}

impl FeatureArgs {
    pub(crate) fn agent_resources(&self) -> AgentResources {
        AgentResources { requests: self.agent_requests.clone(), limits: self.agent_limits.clone() }
    }

    /// How the agent is injected.
    pub(crate) fn injection(&self) -> injection::Settings {
        injection::Settings {
            agent_image: self.agent_image.clone(),
            pull_policy: self.agent_image_pull_policy.clone(),
            pull_secrets: self.agent_image_pull_secrets.clone(),
            agent_resources: self.agent_resources(),
            relay: self.agent_relay.clone(),
            stalls: None,
        }
    }
}

/// What is logged. Which messages are is chosen by the environment variable `RUST_LOG` (default `info`).
#[derive(Clone, Debug, ArgGroup)]
#[command(next_help_heading = "Log")]
pub struct LogArgs {
    /// Format of the log on standard error.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

fn leader_wait(text: &str) -> Result<Duration, String> {
    let wait = duration(text)?;
    if wait > LONGEST_WAIT {
        return Err(format!("must be at most {LONGEST_WAIT:?}: the API server waits 5s for the whole answer"));
    }
    Ok(wait)
}

/// The text, if it is a DNS name or an IP address with a port. An address of IPv6 stands in brackets.
fn host_and_port(text: &str) -> Result<String, &'static str> {
    let is_name = |host: &str| {
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'))
    };
    let is_ipv6 = |host: &str| {
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
        address.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
    };
    let (host, port) = text.rsplit_once(':').ok_or("must be of the form HOST:PORT")?;
    if !is_name(host) && !is_ipv6(host) {
        return Err("the host must be a DNS name or an IP address (IPv6 in brackets)");
    }
    if !port.bytes().all(|byte| byte.is_ascii_digit()) || port.parse::<NonZeroU16>().is_err() {
        return Err("the port must be a number from 1 to 65535");
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use jobset_api::JobSetLimits;

    use super::*;

    fn parse(arguments: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from(["jobset-webhook", "--namespace", "ns"].iter().chain(arguments))
    }

    #[test]
    fn the_defaults_are_those_of_the_deployment() {
        let args = parse(&[]).unwrap();
        assert_eq!(args.serving.listen.to_string(), "[::]:9443");
        assert_eq!(args.serving.health_listen.to_string(), "[::]:8081");
        assert_eq!(args.serving.metrics_listen.to_string(), "[::]:8080");
        assert_eq!(args.serving.drain_delay, Duration::from_secs(5));
        assert_eq!(args.certificates.leaf_secret_name, "jobset-webhook-leaf");
        assert!(args.features.gates.in_place_restart);
        assert_eq!(args.limits.of_jobset(), JobSetLimits { jobs: 20_000, pods: 150_000, memory: 8 << 20 });
    }

    #[test]
    fn flag_that_the_chart_sets_can_be_set_again() {
        let args = parse(&["--listen=[::]:9443", "--listen=10.0.0.1:9443"]).unwrap();
        assert_eq!(args.serving.listen.to_string(), "10.0.0.1:9443");
    }

    #[test]
    fn feature_gate_off_is_read_and_unknown_is_named() {
        assert!(!parse(&["--feature-gates=InPlaceRestart=false"]).unwrap().features.gates.in_place_restart);
        let error = parse(&["--feature-gates=Magic=true"]).unwrap_err().to_string();
        assert!(error.contains("unknown feature gate \"Magic\""), "{error}");
    }

    #[test]
    fn a_bad_duration_is_named() {
        let cases = [
            ("--drain-delay", "soon", "such as 5s"),
            ("--drain-delay", "-5s", "negative"),
            ("--handshake-timeout", "0s", "must not be zero"),
            ("--ca-bundle-settle", "3", "such as 5s"),
        ];
        for (flag, value, part) in cases {
            let error = parse(&[&format!("{flag}={value}")]).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains(flag), "{error}");
        }
    }

    #[test]
    fn leader_wait_above_limit_is_rejected() {
        assert_eq!(parse(&[]).unwrap().placement.leader_wait, Duration::from_secs(1));
        assert_eq!(parse(&["--leader-wait=0s"]).unwrap().placement.leader_wait, Duration::ZERO);
        let error = parse(&["--leader-wait=3s"]).unwrap_err().to_string();
        assert!(error.contains("must be at most 1.5s"), "{error}");
    }

    #[test]
    fn number_out_of_range_is_named_with_range() {
        for (argument, range) in [("--max-connections=0", "1.."), ("--max-body-memory=4", "8..=2048")] {
            let error = parse(&[argument]).unwrap_err().to_string();
            assert!(error.contains(range) && error.contains(argument.split('=').next().unwrap()), "{error}");
        }
    }

    #[test]
    fn versions_of_tls_have_the_names_of_kubernetes() {
        assert_eq!(parse(&[]).unwrap().serving.tls_min_version, MinVersion::Tls12);
        assert_eq!(parse(&["--tls-min-version=VersionTLS13"]).unwrap().serving.tls_min_version, MinVersion::Tls13);
        let error = parse(&["--tls-min-version=VersionTLS11"]).unwrap_err().to_string();
        assert!(error.contains("--tls-min-version") && error.contains("VersionTLS12, VersionTLS13"), "{error}");
    }

    #[test]
    fn agent_relay_with_host_and_port_reaches_injection() {
        assert_eq!(parse(&[]).unwrap().features.injection().relay, None);
        for address in ["jobset-relay.jobset-system.svc:9443", "10.0.0.1:1", "[fd00::1]:65535"] {
            let features = parse(&["--agent-relay", address]).unwrap().features;
            assert_eq!(features.injection().relay.as_deref(), Some(address));
        }
    }

    #[test]
    fn agent_amounts_reach_injection_and_bad_ones_are_named() {
        assert_eq!(parse(&[]).unwrap().features.injection().agent_resources, AgentResources::default());
        let features = parse(&["--agent-requests=cpu=50m", "--agent-limits="]).unwrap().features;
        let AgentResources { requests, limits } = features.injection().agent_resources;
        assert_eq!((requests.to_string().as_str(), limits), ("cpu=50m", Amounts::default()));
        let error = parse(&["--agent-limits=cpu=many"]).unwrap_err().to_string();
        assert!(error.contains("--agent-limits") && error.contains("must be a quantity"), "{error}");
    }

    #[test]
    fn agent_relay_without_host_or_port_is_rejected() {
        let cases = [
            ("", "HOST:PORT"),
            ("relay", "HOST:PORT"),
            (":9443", "host must be"),
            ("fd00::1:9443", "host must be"),
            ("[relay]:9443", "host must be"),
            ("$(RELAY):9443", "host must be"),
            ("https://relay:9443", "host must be"),
            ("relay:", "port must be"),
            ("relay:0", "port must be"),
            ("relay:65536", "port must be"),
            ("relay:+9443", "port must be"),
        ];
        for (address, part) in cases {
            let error = parse(&[&format!("--agent-relay={address}")]).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("--agent-relay"), "{address}: {error}");
        }
    }

    #[test]
    fn a_mounted_certificate_needs_its_directory() {
        let error = parse(&["--cert-source=mounted"]).unwrap_err().to_string();
        assert!(error.contains("--cert-dir"), "{error}");
        let args = parse(&["--cert-source=mounted", "--cert-dir=/certs"]).unwrap().certificates;
        assert_eq!(args.directory.unwrap().to_str(), Some("/certs"));
    }

    #[test]
    fn extra_names_may_be_given_several_times() {
        let args = parse(&["--extra-dns-name", "127.0.0.1", "--extra-dns-name", "a.example"]).unwrap();
        assert_eq!(args.certificates.extra_dns_names, ["127.0.0.1", "a.example"]);
    }
}
