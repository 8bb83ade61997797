//! The programs under measurement: which ones the cases need, and how they are started.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use jobset_harness::cluster::Handle;
use jobset_harness::programs::{self, Architecture};
use jobset_stream::tls::testing::{ExtendedKeyUsagePurpose, Issued, Pki};
use kube::Client;
use serde_json::{Value, json};

use super::case::{Case, Options, Way};
use super::relays::{Relays, SYSTEM_NAMESPACE, StreamSetup};
use crate::program::{Program, free_addresses};

/// The paths of the programs that the cases need.
pub(super) struct Programs {
    controller: PathBuf,
    relay: Option<PathBuf>,
    go: Option<PathBuf>,
}

/// The running programs of a case. They end when this is dropped.
pub(super) struct Running {
    controller: Program,
    relays: Option<Relays>,
    /// The certificate of the Go manager's webhooks, in its folder.
    _certificate: Option<Issued>,
}

impl Programs {
    /// Builds the programs that the cases need, if the options do not name them.
    pub(super) async fn of(options: &Options, cases: &[Case]) -> Result<Self> {
        let has = |way: Way| cases.iter().any(|case| case.strategy.way() == Some(way));
        let go = if has(Way::Go) {
            Some(tokio::task::spawn_blocking(programs::ensure_go_jobset).await??.manager)
        } else {
            None
        };
        let Options { controller, relay, .. } = options.clone();
        if !has(Way::Stream) {
            let controller = match controller {
                Some(controller) => controller,
                None => programs::shipped_controller().await?,
            };
            return Ok(Self { controller, relay: None, go });
        }
        let (controller, relay) = match (controller, relay) {
            (Some(controller), Some(relay)) => (controller, relay),
            (controller, relay) => {
                let shipped = programs::shipped_binaries(Architecture::of_host()?).await?;
                (controller.unwrap_or(shipped.controller), relay.unwrap_or(shipped.relay))
            }
        };
        Ok(Self { controller, relay: Some(relay), go })
    }

    /// The program that is measured in a case.
    pub(super) fn controller_of(&self, case: Case) -> &Path {
        match (case.strategy.way(), &self.go) {
            (Some(Way::Go), Some(go)) => go,
            _ => &self.controller,
        }
    }

    pub(super) async fn start(&self, case: Case, client: &Client, plane: &Handle) -> Result<Running> {
        let program = self.controller_of(case);
        let (mut certificate, mut relays) = (None, None);
        let controller = match case.strategy.way() {
            Some(Way::Go) => {
                let (flags, issued) = go_flags(plane)?;
                certificate = Some(issued);
                Program::start("go-jobset-manager", program, flags, &[], plane.kubeconfig(), plane)?
            }
            way => {
                let listen = ["--health-listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0", "--metrics-secure=false"];
                let mut flags: Vec<String> = listen.map(str::to_owned).into();
                let mut environment = Vec::new();
                if let (Some(Way::Stream), Some(relay)) = (way, &self.relay) {
                    let started = Relays::start(relay, client, plane).await?;
                    flags.extend(started.controller_flags());
                    environment.push(("POD_NAMESPACE", SYSTEM_NAMESPACE));
                    relays = Some(started);
                }
                Program::start("jobset-controller", program, flags, &environment, plane.kubeconfig(), plane)?
            }
        };
        Ok(Running { controller, relays, _certificate: certificate })
    }
}

impl Running {
    pub(super) fn controller(&self) -> u32 {
        self.controller.pid()
    }

    /// What agents have to know of the relays, if there are some.
    pub(super) fn stream(&self) -> Option<&StreamSetup> {
        self.relays.as_ref().map(Relays::setup)
    }

    /// Awaits `work`, unless a program ends before.
    pub(super) async fn while_running<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let work = Box::pin(self.controller.while_running(work));
        match &mut self.relays {
            Some(relays) => Box::pin(relays.while_running(work)).await,
            None => work.await,
        }
    }
}

/// The flags of the Go manager, and the certificate that it does not start without. Nothing registers its webhooks.
fn go_flags(plane: &Handle) -> Result<([String; 1], Issued)> {
    let issued = Pki::new().issue("localhost", ExtendedKeyUsagePurpose::ServerAuth);
    let [webhook, health] = free_addresses(IpAddr::V4(Ipv4Addr::LOCALHOST))?;
    let configuration = go_configuration(webhook.port(), &health.to_string(), issued.folder.path());
    let file = plane.dir().join("go-jobset.json");
    fs::write(&file, configuration.to_string()).context("cannot write the Go manager's configuration")?;
    Ok(([format!("--config={}", file.display())], issued))
}

/// The Go manager's configuration: that of its manifests with the gate for restarts in place. It leads without a Lease.
fn go_configuration(webhook_port: u16, health: &str, certificates: &Path) -> Value {
    json!({
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "leaderElection": {"leaderElect": false},
        "internalCertManagement": {"enable": false},
        "webhook": {"host": Ipv4Addr::LOCALHOST, "port": webhook_port, "certDir": certificates},
        "metrics": {"bindAddress": "0"},
        "health": {"healthProbeBindAddress": health},
        "featureGates": {"InPlaceRestart": true},
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[tokio::test]
    async fn programs_that_are_given_are_not_built() {
        let arguments = "bench --agents 2 --way watch,stream --controller /c --relay /r";
        let options = Options::try_parse_from(arguments.split(' ')).unwrap();
        let cases = options.cases();
        let programs = Programs::of(&options, &cases).await.unwrap();
        assert_eq!(programs.controller_of(cases[0]), Path::new("/c"));
        assert_eq!((programs.relay, programs.go), (Some(PathBuf::from("/r")), None));
    }
}
