use std::net::Ipv4Addr;

use jobset_stream::message::{GroupState, Statement};
use jobset_stream::signature::{Signer, encode_chain};
use jobset_stream::tls::Identity;
use jobset_stream::tls::testing::{ExtendedKeyUsagePurpose, Issued, Pki};
use rustls_pki_types::ServerName;
use tempfile::TempDir;
use tokio::io::{ReadHalf, WriteHalf};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::*;
use crate::decide::JobSetState;

const RELAY: &str = "jobset-relay.ns.svc";
const LEADER: &str = "jobset-controller.ns.svc";

/// A relay of the test, and the leader behind it.
struct TestRelay {
    pki: Pki,
    listener: TcpListener,
    tls: TlsAcceptor,
    leader: Issued,
    folder: TempDir,
    progress: watch::Sender<Progress>,
    group: Arc<GroupFacts>,
}

struct TestConnection {
    reader: Reader<ReadHalf<TlsStream<TcpStream>>>,
    writer: Writer<WriteHalf<TlsStream<TcpStream>>>,
}

impl TestRelay {
    async fn start() -> Self {
        let pki = Pki::new();
        let identity = Identity::read(pki.issue(RELAY, ExtendedKeyUsagePurpose::ServerAuth).folder.path()).unwrap();
        let leader = pki.issue(LEADER, ExtendedKeyUsagePurpose::ClientAuth);
        let folder = tempfile::tempdir().unwrap();
        std::fs::copy(leader.folder.path().join(RELAY_CA), folder.path().join(RELAY_CA)).unwrap();
        std::fs::write(folder.path().join(RELAY_TOKEN), "token-of-the-pod\n").unwrap();
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let tls = TlsAcceptor::from(Arc::new(identity.server().unwrap()));
        Self { pki, listener, tls, leader, folder, progress: watch::Sender::default(), group: Arc::default() }
    }

    fn relay(&self) -> Relay {
        Relay {
            address: self.listener.local_addr().unwrap().to_string(),
            name: ServerName::try_from(RELAY).unwrap(),
            leader: LEADER.to_owned(),
            folder: self.folder.path().to_owned(),
        }
    }

    fn client(&self) -> (watch::Sender<Present>, mpsc::Receiver<ChannelInput>) {
        let (present, received) = watch::channel(Present::default());
        let (sender, inputs) = mpsc::channel(16);
        let jobset = JobSetName { name: "train".to_owned(), uid: "u".to_owned() };
        tokio::spawn(run(self.relay(), jobset, received, sender, self.progress.clone(), Arc::clone(&self.group)));
        (present, inputs)
    }

    /// The next connection that gets through the handshake, and its hello.
    async fn accept(&self) -> (TestConnection, Nonce, Option<Report>) {
        let (tcp, _) = self.listener.accept().await.unwrap();
        let (source, sink) = tokio::io::split(self.tls.accept(tcp).await.unwrap());
        let mut connection =
            TestConnection { reader: Reader::new(source, AGENT_FRAME), writer: Writer::new(sink, AGENT_FRAME) };
        match connection.reader.next().await.unwrap() {
            Some(FromAgent::Hello { token, jobset, nonce, report, fell_back: false }) => {
                assert_eq!((token.as_str(), jobset.as_str()), ("token-of-the-pod", "train"));
                (connection, nonce, report)
            }
            other => panic!("no hello: {other:?}"),
        }
    }

    /// The next connection, whose hello the leader has answered in epoch 4, at its time 1.
    async fn answer(&self, inputs: &mut mpsc::Receiver<ChannelInput>) -> TestConnection {
        let (mut connection, nonce, _) = self.accept().await;
        connection.lead(&self.leader).await;
        connection.say(&self.signer(), &answer(1, &nonce, 4)).await;
        assert_eq!(inputs.recv().await, Some(heard(true, 4)));
        connection
    }

    fn signer(&self) -> Signer {
        Signer::new(&self.leader.certified)
    }
}

impl TestConnection {
    async fn lead(&mut self, leader: &Issued) {
        self.writer.send(&ToAgent::Leader(encode_chain(&leader.certified.cert))).await.unwrap();
    }

    async fn say(&mut self, signer: &Signer, statement: &Statement) {
        self.writer.send(&ToAgent::Signed(signer.sign(statement).unwrap())).await.unwrap();
    }
}

fn group(synced: i32) -> GroupState {
    GroupState { uid: "u".to_owned(), synced, deprecated: 0, failed: false, bypass: false, pods: 7, pause: None }
}

fn answer(time: i64, nonce: &Nonce, synced: i32) -> Statement {
    Statement::answer(time, nonce.clone(), group(synced))
}

fn heard(is_answer: bool, synced: i32) -> ChannelInput {
    let state = JobSetState { uid: "u".to_owned(), synced, deprecated: 0, failed: false, bypass: false };
    ChannelInput::Statement { is_answer, state }
}

