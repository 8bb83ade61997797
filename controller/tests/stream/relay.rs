//! A relay of the tests: it has no agents, says what it is told to, and keeps what controllers say.

use std::collections::BTreeMap;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result, ensure};
use jobset_stream::CONTROLLER_FRAME;
use jobset_stream::frame::{Reader, Writer};
use jobset_stream::message::{
    AgentEvent, AgentEventKind, FromRelay, GroupState, Nonce, PodRef, Report, Statement, ToRelay,
};
use jobset_stream::signature::LeaderCertificate;
use jobset_stream::tls::testing::{ExtendedKeyUsagePurpose, Issued, Pki};
use jobset_stream::tls::{Authorities, Identity, provider};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_rustls::TlsAcceptor;

use crate::fixture::LIMIT;

/// The names in the certificates of the leader and of relays in the controller's namespace.
const LEADER: &str = "jobset-controller.jobset-system.svc";
const RELAY: &str = "jobset-relay.jobset-system.svc";

/// What a controller has said, with its signature verified.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Heard {
    Answer { agent: u64, nonce: Option<Nonce>, state: GroupState },
    Group { jobset: String, state: GroupState },
}

pub(crate) struct Relay {
    pub(crate) pki: Pki,
    pub(crate) address: SocketAddr,
    pub(crate) of_controller: Issued,
    shared: Arc<Shared>,
    heard: mpsc::UnboundedReceiver<Result<Heard>>,
}

/// What the connections of controllers share.
struct Shared {
    tls: TlsAcceptor,
    authorities: Authorities,
    heard: mpsc::UnboundedSender<Result<Heard>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The connected agents: a controller that dials is told of them.
    agents: BTreeMap<u64, AgentEventKind>,
    controllers: Vec<mpsc::UnboundedSender<FromRelay>>,
}

impl Relay {
    /// Listens on all addresses.
    pub(crate) async fn start() -> Result<Self> {
        let pki = Pki::new();
        let own = Identity::read(pki.issue(RELAY, ExtendedKeyUsagePurpose::ServerAuth).folder.path())?;
        let of_controller = pki.issue(LEADER, ExtendedKeyUsagePurpose::ClientAuth);
        let listener = TcpListener::bind("0.0.0.0:0").await?;
        let address = SocketAddr::from(([127, 0, 0, 1], listener.local_addr()?.port()));
        let (sender, heard) = mpsc::unbounded_channel();
        let tls = TlsAcceptor::from(Arc::new(own.server_of(LEADER)?));
        let authorities = pki.authorities();
        let shared = Arc::new(Shared { tls, authorities, heard: sender, state: Mutex::default() });
        let of_listener = Arc::clone(&shared);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&of_listener);
                tokio::spawn(async move {
                    if let Err(error) = shared.serve(stream).await {
                        let _ = shared.heard.send(Err(error));
                    }
                });
            }
        });
        Ok(Self { pki, address, of_controller, shared, heard })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.of_controller.folder.path()
    }

    /// An address of this machine that an EndpointSlice may have. No packet is sent.
    pub(crate) fn address_for_endpoints(&self) -> Result<SocketAddr> {
        let socket = UdpSocket::bind("0.0.0.0:0")?;
        socket.connect("192.0.2.1:9").context("this machine has no address but that of itself")?;
        Ok(SocketAddr::new(socket.local_addr()?.ip(), self.address.port()))
    }

    /// The agent of this Pod connects. Returns its nonce.
    pub(crate) fn hello(&self, agent: u64, pod: &Pod, jobset: &str) -> Result<Nonce> {
        let nonce = Nonce::random(provider().secure_random).map_err(|_| anyhow::anyhow!("no random numbers"))?;
        let pod = PodRef {
            namespace: pod.namespace().unwrap_or_default(),
            name: pod.name_any(),
            uid: pod.uid().unwrap_or_default(),
        };
        let hello = AgentEventKind::Hello { pod, jobset: jobset.to_owned(), nonce: nonce.clone(), report: None };
        let mut state = self.shared.state();
        state.agents.insert(agent, hello.clone());
        state.tell(agent, &hello);
        Ok(nonce)
    }

    pub(crate) fn report(&self, agent: u64, epoch: i32) {
        let report = Report { epoch, exit: None, started: None, progress: None };
        let mut state = self.shared.state();
        if let Some(AgentEventKind::Hello { report: last, .. }) = state.agents.get_mut(&agent) {
            *last = Some(report.clone());
        }
        state.tell(agent, &AgentEventKind::Report(report));
    }

    pub(crate) fn leave(&self, agent: u64) {
        let mut state = self.shared.state();
        state.agents.remove(&agent);
        state.tell(agent, &AgentEventKind::Gone);
    }

    /// What a controller says next to agents, signs of life aside.
    pub(crate) async fn next(&mut self) -> Result<Heard> {
        let heard = tokio::time::timeout(LIMIT, self.heard.recv()).await;
        heard.context("no controller has said anything in time")?.context("the relay has ended")?
    }

    /// The next state for all agents of a JobSet with these epochs, synced and deprecated.
    pub(crate) async fn broadcast(&mut self, epochs: (i32, i32)) -> Result<GroupState> {
        loop {
            if let Heard::Group { state, .. } = self.next().await?
                && (state.synced, state.deprecated) == epochs
            {
                return Ok(state);
            }
        }
    }

    pub(crate) async fn answer(&mut self, agent: u64) -> Result<(Option<Nonce>, GroupState)> {
        loop {
            match self.next().await? {
                Heard::Answer { agent: answered, nonce, state } if answered == agent => return Ok((nonce, state)),
                _ => {}
            }
        }
    }
}

