//! Agents and controllers that the tests play.

use std::collections::VecDeque;
use std::sync::Arc;

use anyhow::{Context as _, Result, bail};
use jobset_stream::frame::{Reader, Writer};
use jobset_stream::message::{
    AgentEvent, AgentEventKind, FromAgent, FromRelay, GroupState, Nonce, PodRef, Report, Statement, ToAgent, ToRelay,
};
use jobset_stream::signature::{LeaderCertificate, Signed, Signer, encode_chain};
use jobset_stream::tls::testing::{ExtendedKeyUsagePurpose, Issued};
use jobset_stream::tls::{Identity, provider};
use jobset_stream::{AGENT_FRAME, CONTROLLER_FRAME};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::cluster::LIMIT;
use crate::program::{CONTROLLER, RELAY, TestRelay};

type Stream = TlsStream<TcpStream>;

pub(crate) struct TestAgent {
    pub(crate) reader: Reader<ReadHalf<Stream>>,
    pub(crate) writer: Writer<WriteHalf<Stream>>,
    pub(crate) nonce: Nonce,
    leader: Option<LeaderCertificate>,
}

/// A TLS connection of an agent, which has said nothing.
pub(crate) async fn connect(relay: &TestRelay) -> Result<Stream> {
    let config = relay.pki.authorities().agent()?;
    let stream = TcpStream::connect(relay.agents).await?;
    let name = ServerName::try_from(RELAY)?;
    Ok(timeout(LIMIT, TlsConnector::from(Arc::new(config)).connect(name, stream)).await??)
}

impl TestAgent {
    /// Connects and says nothing.
    pub(crate) async fn silent(relay: &TestRelay) -> Result<Self> {
        let (read, write) = tokio::io::split(connect(relay).await?);
        let nonce = Nonce::random(provider().secure_random).ok().context("no random numbers")?;
        // Without a limit of its own.
        Ok(Self { reader: Reader::new(read, 1 << 24), writer: Writer::new(write, 1 << 24), nonce, leader: None })
    }

    pub(crate) fn hello(&self, token: &str, jobset: &str, report: Option<Report>) -> FromAgent {
        FromAgent::Hello {
            token: token.to_owned(),
            jobset: jobset.to_owned(),
            nonce: self.nonce.clone(),
            report,
            fell_back: false,
        }
    }

    /// Connects and says hello.
    pub(crate) async fn connect(relay: &TestRelay, token: &str, jobset: &str) -> Result<Self> {
        let mut agent = Self::silent(relay).await?;
        agent.send(&agent.hello(token, jobset, None)).await?;
        Ok(agent)
    }

    pub(crate) async fn send(&mut self, message: &FromAgent) -> Result<()> {
        Ok(timeout(LIMIT, self.writer.send(message)).await??)
    }

    pub(crate) async fn report(&mut self, epoch: i32) -> Result<()> {
        self.send(&FromAgent::Report(Report { epoch, exit: None, started: None, progress: None })).await
    }

    pub(crate) async fn message(&mut self) -> Result<ToAgent> {
        timeout(LIMIT, self.reader.next()).await??.context("the connection has ended")
    }

    /// The next statement, which the leader has signed.
    pub(crate) async fn statement(&mut self, relay: &TestRelay) -> Result<Statement> {
        loop {
            match self.message().await? {
                ToAgent::Leader(chain) => {
                    self.leader = Some(LeaderCertificate::verify(&chain, &relay.pki.authorities(), CONTROLLER)?);
                }
                ToAgent::NoLeader => {}
                ToAgent::Signed(signed) => return Ok(self.leader.as_ref().context("no leader")?.open(&signed)?),
            }
        }
    }

    /// Waits until the relay has ended the connection.
    pub(crate) async fn ended(mut self) -> Result<()> {
        let ended = async { while let Ok(Some(_)) = self.reader.next::<ToAgent>().await {} };
        timeout(LIMIT, ended).await.context("the connection has not ended")
    }
}

