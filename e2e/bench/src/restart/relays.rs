//! The relays of the agent stream, and what controller and agents need to speak with them.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use jobset_agent::args::Relay;
use jobset_harness::cluster::Handle;
use jobset_harness::{relays, wait};
use jobset_stream::leader_name;
use jobset_stream::tls::AUTHORITIES;
use jobset_stream::tls::testing::{ExtendedKeyUsagePurpose, Issued, Pki};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::PostParams;
use kube::{Api, Client};
use rustls_pki_types::ServerName;
use serde_json::json;
use tokio::net::TcpStream;

use crate::program::{Program, free_addresses};

/// Namespace of relays and controller.
pub(super) const SYSTEM_NAMESPACE: &str = "jobset-system";
/// The name in the certificates of the relays.
const RELAY_NAME: &str = "jobset-relay.jobset-system.svc";
/// The relays. Agents alternate between them.
const RELAYS: [&str; 2] = ["jobset-relay-0", "jobset-relay-1"];
const LIMIT: Duration = Duration::from_mins(1);

/// The running relays. They end when this is dropped.
pub(super) struct Relays {
    programs: [Program; 2],
    setup: StreamSetup,
    controllers: [SocketAddr; 2],
    /// Certificates in the folders that the programs read.
    controller_certificate: Issued,
    _relay_certificate: Issued,
}

#[derive(Clone, Debug)]
pub(super) struct StreamSetup {
    /// The CA of the relays' certificates, in PEM.
    pub(super) ca: PathBuf,
    pub(super) pids: [u32; 2],
    /// Their addresses for health and metrics.
    health: [SocketAddr; 2],
    agents: [SocketAddr; 2],
    name: ServerName<'static>,
    leader: String,
}

impl Relays {
    /// Starts the relays, and waits until they accept agents.
    pub(super) async fn start(program: &Path, client: &Client, plane: &Handle) -> Result<Self> {
        let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": SYSTEM_NAMESPACE}}))?;
        let namespaces: Api<Namespace> = Api::all(client.clone());
        namespaces.create(&PostParams::default(), &namespace).await.context("cannot create the namespace of relays")?;

        let leader = leader_name(RELAY_NAME).context("the leader has no name")?;
        let pki = Pki::new();
        let relay_certificate = pki.issue(RELAY_NAME, ExtendedKeyUsagePurpose::ServerAuth);
        let controller_certificate = pki.issue(&leader, ExtendedKeyUsagePurpose::ClientAuth);
        let [agents_0, controllers_0, health_0, agents_1, controllers_1, health_1] =
            free_addresses(IpAddr::V4(Ipv4Addr::LOCALHOST))?;
        let (agents, controllers) = ([agents_0, agents_1], [controllers_0, controllers_1]);
        let start = |index: usize, health: SocketAddr| {
            let certificates = relay_certificate.folder.path().display().to_string();
            let arguments = [
                format!("--agents-listen={}", agents[index]),
                format!("--controller-listen={}", controllers[index]),
                format!("--health-listen={health}"),
                format!("--cert-dir={certificates}"),
            ];
            let environment = [("POD_NAMESPACE", SYSTEM_NAMESPACE)];
            Program::start(RELAYS[index], program, arguments, &environment, plane.kubeconfig(), plane)
        };
        let mut programs = [start(0, health_0)?, start(1, health_1)?];
        for (program, address) in programs.iter_mut().zip(agents) {
            let accepts = wait::until(LIMIT, format!("a relay to listen on {address}"), || async move {
                Ok(TcpStream::connect(address).await.ok().map(drop))
            });
            program.while_running(accepts).await?;
        }
        let setup = StreamSetup {
            ca: relay_certificate.folder.path().join(AUTHORITIES),
            pids: [programs[0].pid(), programs[1].pid()],
            health: [health_0, health_1],
            agents,
            name: ServerName::try_from(RELAY_NAME)?,
            leader,
        };
        Ok(Self { programs, setup, controllers, controller_certificate, _relay_certificate: relay_certificate })
    }

    pub(super) fn setup(&self) -> &StreamSetup {
        &self.setup
    }

    pub(super) fn controller_flags(&self) -> Vec<String> {
        let certificates = self.controller_certificate.folder.path().display().to_string();
        let mut flags =
            vec!["--feature-gates=AgentStream=true".to_owned(), format!("--stream-cert-dir={certificates}")];
        flags.extend(self.controllers.iter().map(|address| format!("--relay-address={address}")));
        flags
    }

    /// Awaits `work`, unless a relay ends before.
    pub(super) async fn while_running<T>(&mut self, work: impl Future<Output = Result<T>>) -> Result<T> {
        let [one, other] = &mut self.programs;
        one.while_running(Box::pin(other.while_running(work))).await
    }
}

impl StreamSetup {
    /// What both relays together have received and sent, in bytes.
    pub(super) async fn bytes(&self) -> Result<u64> {
        let mut sum = 0;
        for address in self.health {
            sum += relays::sum_of_series(address, "jobset_relay_bytes_total").await?;
        }
        Ok(sum)
    }

    pub(super) fn relay(&self, agent: usize, folder: PathBuf) -> Relay {
        let address = self.agents[agent % self.agents.len()].to_string();
        Relay { address, name: self.name.clone(), leader: self.leader.clone(), folder }
    }
}
