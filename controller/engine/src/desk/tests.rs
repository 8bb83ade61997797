//! What the desk says, and what it does not.

use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use rstest::rstest;

mod limits;
mod repeats;
mod time;

use super::reads::{NAMESPACE_READS, READS};
use super::*;

/// A desk and its clock.
struct TestDesk {
    desk: Desk,
    start: Instant,
    millis: u64,
}

fn key() -> Key {
    Key { namespace: "ml".to_owned(), name: "train".to_owned() }
}

fn snapshot(version: u64, synced: i32) -> GroupSnapshot {
    of_uid("u", version, synced)
}

fn of_uid(uid: &str, version: u64, synced: i32) -> GroupSnapshot {
    let state =
        GroupState { uid: uid.to_owned(), synced, deprecated: 0, failed: false, bypass: false, pods: 2, pause: None };
    GroupSnapshot { state, version }
}

fn nonce(agent: u64) -> Nonce {
    serde_json::from_str(&format!("\"{agent:032x}\"")).unwrap()
}

fn hello(agent: u64) -> AgentEvent {
    let pod = PodRef { namespace: "ml".to_owned(), name: format!("pod-{agent}"), uid: format!("uid-{agent}") };
    let event = AgentEventKind::Hello { pod, jobset: "train".to_owned(), nonce: nonce(agent), report: None };
    AgentEvent { agent, event }
}

/// What is sent, in short: the answered agents with the epoch, or the epoch of a broadcast.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Answers(RelayId, i32, Vec<u64>),
    Group(RelayId, i32),
    /// The same state once more.
    Again(RelayId, i32),
    Beat(RelayId),
    Read,
}

fn said(outputs: Vec<DeskOutput>) -> Vec<Said> {
    let said = |output| match output {
        DeskOutput::Read(_) => Some(Said::Read),
        DeskOutput::Send(relay, RelayMessage::Answers { state, agents, .. }) => {
            for (agent, named) in &agents {
                assert_eq!(*named, nonce(*agent), "each is answered by its own nonce");
            }
            Some(Said::Answers(relay, state.synced, agents.into_iter().map(|(agent, _)| agent).collect()))
        }
        DeskOutput::Send(relay, RelayMessage::Group { statement, is_repeated, .. }) => {
            assert_eq!(statement.nonce, None);
            let synced = statement.group.unwrap().synced;
            Some(if is_repeated { Said::Again(relay, synced) } else { Said::Group(relay, synced) })
        }
        DeskOutput::Send(relay, RelayMessage::Beat(_)) => Some(Said::Beat(relay)),
        DeskOutput::Report { .. } | DeskOutput::AgentGone { .. } => None,
    };
    outputs.into_iter().filter_map(said).collect()
}

impl TestDesk {
    /// Two relays, 1 and 2.
    fn new() -> Self {
        let mut test = Self { desk: Desk::default(), start: Instant::now(), millis: 0 };
        for relay in [1, 2] {
            test.desk.relay_connected(relay, test.clocks());
        }
        test
    }

    /// Two relays with one agent each, 1 at relay 1 and 2 at relay 2, who know epoch 1.
    fn with_agents() -> Self {
        let mut test = Self::new();
        test.hear(1, vec![hello(1)]);
        test.hear(2, vec![hello(2)]);
        assert_eq!(test.next(), [Said::Read]);
        test.read(ReadOutcome::Found(snapshot(10, 1)));
        test.wait(READ_PAUSE * 2);
        test
    }

    fn now(&self) -> Instant {
        self.clocks().instant
    }

    fn clocks(&self) -> Now {
        let time = Timestamp::from_millisecond(1_000_000 + i64::try_from(self.millis).unwrap()).unwrap();
        Now { instant: self.start + Duration::from_millis(self.millis), time }
    }

    fn wait(&mut self, time: Duration) {
        self.millis += u64::try_from(time.as_millis()).unwrap();
    }

    fn hear(&mut self, relay: RelayId, events: Vec<AgentEvent>) -> Vec<Said> {
        said(self.desk.agent_events(relay, events, self.now()))
    }