pub(crate) struct TestController {
    reader: Reader<ReadHalf<Stream>>,
    pub(crate) writer: Writer<WriteHalf<Stream>>,
    issued: Issued,
    events: VecDeque<AgentEvent>,
    time: i64,
}

impl TestController {
    pub(crate) async fn dial(relay: &TestRelay) -> Result<Self> {
        let mut controller = Self::dial_as(relay, CONTROLLER).await?;
        let chain = encode_chain(&controller.issued.certified.cert);
        controller.send(&ToRelay::Leader(chain)).await?;
        Ok(controller)
    }

    /// With a certificate of this name, and says nothing.
    pub(crate) async fn dial_as(relay: &TestRelay, name: &str) -> Result<Self> {
        let issued = relay.pki.issue(name, ExtendedKeyUsagePurpose::ClientAuth);
        let config = Identity::read(issued.folder.path())?.client()?;
        let stream = TcpStream::connect(relay.controllers).await?;
        let connector = TlsConnector::from(Arc::new(config));
        let stream = timeout(LIMIT, connector.connect(ServerName::try_from(RELAY)?, stream)).await??;
        let (read, write) = tokio::io::split(stream);
        let (reader, writer) = (Reader::new(read, CONTROLLER_FRAME), Writer::new(write, CONTROLLER_FRAME));
        Ok(Self { reader, writer, issued, events: VecDeque::new(), time: 0 })
    }

    pub(crate) async fn send(&mut self, message: &ToRelay) -> Result<()> {
        Ok(timeout(LIMIT, self.writer.send(message)).await??)
    }

    pub(crate) async fn event(&mut self) -> Result<AgentEvent> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            let frame = timeout(LIMIT, self.reader.next::<FromRelay>()).await.context("no event")??;
            self.events.extend(frame.context("the relay has ended the connection")?.0);
        }
    }

    /// The next event, which is a hello: the number of the agent, its Pod and its report.
    pub(crate) async fn hello(&mut self) -> Result<(u64, PodRef, Option<Report>)> {
        match self.event().await? {
            AgentEvent { agent, event: AgentEventKind::Hello { pod, report, .. } } => Ok((agent, pod, report)),
            other => bail!("no hello: {other:?}"),
        }
    }

    pub(crate) fn sign(&mut self, nonce: Option<Nonce>, synced: Option<i32>) -> Result<Signed> {
        self.time += 1;
        let group = synced.map(|synced| GroupState {
            uid: "u".into(),
            synced,
            deprecated: 0,
            failed: false,
            bypass: false,
            pods: 2,
            pause: None,
        });
        let statement = Statement { nonce, group, ..Statement::beat(self.time) };
        Ok(Signer::new(&self.issued.certified).sign(&statement)?)
    }

    pub(crate) async fn broadcast(&mut self, namespace: &str, jobset: &str, synced: i32) -> Result<()> {
        let signed = self.sign(None, Some(synced))?;
        self.send(&ToRelay::Group { namespace: namespace.to_owned(), jobset: jobset.to_owned(), signed }).await
    }

    pub(crate) async fn answer(&mut self, agent: u64, nonce: &Nonce, synced: i32) -> Result<()> {
        let signed = self.sign(Some(nonce.clone()), Some(synced))?;
        self.send(&ToRelay::Answer { agent, signed }).await
    }

    pub(crate) async fn beat(&mut self) -> Result<()> {
        let signed = self.sign(None, None)?;
        self.send(&ToRelay::Beat(signed)).await
    }

    /// Waits until the relay has ended the connection.
    pub(crate) async fn ended(mut self) -> Result<()> {
        let ended = async { while let Ok(Some(_)) = self.reader.next::<FromRelay>().await {} };
        timeout(LIMIT, ended).await.context("the connection has not ended")
    }
}

/// Sends bytes that are no frame of an agent.
pub(crate) async fn send_raw(stream: &mut Stream, bytes: &[u8]) -> Result<()> {
    stream.write_all(bytes).await?;
    Ok(stream.flush().await?)
}

const _: () = assert!(AGENT_FRAME < 1 << 24);