#[tokio::test]
async fn answer_and_broadcasts_are_heard_and_reports_are_sent() {
    let relay = TestRelay::start().await;
    let (present, mut inputs) = relay.client();
    let (mut connection, nonce, report) = relay.accept().await;
    assert_eq!(report, None);
    connection.lead(&relay.leader).await;
    connection.say(&relay.signer(), &answer(1, &nonce, 4)).await;
    assert_eq!(inputs.recv().await, Some(heard(true, 4)));
    connection.say(&relay.signer(), &Statement::broadcast(2, group(5))).await;
    assert_eq!(inputs.recv().await, Some(heard(false, 5)));
    assert_eq!(relay.group.pods(), 7);
    let report = Report { epoch: 5, exit: None, started: None, progress: None };
    present.send_modify(|present| present.report = Some(report.clone()));
    assert_eq!(connection.reader.next().await.unwrap(), Some(FromAgent::Report(report.clone())));
    // The next connection tells of the report in its hello.
    drop(connection);
    assert_eq!(inputs.recv().await, Some(ChannelInput::Disconnected));
    let (_connection, next, again) = relay.accept().await;
    assert_eq!(again, Some(report));
    assert_ne!(next, nonce);
}

#[tokio::test]
async fn answer_to_another_hello_is_not_heard() {
    let relay = TestRelay::start().await;
    let (_present, mut inputs) = relay.client();
    let (mut connection, nonce, _) = relay.accept().await;
    let other = Nonce::random(provider().secure_random).unwrap();
    connection.lead(&relay.leader).await;
    connection.say(&relay.signer(), &answer(1, &other, 9)).await;
    connection.say(&relay.signer(), &answer(2, &nonce, 4)).await;
    assert_eq!(inputs.recv().await, Some(heard(true, 4)));
}

/// What a stolen relay may try.
#[derive(Clone, Copy, Debug)]
enum Forgery {
    /// It signs by itself.
    OwnKey,
    /// It has a certificate of the CA, of another part.
    OtherCertificate,
    /// It changes what the leader has signed.
    Changed,
    /// It does not say who leads.
    NoLeader,
}

#[rstest::rstest]
#[tokio::test]
async fn forged_statement_is_not_heard_and_ends_the_connection(
    #[values(Forgery::OwnKey, Forgery::OtherCertificate, Forgery::Changed, Forgery::NoLeader)] forgery: Forgery,
) {
    let relay = TestRelay::start().await;
    let (_present, mut inputs) = relay.client();
    let (mut connection, nonce, _) = relay.accept().await;
    let own = relay.pki.issue(RELAY, ExtendedKeyUsagePurpose::ServerAuth);
    match forgery {
        Forgery::NoLeader => {}
        Forgery::OtherCertificate => connection.lead(&own).await,
        Forgery::OwnKey | Forgery::Changed => connection.lead(&relay.leader).await,
    }
    let signer = if matches!(forgery, Forgery::Changed) { relay.signer() } else { Signer::new(&own.certified) };
    let signed = serde_json::to_string(&ToAgent::Signed(signer.sign(&answer(1, &nonce, 4)).unwrap())).unwrap();
    let signed = if matches!(forgery, Forgery::Changed) {
        signed.replace("\\\"synced\\\":4", "\\\"synced\\\":5")
    } else {
        signed
    };
    let message: ToAgent = serde_json::from_str(&signed).unwrap();
    // The client may have gone already.
    let _ = connection.writer.send(&message).await;
    assert_eq!(inputs.recv().await, Some(ChannelInput::Disconnected));
}

/// What the leader has signed once stays valid, and each copy would cost the check of its signature.
#[tokio::test]
async fn relay_that_repeats_a_statement_without_end_is_left() {
    let relay = TestRelay::start().await;
    let (_present, mut inputs) = relay.client();
    let mut connection = relay.answer(&mut inputs).await;
    let repeated = ToAgent::Signed(relay.signer().sign(&Statement::broadcast(2, group(5))).unwrap());
    let sending = async { while connection.writer.send(&repeated).await.is_ok() {} };
    let mut heard = 0;
    let listen = async {
        while let Some(ChannelInput::Statement { .. }) = inputs.recv().await {
            heard += 1;
        }
    };
    tokio::join!(sending, listen);
    assert!(f64::from(heard) < 2.0 * MESSAGE_BURST, "{heard}");
}

#[tokio::test]
async fn relay_of_another_ca_gets_no_token() {
    let (relay, other) = (TestRelay::start().await, TestRelay::start().await);
    std::fs::copy(other.folder.path().join(RELAY_CA), relay.folder.path().join(RELAY_CA)).unwrap();
    let (_present, mut inputs) = relay.client();
    let (tcp, _) = relay.listener.accept().await.unwrap();
    assert!(relay.tls.accept(tcp).await.is_err());
    assert_eq!(inputs.recv().await, Some(ChannelInput::Disconnected));
}

