//! The command line of `jobset-relay`.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Parser;
use jobset_program::listener::any;
use jobset_program::log::LogFormat;
use jobset_stream::{AGENTS_OF_A_RELAY, LEADER};

/// Relays between the agents of JobSets and the leading controller, so that a restart does not wait for the API server. It
/// keeps no state: run two or more.
#[derive(Clone, Debug, Parser)]
#[command(name = "jobset-relay", version, args_override_self = true)]
pub struct Args {
    /// Namespace of the relay and of the controller.
    #[arg(long, env = "POD_NAMESPACE")]
    pub namespace: String,

    /// Directory of tls.crt, tls.key and ca.crt, in PEM, as a Secret is mounted. Read again every few seconds.
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/run/jobset-relay")]
    pub cert_dir: PathBuf,

    /// Address for agents (TLS 1.3). They show the token of their ServiceAccount for the audience jobset-relay.
    #[arg(long, value_name = "IP:PORT", default_value_t = any(9443))]
    pub agents_listen: SocketAddr,

    /// Address for controllers (TLS 1.3 with a client certificate for jobset-controller.NAMESPACE.svc).
    #[arg(long, value_name = "IP:PORT", default_value_t = any(9444))]
    pub controller_listen: SocketAddr,

    /// Address of /healthz, /readyz and /metrics (HTTP).
    #[arg(long, value_name = "IP:PORT", default_value_t = any(8081))]
    pub health_listen: SocketAddr,

    /// Most connected agents, at most 100000. An agent that is rejected restarts by its watch on the API server. A relay serves fewer where
    /// its memory limit is too low: an agent may take 54 kB, and the relay 64 MB beside them.
    #[arg(long, value_name = "NUMBER", default_value = "20000", value_parser = agents)]
    pub max_connections: NonZeroUsize,

    /// Most connected agents of one namespace.
    #[arg(long, value_name = "NUMBER", default_value = "10000")]
    pub max_connections_per_namespace: NonZeroUsize,

    /// Format of the log on standard error. The environment variable RUST_LOG sets what is logged (default: info).
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub log_format: LogFormat,
}

fn agents(text: &str) -> Result<NonZeroUsize, String> {
    let number: NonZeroUsize = text.parse().map_err(|_| "it must be a number from 1 on".to_owned())?;
    if number.get() > AGENTS_OF_A_RELAY {
        return Err(format!(
            "the leading controller answers at most {AGENTS_OF_A_RELAY} agents of one relay: add relays"
        ));
    }
    Ok(number)
}

impl Args {
    /// The DNS name in the certificates of controllers.
    pub fn controller_name(&self) -> String {
        format!("{LEADER}.{}.svc", self.namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Args, clap::Error> {
        Args::try_parse_from(["jobset-relay", "--namespace=ns"].iter().chain(arguments))
    }

    #[test]
    fn defaults_are_those_of_the_deployment() {
        let args = parse(&[]).unwrap();
        assert_eq!(args.agents_listen.to_string(), "[::]:9443");
        assert_eq!(args.controller_listen.to_string(), "[::]:9444");
        assert_eq!(args.health_listen.to_string(), "[::]:8081");
        assert_eq!(args.cert_dir.to_str(), Some("/var/run/jobset-relay"));
        assert_eq!(args.max_connections.get(), 20_000);
        assert_eq!(args.controller_name(), "jobset-controller.ns.svc");
    }

    #[test]
    fn flag_that_the_chart_sets_can_be_set_again() {
        let args = parse(&["--agents-listen=[::]:9443", "--agents-listen=10.0.0.1:9443"]).unwrap();
        assert_eq!(args.agents_listen.to_string(), "10.0.0.1:9443");
    }

    #[test]
    fn limit_of_zero_is_rejected() {
        for flag in ["--max-connections=0", "--max-connections-per-namespace=0"] {
            assert!(parse(&[flag]).unwrap_err().to_string().contains(flag.trim_end_matches("=0")));
        }
    }

    #[test]
    fn more_agents_than_the_leader_answers_are_rejected() {
        assert!(parse(&["--max-connections=100000"]).is_ok());
        assert!(parse(&["--max-connections=100001"]).unwrap_err().to_string().contains("add relays"));
    }
}
