//! Command line.

use std::net::SocketAddr;

use clap::{Parser, ValueEnum};

/// The JobSet controller: runs groups of Jobs that start, fail, restart and succeed together.
///
/// It finds the API server by its ServiceAccount inside of a cluster, and by KUBECONFIG elsewhere.
#[derive(Clone, Debug, Parser)]
#[command(name = "jobset-controller", version)]
pub struct Args {
    /// Look at this namespace alone. Without it, at all of them.
    #[arg(long, env = "JOBSET_NAMESPACE", value_name = "NAME")]
    pub namespace: Option<String>,

    /// Address of /healthz and /readyz.
    #[arg(long, default_value = "0.0.0.0:8081", value_name = "ADDRESS")]
    pub health_listen: SocketAddr,

    /// Form of the log. The environment variable RUST_LOG sets what is logged (default: info).
    #[arg(long, value_enum, default_value_t)]
    pub log_format: LogFormat,
}

/// Form of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One line of text an event.
    #[default]
    Text,
    /// One JSON object an event.
    Json,
}