#[tokio::test]
async fn missing_files_are_waited_for() {
    let relay = TestRelay::start().await;
    let ca = std::fs::read(relay.folder.path().join(RELAY_CA)).unwrap();
    std::fs::remove_file(relay.folder.path().join(RELAY_CA)).unwrap();
    let (_present, mut inputs) = relay.client();
    assert_eq!(inputs.recv().await, Some(ChannelInput::Disconnected));
    std::fs::write(relay.folder.path().join(RELAY_CA), ca).unwrap();
    relay.accept().await;
}

#[tokio::test]
async fn leader_that_is_silent_ends_the_connection() {
    let relay = TestRelay::start().await;
    let (_present, mut inputs) = relay.client();
    let _connection = relay.answer(&mut inputs).await;
    // Time passes as soon as nothing else is to do.
    tokio::time::pause();
    assert_eq!(inputs.recv().await, Some(ChannelInput::Disconnected));
}

/// The agent waits for its turn as long as the relay lets it, and a new connection would begin at the end of the queue.
#[tokio::test]
async fn handshake_that_waits_for_its_turn_is_not_given_up() {
    let relay = TestRelay::start().await;
    let (_present, mut inputs) = relay.client();
    let (tcp, _) = relay.listener.accept().await.unwrap();
    relay.progress.subscribe().wait_for(|progress| *progress == Progress::Connected).await.unwrap();
    tokio::time::pause();
    tokio::time::advance(HANDSHAKE_TIMEOUT * 9 / 10).await;
    tokio::time::resume();
    assert!(inputs.try_recv().is_err());
    relay.tls.accept(tcp).await.unwrap();
}

#[rstest::rstest]
#[case::looks_the_relay_up(Progress::Connecting, 0, 2)]
#[case::was_rejected(Progress::Unconnected, 0, 1)]
#[case::is_in_the_queue(Progress::Connected, 1, 11)]
#[case::has_left_the_queue(Progress::Secured, 9, 19)]
#[case::nobody_leads(Progress::Leaderless, 3, 3)]
fn stream_is_waited_for_while_it_makes_progress(#[case] progress: Progress, #[case] at: u64, #[case] until: u64) {
    let start = Instant::now();
    let second = |second| start + Duration::from_secs(second);
    assert_eq!(progress.deadline(start, second(at)), second(until));
    assert!(progress.deadline(second(30), second(at)) >= second(30), "progress before the wait counts from its begin");
}

#[tokio::test]
async fn replaced_ca_ends_the_connection_and_the_next_follows() {
    let relay = TestRelay::start().await;
    let (_present, mut inputs) = relay.client();
    let _connection = relay.answer(&mut inputs).await;
    let both = relay.pki.pem() + &Pki::new().pem();
    std::fs::write(relay.folder.path().join(RELAY_CA), both).unwrap();
    // Time passes as soon as nothing else is to do.
    tokio::time::pause();
    let begin = Instant::now();
    assert_eq!(inputs.recv().await, Some(ChannelInput::Disconnected));
    assert!(begin.elapsed() < SILENCE, "the relay is not taken to be silent");
    relay.accept().await;
}

#[tokio::test]
async fn old_connection_is_replaced_within_an_hour() {
    let relay = TestRelay::start().await;
    let (_present, mut inputs) = relay.client();
    let mut connection = relay.answer(&mut inputs).await;
    tokio::time::pause();
    let begin = Instant::now();
    let ended = loop {
        tokio::time::advance(SILENCE / 10).await;
        let time = i64::try_from(begin.elapsed().as_millis()).unwrap() + 1;
        let statement = ToAgent::Signed(relay.signer().sign(&Statement::broadcast(time, group(4))).unwrap());
        if connection.writer.send(&statement).await.is_err() {
            break Instant::now();
        }
        match inputs.recv().await {
            Some(ChannelInput::Disconnected) => break Instant::now(),
            other => assert_eq!(other, Some(heard(false, 4))),
        }
    };
    assert!(ended - begin >= LONGEST_LIFE * 3 / 4 && ended - begin <= LONGEST_LIFE + SILENCE, "{:?}", ended - begin);
}

#[tokio::test]
async fn progress_tells_leaderless_relay_from_slow_one() {
    let relay = TestRelay::start().await;
    let mut progress = relay.progress.subscribe();
    let (_present, _inputs) = relay.client();
    progress.wait_for(|progress| *progress == Progress::Connected).await.unwrap();
    let (mut connection, ..) = relay.accept().await;
    progress.wait_for(|progress| *progress == Progress::Secured).await.unwrap();
    connection.writer.send(&ToAgent::NoLeader).await.unwrap();
    progress.wait_for(|progress| *progress == Progress::Leaderless).await.unwrap();
    connection.lead(&relay.leader).await;
    drop(connection);
    progress.wait_for(|progress| *progress == Progress::Unconnected).await.unwrap();
}