    fn next(&mut self) -> Vec<Said> {
        said(self.desk.next(self.now()))
    }

    fn read(&mut self, outcome: ReadOutcome) -> Vec<Said> {
        said(self.desk.read(&key(), outcome, self.now()))
    }

    fn stored(&mut self, snapshot: GroupSnapshot) -> Vec<Said> {
        said(self.desk.stored(&key(), snapshot, self.now()))
    }
}

#[test]
fn hellos_share_a_read_and_each_gets_its_answer() {
    let mut test = TestDesk::new();
    test.hear(1, vec![hello(1), hello(2)]);
    test.hear(2, vec![hello(3)]);
    assert_eq!(test.next(), [Said::Read]);
    assert_eq!(test.next(), [], "one read at a time");
    let outputs = test.read(ReadOutcome::Found(snapshot(10, 1)));
    let answers = [Said::Answers(1, 1, vec![1, 2]), Said::Answers(2, 1, vec![3])];
    assert_eq!(outputs, [Said::Group(1, 1), Said::Group(2, 1)].into_iter().chain(answers).collect::<Vec<_>>());
    assert_eq!(test.read(ReadOutcome::Found(snapshot(10, 1))), [], "nobody is answered twice");
}

#[test]
fn hello_during_a_read_waits_for_the_next() {
    let mut test = TestDesk::new();
    test.hear(1, vec![hello(1)]);
    assert_eq!(test.next(), [Said::Read]);
    test.hear(1, vec![hello(2)]);
    test.wait(READ_PAUSE);
    assert_eq!(test.next(), [], "one read of a JobSet at a time");
    assert!(test.read(ReadOutcome::Found(snapshot(10, 1))).contains(&Said::Answers(1, 1, vec![1])));
    assert_eq!(test.next(), [Said::Read]);
    assert_eq!(test.read(ReadOutcome::Found(snapshot(11, 2)))[1..], [Said::Answers(1, 2, vec![2])]);
}

#[test]
fn reads_of_a_jobset_keep_a_distance() {
    let mut test = TestDesk::new();
    test.hear(1, vec![hello(1)]);
    assert_eq!(test.next(), [Said::Read]);
    test.read(ReadOutcome::Found(snapshot(10, 1)));
    test.hear(1, vec![hello(2)]);
    assert_eq!(test.next(), []);
    assert_eq!(test.desk.next_due(), Some(test.start + READ_PAUSE));
    test.wait(READ_PAUSE);
    assert_eq!(test.next(), [Said::Read]);
}

#[test]
fn many_hellos_share_fewer_reads() {
    let mut test = TestDesk::new();
    test.hear(1, (1..=100).map(hello).collect());
    assert_eq!(test.next(), [Said::Read]);
    test.read(ReadOutcome::Found(snapshot(10, 1)));
    test.hear(1, vec![hello(101)]);
    assert_eq!(test.next(), []);
    assert_eq!(test.desk.next_due(), Some(test.start + READ_PAUSE * 8));
}

#[test]
fn failed_read_is_repeated_with_backoff_and_hellos_wait() {
    let mut test = TestDesk::new();
    test.hear(1, vec![hello(1)]);
    for backoff in [100, 200, 400] {
        assert_eq!(test.next(), [Said::Read]);
        assert_eq!(test.read(ReadOutcome::Failed), []);
        test.wait(Duration::from_millis(backoff - 1));
        assert_eq!(test.next(), []);
        test.wait(Duration::from_millis(1));
    }
    test.hear(1, vec![hello(2)]);
    assert_eq!(test.next(), [Said::Read]);
    assert_eq!(test.read(ReadOutcome::Found(snapshot(10, 1)))[1..], [Said::Answers(1, 1, vec![1, 2])]);
}

#[test]
fn hello_for_missing_jobset_is_not_answered() {
    let mut test = TestDesk::new();
    test.hear(1, vec![hello(1)]);
    assert_eq!(test.next(), [Said::Read]);
    assert_eq!(test.read(ReadOutcome::NotFound), []);
    test.wait(READ_PAUSE);
    assert_eq!(test.next(), []);
}