impl Shared {
    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn serve(&self, stream: TcpStream) -> Result<()> {
        // A controller that ends while it connects is none.
        let Ok(stream) = self.tls.accept(stream).await else { return Ok(()) };
        let (read, write) = tokio::io::split(stream);
        let (mut reader, mut writer) = (Reader::new(read, CONTROLLER_FRAME), Writer::new(write, CONTROLLER_FRAME));
        let mut queue = self.state().connect();
        let written = async {
            while let Some(frame) = queue.recv().await {
                if writer.send(&frame).await.is_err() {
                    break;
                }
            }
        };
        let read = async {
            let mut leader = None;
            // A leader that is killed breaks the connection.
            while let Ok(Some(message)) = reader.next::<ToRelay>().await {
                self.hear(message, &mut leader)?;
            }
            anyhow::Ok(())
        };
        tokio::select! {
            () = written => Ok(()),
            read = read => read,
        }
    }

    fn hear(&self, message: ToRelay, leader: &mut Option<LeaderCertificate>) -> Result<()> {
        let known = || leader.as_ref().context("a statement before the certificates");
        let heard = match message {
            ToRelay::Leader(chain) => {
                *leader = Some(LeaderCertificate::verify(&chain, &self.authorities, LEADER)?);
                return Ok(());
            }
            ToRelay::Beat(signed) => {
                let Statement { nonce, group, .. } = known()?.open(&signed)?;
                ensure!((nonce, group) == (None, None), "a sign of life says nothing else");
                return Ok(());
            }
            ToRelay::Answer { agent, signed } => {
                let Statement { nonce, group, .. } = known()?.open(&signed)?;
                Heard::Answer { agent, nonce, state: group.context("an answer without a state")? }
            }
            ToRelay::Group { jobset, signed, .. } => {
                let Statement { nonce, group, .. } = known()?.open(&signed)?;
                ensure!(nonce.is_none(), "a broadcast that answers");
                Heard::Group { jobset, state: group.context("a broadcast without a state")? }
            }
        };
        // The test may have ended.
        let _ = self.heard.send(Ok(heard));
        Ok(())
    }
}

impl State {
    /// One more controller. It is told of all agents first.
    fn connect(&mut self) -> mpsc::UnboundedReceiver<FromRelay> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let agents = self.agents.iter().map(|(agent, event)| AgentEvent { agent: *agent, event: event.clone() });
        let _ = sender.send(FromRelay(agents.collect()));
        self.controllers.push(sender);
        receiver
    }

    fn tell(&mut self, agent: u64, event: &AgentEventKind) {
        let frame = FromRelay(vec![AgentEvent { agent, event: event.clone() }]);
        self.controllers.retain(|controller| controller.send(frame.clone()).is_ok());
    }
}
