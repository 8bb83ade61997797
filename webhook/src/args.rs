//! The command line.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use clap::{Args as ArgGroup, Parser, ValueEnum};
use jiff::SignedDuration;
use jobset_api::gates::Gates;

/// The JobSet admission service: defaulting and validation of JobSets over HTTPS.
#[derive(Clone, Debug, Parser)]
#[command(name = "jobset-webhook", version)]
pub struct Args {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub serving: ServingArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub certificates: CertificateArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub features: FeatureArgs,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub log: LogArgs,
}

/// Where and how to serve.
#[derive(Clone, Debug, ArgGroup)]
#[command(next_help_heading = "Serving")]
pub struct ServingArgs {
    /// Address of the admission service (HTTPS).
    #[arg(long, value_name = "IP:PORT", default_value_t = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 9443)))]
    pub listen: SocketAddr,

    /// Address of /healthz and /readyz (HTTP).
    #[arg(long, value_name = "IP:PORT", default_value_t = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 8081)))]
    pub health_listen: SocketAddr,

    /// How long to go on accepting connections after SIGTERM, while readiness has fallen already and the Service's
    /// endpoints follow.
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

    /// Secret with CA and serving certificate, shared by all replicas. Filled and renewed as needed.
    #[arg(long, value_name = "NAME", default_value = "jobset-webhook-server-cert")]
    pub secret_name: String,

    /// ValidatingWebhookConfiguration whose caBundle is to be kept up to date.
    #[arg(long, value_name = "NAME", default_value = "jobset-validating-webhook-configuration")]
    pub validating_webhook_configuration: String,

    /// MutatingWebhookConfiguration whose caBundle is to be kept up to date.
    #[arg(long, value_name = "NAME", default_value = "jobset-mutating-webhook-configuration")]
    pub mutating_webhook_configuration: String,

    /// One more DNS name or IP address of the serving certificate, as for running outside of the cluster. May be given
    /// several times.
    #[arg(long = "extra-dns-name", value_name = "NAME")]
    pub extra_dns_names: Vec<String>,
}

/// What may be asked for.
#[derive(Clone, Debug, ArgGroup)]
#[command(next_help_heading = "Features")]
pub struct FeatureArgs {
    /// Feature gates, separated by commas. The controller must have the same.
    #[arg(long = "feature-gates", value_name = "GATE=BOOL", default_value_t)]
    pub gates: Gates,
}

/// What is logged. Which messages are is chosen by the environment variable `RUST_LOG` (default `info`).
#[derive(Clone, Debug, ArgGroup)]
#[command(next_help_heading = "Log")]
pub struct LogArgs {
    /// Format of the log on standard error.
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

/// Format of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object per line.
    Json,
}

fn duration(text: &str) -> Result<Duration, String> {
    let signed: SignedDuration = text.parse().map_err(|_| "must be a duration such as 5s or 1m30s".to_owned())?;
    Duration::try_from(signed).map_err(|_| "must not be negative".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from(["jobset-webhook", "--namespace", "ns"].iter().chain(arguments))
    }

    #[test]
    fn the_defaults_are_those_of_the_deployment() {
        let args = parse(&[]).unwrap();
        assert_eq!(args.serving.listen.to_string(), "0.0.0.0:9443");
        assert_eq!(args.serving.health_listen.to_string(), "0.0.0.0:8081");
        assert_eq!(args.serving.drain_delay, Duration::from_secs(5));
        assert_eq!(args.certificates.secret_name, "jobset-webhook-server-cert");
        assert!(args.features.gates.in_place_restart);
    }

    #[test]
    fn a_feature_can_be_switched_off_and_an_unknown_one_is_named() {
        assert!(!parse(&["--feature-gates=InPlaceRestart=false"]).unwrap().features.gates.in_place_restart);
        let error = parse(&["--feature-gates=Magic=true"]).unwrap_err().to_string();
        assert!(error.contains("unknown feature gate \"Magic\""), "{error}");
    }

    #[test]
    fn a_bad_duration_is_named() {
        for (value, part) in [("soon", "such as 5s"), ("-5s", "negative")] {
            let argument = format!("--drain-delay={value}");
            let error = parse(&[&argument]).unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("--drain-delay"), "{error}");
        }
    }

    #[test]
    fn extra_names_may_be_given_several_times() {
        let args = parse(&["--extra-dns-name", "127.0.0.1", "--extra-dns-name", "a.example"]).unwrap();
        assert_eq!(args.certificates.extra_dns_names, ["127.0.0.1", "a.example"]);
    }
}