/// Hellos for JobSets of different names in a namespace.
fn hellos(namespace: &str, first: usize, count: usize) -> Vec<AgentEvent> {
    let numbers = first..first + count;
    let hello_to = |number: usize| {
        let mut event = hello(u64::try_from(number).unwrap());
        if let AgentEventKind::Hello { pod, jobset, .. } = &mut event.event {
            namespace.clone_into(&mut pod.namespace);
            *jobset = number.to_string();
        }
        event
    };
    numbers.map(hello_to).collect()
}

#[test]
fn reads_of_many_jobsets_are_limited() {
    let mut test = TestDesk::new();
    let namespaces = READS / NAMESPACE_READS + 1;
    for number in 0..namespaces {
        test.hear(1, hellos(&format!("n{number}"), number * NAMESPACE_READS, NAMESPACE_READS));
    }
    assert_eq!(test.next().len(), READS);
    let first = Key { namespace: "n0".to_owned(), name: "0".to_owned() };
    said(test.desk.read(&first, ReadOutcome::NotFound, test.now()));
    assert_eq!(test.next(), [Said::Read]);
}

#[test]
fn reads_of_one_namespace_leave_room_for_others() {
    let mut test = TestDesk::new();
    test.hear(1, hellos("flood", 0, 1_000));
    assert_eq!(test.next().len(), NAMESPACE_READS);
    assert!(test.desk.next_due().is_none_or(|due| due > test.now()), "the desk would be asked without end");
    test.hear(1, hellos("other", 1_000, 1));
    assert_eq!(test.next(), [Said::Read]);
}

#[test]
fn stored_state_goes_once_to_each_relay_with_agents() {
    let mut test = TestDesk::with_agents();
    assert_eq!(test.stored(snapshot(11, 2)), [Said::Group(1, 2), Said::Group(2, 2)]);
    assert_eq!(test.stored(snapshot(11, 2)), [], "the watch shows what was written");
    assert_eq!(test.stored(snapshot(12, 2)), [], "nothing that agents act on has changed");
    test.desk.agent_events(2, vec![AgentEvent { agent: 2, event: AgentEventKind::Gone }], test.now());
    assert_eq!(test.stored(snapshot(13, 3)), [Said::Group(1, 3)]);
    test.desk.relay_gone(1);
    assert_eq!(test.stored(snapshot(14, 4)), []);
}

#[test]
fn state_older_than_the_last_is_not_said() {
    let mut test = TestDesk::with_agents();
    test.stored(snapshot(12, 3));
    assert_eq!(test.stored(snapshot(11, 2)), [], "the watch lags behind the write");
    assert_eq!(test.stored(snapshot(13, 3)), []);
}

#[test]
fn jobset_of_the_same_name_is_another_one() {
    let mut test = TestDesk::with_agents();
    test.stored(snapshot(11, 5));
    assert_eq!(test.stored(of_uid("other", 12, 0)), [Said::Group(1, 0), Said::Group(2, 0)]);
    assert_eq!(test.stored(snapshot(11, 5)), []);
}

#[test]
fn read_older_than_write_repeats_the_write() {
    let mut test = TestDesk::with_agents();
    test.hear(1, vec![hello(3)]);
    assert_eq!(test.next(), [Said::Read]);
    test.stored(snapshot(11, 2));
    let outputs = test.read(ReadOutcome::Found(snapshot(10, 1)));
    assert_eq!(outputs, [Said::Answers(1, 1, vec![3]), Said::Group(1, 2)]);
}

#[test]
fn read_of_a_replaced_jobset_is_repeated() {
    let mut test = TestDesk::with_agents();
    test.hear(1, vec![hello(3)]);
    assert_eq!(test.next(), [Said::Read]);
    test.stored(of_uid("other", 11, 0));
    assert_eq!(test.read(ReadOutcome::Found(snapshot(10, 1))), []);
    test.wait(READ_PAUSE);
    assert_eq!(test.next(), [Said::Read]);
    assert_eq!(test.read(ReadOutcome::Found(of_uid("other", 11, 0))), [Said::Answers(1, 0, vec![3])]);
}

