//! The command line of `jobset-certs`.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context as _;
use clap::Parser;
use jobset_program::duration::{duration, positive_duration};
use jobset_program::listener::any;
use jobset_program::log::LogFormat;

use crate::bundle::Configuration;
use crate::issue::Usage;
use crate::issuer::Settings;
use crate::state::Leaf;
use crate::{Lifetimes, Names};

/// How often the certificates are looked at by the wall clock.
const INTERVAL: Duration = Duration::from_mins(1);

/// Issues the certificate of the JobSet admission service, renews it, and has API servers trust it. Run one replica: if none
/// runs, nothing is refused before a certificate expires.
///
/// To replace the CA before it is due, and its certificates with it, annotate its Secret with jobset.sigs.k8s.io/rotate-ca-before and
/// a time: CAs that were issued before are replaced, and nothing is refused. To throw out a CA whose key may have been stolen, use
/// jobset.sigs.k8s.io/distrust-ca-before.
#[derive(Clone, Debug, Parser)]
#[command(name = "jobset-certs", version)]
pub struct Args {
    /// Namespace of the Secrets and of the Services.
    #[arg(long, env = "POD_NAMESPACE")]
    pub namespace: String,

    /// Secret with the CA. Filled and renewed as needed; nobody else needs to read it.
    #[arg(long, value_name = "NAME", default_value = "jobset-webhook-server-cert")]
    pub secret_name: String,

    /// A Service and the Secret for its certificate. May be given several times; the first one is the admission service. The
    /// Secrets of the others also have CAs from before, while one of their certificates may be in use.
    #[arg(long = "service", value_name = "SERVICE=SECRET", default_value = "jobset-webhook-service=jobset-webhook-leaf",
          value_parser = named_secret)]
    pub services: Vec<(String, String)>,

    /// A client and the Secret for the certificate that it shows to servers, as NAME.NAMESPACE.svc. May be given several times.
    #[arg(long = "client", value_name = "NAME=SECRET", value_parser = named_secret)]
    pub clients: Vec<(String, String)>,

    /// ValidatingWebhookConfiguration whose caBundle is kept up to date.
    #[arg(long, value_name = "NAME", default_value = "jobset-validating-webhook-configuration")]
    pub validating_webhook_configuration: String,

    /// MutatingWebhookConfiguration whose caBundle is kept up to date.
    #[arg(long, value_name = "NAME", default_value = "jobset-mutating-webhook-configuration")]
    pub mutating_webhook_configuration: String,

    /// Lifetime of the CA. It is replaced when it could not outlive another certificate.
    #[arg(long, value_name = "DURATION", default_value = "8760h", value_parser = positive_duration)]
    pub ca_lifetime: Duration,

    /// Lifetime of a certificate. It is replaced when a third of it is left. At most half the CA's.
    #[arg(long, value_name = "DURATION", default_value = "2160h", value_parser = positive_duration)]
    pub cert_lifetime: Duration,

    /// How long a new CA is trusted before a certificate of it takes the place of a good one. At most a sixth of a certificate's
    /// lifetime.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    pub ca_lead_time: Duration,

    /// One more DNS name or IP address of the admission service's certificate, as for running outside of the cluster. May be
    /// given several times.
    #[arg(long = "extra-dns-name", value_name = "NAME")]
    pub extra_dns_names: Vec<String>,

    /// Address of /healthz, /readyz and /metrics (HTTP).
    #[arg(long, value_name = "IP:PORT", default_value_t = any(8081))]
    pub health_listen: SocketAddr,

    /// Format of the log on standard error. The environment variable RUST_LOG sets what is logged (default: info).
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

fn named_secret(text: &str) -> Result<(String, String), String> {
    let (name, secret) = text.split_once('=').ok_or("must be a name, '=', and the name of a Secret")?;
    if name.is_empty() || secret.is_empty() {
        return Err("neither name may be empty".to_owned());
    }
    Ok((name.to_owned(), secret.to_owned()))
}