#[test]
fn agent_that_has_gone_is_not_answered() {
    let mut test = TestDesk::new();
    test.hear(1, vec![hello(1), hello(2)]);
    assert_eq!(test.next(), [Said::Read]);
    test.hear(1, vec![AgentEvent { agent: 1, event: AgentEventKind::Gone }]);
    assert_eq!(test.read(ReadOutcome::Found(snapshot(10, 1)))[1..], [Said::Answers(1, 1, vec![2])]);
    test.hear(2, vec![hello(7)]);
    test.wait(READ_PAUSE);
    test.desk.relay_gone(2);
    assert_eq!(test.next(), [], "nobody waits");
}

#[test]
fn signs_of_life_go_to_all_relays() {
    let mut test = TestDesk::new();
    assert_eq!(test.next(), []);
    test.wait(BEAT);
    assert_eq!(test.next(), [Said::Beat(1), Said::Beat(2)]);
    assert_eq!(test.next(), []);
    assert_eq!(test.desk.next_due(), Some(test.now() + BEAT));
    assert_eq!(said(test.desk.relay_connected(3, test.clocks())), [Said::Beat(3)], "a new one gets it at once");
    for relay in [1, 2, 3] {
        test.desk.relay_gone(relay);
    }
    assert_eq!(test.desk.next_due(), None);
}

#[test]
fn agent_is_gone_with_the_last_connection_of_its_pod() {
    let mut test = TestDesk::with_agents();
    let AgentEvent { event, .. } = hello(1);
    test.desk.agent_events(2, vec![AgentEvent { agent: 9, event }], test.now());
    let gone = |agent| vec![AgentEvent { agent, event: AgentEventKind::Gone }];
    assert_eq!(test.desk.agent_events(1, gone(1), test.now()), []);
    let last = DeskOutput::AgentGone { key: Arc::new(key()), pod_uid: "uid-1".into() };
    assert_eq!(test.desk.agent_events(2, gone(9), test.now()), [last]);
}

#[test]
fn reports_name_the_pod_of_the_token() {
    let mut test = TestDesk::new();
    let started = "2026-01-01T00:00:00.2Z";
    let report =
        |epoch| Report { epoch, exit: Some("{}".to_owned()), started: Some(started.to_owned()), progress: None };
    let mut first = hello(1);
    if let AgentEventKind::Hello { report: of_hello, .. } = &mut first.event {
        *of_hello = Some(report(1));
    }
    let later = |agent| AgentEvent { agent, event: AgentEventKind::Report(report(2)) };
    let outputs = test.desk.agent_events(1, vec![first, later(1), later(9)], test.now());
    let reported = outputs.into_iter().filter_map(|output| match output {
        DeskOutput::Report { key: of, report: StreamReport { pod, pod_uid, epoch, exit, started: life, .. } } => {
            assert_eq!(life, started.parse().ok());
            assert_eq!((of.as_ref(), &*pod, &*pod_uid, exit.as_deref()), (&key(), "pod-1", "uid-1", Some("{}")));
            Some(epoch)
        }
        _ => None,
    });
    assert_eq!(reported.collect::<Vec<_>>(), [1, 2], "who has said no hello is not heard");
    let gone = test.desk.agent_events(1, vec![AgentEvent { agent: 1, event: AgentEventKind::Gone }], test.now());
    assert_eq!(gone, [DeskOutput::AgentGone { key: Arc::new(key()), pod_uid: "uid-1".into() }]);
    assert_eq!(test.desk.agent_events(1, vec![later(1)], test.now()), []);
}

#[test]
fn end_of_a_relay_is_that_of_its_agents() {
    let mut test = TestDesk::with_agents();
    assert_eq!((test.desk.relays(), test.desk.agents()), (2, 2));
    let gone = test.desk.relay_gone(1);
    assert_eq!(gone, [DeskOutput::AgentGone { key: Arc::new(key()), pod_uid: "uid-1".into() }]);
    assert_eq!((test.desk.relays(), test.desk.agents()), (1, 1));
    test.desk.relay_gone(2);
    assert!(test.desk.groups.is_empty() && test.desk.reads.is_idle(), "nothing is kept");
}