impl Args {
    /// What the loop needs to know.
    pub fn settings(&self) -> anyhow::Result<Settings> {
        let lifetimes = Lifetimes::new(self.ca_lifetime, self.cert_lifetime)
            .context("the lifetimes given by --ca-lifetime and --cert-lifetime do not fit together")?;
        let mut leaves = Vec::<Leaf>::new();
        let servers = self.services.iter().map(|it| (Usage::Server, it));
        for (usage, (name, secret)) in servers.chain(self.clients.iter().map(|it| (Usage::Client, it))) {
            let is_used = *secret == self.secret_name || leaves.iter().any(|it| it.secret == *secret);
            anyhow::ensure!(!is_used, "{name}={secret}: that Secret is used already");
            anyhow::ensure!(leaves.iter().all(|it| it.name != *name), "{name}={secret}: that name is used already");
            let extra = if leaves.is_empty() { self.extra_dns_names.as_slice() } else { &[] };
            let names = match usage {
                Usage::Server => Names::of_service(name, &self.namespace),
                Usage::Client => Names::of_host(name, &self.namespace),
            };
            let names = names.and_then(|names| extra.iter().try_fold(names, |names, extra| names.with(extra)));
            let names = names.context("cannot name the certificate")?;
            leaves.push(Leaf { name: name.clone(), secret: secret.clone(), names, usage });
        }
        Ok(Settings {
            namespace: self.namespace.clone(),
            secret: self.secret_name.clone(),
            leaves,
            configurations: vec![
                Configuration::Validating(self.validating_webhook_configuration.clone()),
                Configuration::Mutating(self.mutating_webhook_configuration.clone()),
            ],
            lifetimes,
            // A certificate of the CA before must not expire meanwhile: a third of its life is left when it is replaced.
            lead: self.ca_lead_time.min(self.cert_lifetime / 6),
            interval: INTERVAL,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(arguments: &[&str]) -> Result<Settings, String> {
        let args = Args::try_parse_from(["jobset-certs", "--namespace=ns"].iter().chain(arguments));
        args.map_err(|error| error.to_string())?.settings().map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn the_defaults_are_the_admission_service_alone() {
        let settings = settings(&[]).unwrap();
        let leaves: Vec<_> = settings.leaves.iter().map(|it| (it.name.as_str(), it.secret.as_str())).collect();
        assert_eq!(leaves, [("jobset-webhook-service", "jobset-webhook-leaf")]);
    }

    #[test]
    fn extra_names_are_those_of_the_first_service() {
        let two = ["--service=hook=leaf", "--service=relay=relay-leaf", "--extra-dns-name=127.0.0.1"];
        let names = settings(&two).unwrap().leaves.into_iter().map(|it| it.names.to_string()).collect::<Vec<_>>();
        assert_eq!(
            names,
            ["hook.ns.svc, hook.ns.svc.cluster.local, 127.0.0.1", "relay.ns.svc, relay.ns.svc.cluster.local"]
        );
    }

    #[test]
    fn what_cannot_be_is_named() {
        let cases = [
            (vec!["--service=hook"], "must be a name, '='"),
            (vec!["--client=controller"], "must be a name, '='"),
            (vec!["--client=controller=jobset-webhook-leaf"], "that Secret is used already"),
            (vec!["--client=jobset-webhook-service=leaf"], "that name is used already"),
            (vec!["--service=hook="], "neither name may be empty"),
            (vec!["--service=hook=jobset-webhook-server-cert"], "that Secret is used already"),
            (vec!["--service=https://a=leaf"], "is neither a DNS name nor an IP address"),
            (vec!["--ca-lifetime=1h"], "--ca-lifetime and --cert-lifetime do not fit together"),
            (vec!["--cert-lifetime=20ms"], "at least 30s"),
            (vec!["--ca-lead-time=soon"], "such as 5s"),
        ];
        for (arguments, part) in cases {
            let error = settings(&arguments).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
