//! What each connection gets.

use jobset_stream::message::FromRelay;
use rstest::rstest;
use serde_json::json;

use super::*;
use crate::limits::{AGENT_QUEUE, CONTROLLER_QUEUE};

fn hub() -> Hub {
    Hub::new(Capacity { agents: 100, of_namespace: 50 })
}

fn hello(pod: &str, jobset: &str) -> Hello {
    let pod = PodRef { namespace: "ml".into(), name: pod.into(), uid: format!("uid-{pod}") };
    let nonce = serde_json::from_value(json!("n")).unwrap();
    Hello { pod, jobset: jobset.into(), nonce, report: None }
}

fn report(epoch: i32) -> Report {
    Report { epoch, exit: None, started: None, progress: None }
}

fn signed(text: &str) -> Signed {
    serde_json::from_value(json!({"payload": text, "scheme": 0, "signature": ""})).unwrap()
}

fn of_group(jobset: &str, text: &str) -> ToRelay {
    ToRelay::Group { namespace: "ml".into(), jobset: jobset.into(), signed: signed(text) }
}

/// A controller that has sent certificates.
fn leader(hub: &mut Hub, name: &str) -> u64 {
    let (controller, _) = hub.connect();
    hub.hear(controller, ToRelay::Leader(vec![name.into()])).unwrap();
    controller
}

/// What an agent is sent: the names of leaders, and the texts of statements.
fn sent(hub: &mut Hub, agent: u64) -> Vec<String> {
    let Turn::Send(messages) = hub.agent_turn(agent, 1000) else { return Vec::new() };
    let text = |outgoing: Outgoing| match serde_json::from_slice(&outgoing.message).unwrap() {
        ToAgent::Leader(chain) => format!("leader {}", chain.concat()),
        ToAgent::NoLeader => "no leader".to_owned(),
        ToAgent::Signed(signed) => serde_json::to_value(signed).unwrap()["payload"].as_str().unwrap().to_owned(),
    };
    messages.into_iter().map(text).collect()
}

/// What a controller is told, frame by frame.
fn frames(hub: &mut Hub, controller: u64) -> Vec<Vec<AgentEvent>> {
    let mut frames = Vec::new();
    while let Turn::Send(frame) = hub.controller_turn(controller) {
        frames.push(serde_json::from_slice::<FromRelay>(&frame).unwrap().0);
    }
    frames
}

/// The same in short.
fn told(hub: &mut Hub, controller: u64) -> Vec<String> {
    let text = |it: AgentEvent| match it.event {
        AgentEventKind::Hello { pod, report, .. } => {
            format!("{} hello {} {:?}", it.agent, pod.name, report.map(|report| report.epoch))
        }
        AgentEventKind::Report(report) => format!("{} report {}", it.agent, report.epoch),
        AgentEventKind::Gone => format!("{} gone", it.agent),
    };
    frames(hub, controller).into_iter().flatten().map(text).collect()
}

#[test]
fn controllers_hear_reports_in_order_after_all_agents() {
    let mut hub = hub();
    let (first, bell) = hub.connect();
    let (a, _) = hub.join(hello("a", "train")).unwrap();
    hub.pass(a, AgentEventKind::Report(report(1)));
    let (b, _) = hub.join(hello("b", "train")).unwrap();
    hub.pass(a, AgentEventKind::Report(report(2)));
    let (second, _) = hub.connect();
    hub.leave(b);
    let both = [format!("{a} hello a None"), format!("{a} report 1"), format!("{b} hello b None")];
    let both = both.into_iter().chain([format!("{a} report 2"), format!("{b} gone")]).collect::<Vec<_>>();
    assert_eq!(told(&mut hub, first), both);
    assert_eq!(
        told(&mut hub, second),
        [format!("{a} hello a Some(2)"), format!("{b} hello b None"), format!("{b} gone")]
    );
    assert!(futures::FutureExt::now_or_never(bell.notified()).is_some());
}

#[test]
fn report_after_the_end_is_not_told() {
    let mut hub = hub();
    let (controller, _) = hub.connect();
    let (a, _) = hub.join(hello("a", "train")).unwrap();
    hub.leave(a);
    hub.pass(a, AgentEventKind::Report(report(1)));
    hub.leave(a);
    assert_eq!(told(&mut hub, controller), [format!("{a} hello a None"), format!("{a} gone")]);
}

#[test]
fn frames_are_bounded_in_events_and_bytes() {
    let mut hub = Hub::new(Capacity { agents: 10_000, of_namespace: 10_000 });
    let (controller, _) = hub.connect();
    for number in 0..1000 {
        hub.join(hello(&number.to_string(), "train")).unwrap();
    }
    let lengths: Vec<_> = frames(&mut hub, controller).iter().map(Vec::len).collect();
    assert_eq!(lengths, [512, 488]);
    let (a, _) = hub.join(hello("a", "train")).unwrap();
    // Escaped, a text is six times as long.
    let exit = Some("\u{1}".repeat(8 << 10));
    (0..100).for_each(|epoch| {
        hub.pass(a, AgentEventKind::Report(Report { epoch, exit: exit.clone(), started: None, progress: None }));
    });
    let mut told = 0;
    while let Turn::Send(frame) = hub.controller_turn(controller) {
        assert!(frame.len() <= jobset_stream::CONTROLLER_FRAME);
        told += serde_json::from_slice::<FromRelay>(&frame).unwrap().0.len();
    }
    assert_eq!(told, 101);
}

#[test]
fn statement_reaches_its_group_answer_its_agent_and_beat_all() {
    let mut hub = hub();
    let [a, b, c] = [("a", "x"), ("b", "x"), ("c", "y")].map(|(pod, jobset)| hub.join(hello(pod, jobset)).unwrap().0);
    let controller = leader(&mut hub, "L");
    hub.hear(controller, of_group("x", "S")).unwrap();
    assert_eq!(sent(&mut hub, a), ["no leader", "leader L", "S"]);
    hub.hear(controller, ToRelay::Answer { agent: b, signed: signed("A") }).unwrap();
    assert_eq!(sent(&mut hub, b), ["no leader", "leader L", "S", "A"]);
    assert_eq!(sent(&mut hub, c), ["no leader"]);
    hub.hear(controller, ToRelay::Beat(signed("B"))).unwrap();
    assert_eq!([a, b, c].map(|agent| sent(&mut hub, agent)), [vec!["B"], vec!["B"], vec!["leader L", "B"]]);
    hub.hear(controller, ToRelay::Group { namespace: "other".into(), jobset: "x".into(), signed: signed("S") })
        .unwrap();
    hub.hear(controller, ToRelay::Answer { agent: 999, signed: signed("A") }).unwrap();
    assert_eq!(sent(&mut hub, a), Vec::<String>::new());
}

#[test]
fn agent_hears_at_once_whether_somebody_leads() {
    let mut hub = hub();
    let (early, _) = hub.join(hello("early", "x")).unwrap();
    assert_eq!(sent(&mut hub, early), ["no leader"]);
    leader(&mut hub, "L");
    hub.connect();
    let (late, _) = hub.join(hello("late", "x")).unwrap();
    assert_eq!(sent(&mut hub, late), ["leader L"]);
}

#[test]
fn agents_that_wait_hear_that_the_last_leader_is_gone() {
    let mut hub = hub();
    let [one, other] = ["1", "2"].map(|name| leader(&mut hub, name));
    let (answered, _) = hub.join(hello("answered", "x")).unwrap();
    let (waiting, bell) = hub.join(hello("waiting", "x")).unwrap();
    hub.hear(other, ToRelay::Answer { agent: answered, signed: signed("A") }).unwrap();
    assert_eq!([answered, waiting].map(|agent| sent(&mut hub, agent).len()), [2, 1]);
    hub.disconnect(one);
    assert_eq!(sent(&mut hub, waiting), Vec::<String>::new(), "the other one may answer");
    hub.disconnect(other);
    assert_eq!(sent(&mut hub, waiting), ["no leader"]);
    assert!(futures::FutureExt::now_or_never(bell.notified()).is_some());
    assert_eq!(sent(&mut hub, answered), Vec::<String>::new(), "it waits for the next leader");
    for name in ["3", "4"] {
        let next = leader(&mut hub, name);
        hub.disconnect(next);
    }
    assert_eq!(sent(&mut hub, waiting), ["no leader"], "once, for an agent that does not read");
}

#[test]
fn certificates_come_again_when_another_leader_speaks_or_they_change() {
    let mut hub = hub();
    let (a, _) = hub.join(hello("a", "x")).unwrap();
    let (old, new) = (leader(&mut hub, "old"), leader(&mut hub, "new"));
    for controller in [old, new, new, old] {
        hub.hear(controller, ToRelay::Answer { agent: a, signed: signed("A") }).unwrap();
    }
    assert_eq!(sent(&mut hub, a), ["no leader", "leader old", "A", "leader new", "A", "A", "leader old", "A"]);
    hub.hear(old, ToRelay::Leader(vec!["old".into()])).unwrap();
    hub.hear(old, ToRelay::Beat(signed("B"))).unwrap();
    assert_eq!(sent(&mut hub, a), ["B"], "the same certificates are not repeated");
    hub.hear(old, ToRelay::Leader(vec!["renewed".into()])).unwrap();
    hub.hear(old, ToRelay::Beat(signed("B"))).unwrap();
    assert_eq!(sent(&mut hub, a), ["leader renewed", "B"]);
}

#[test]
fn slow_agent_gets_last_statement_of_each_leader() {
    let mut hub = hub();
    let (a, _) = hub.join(hello("a", "x")).unwrap();
    let (one, two) = (leader(&mut hub, "1"), leader(&mut hub, "2"));
    hub.hear(one, of_group("x", "S1")).unwrap();
    hub.hear(two, of_group("x", "T1")).unwrap();
    hub.hear(one, ToRelay::Answer { agent: a, signed: signed("A") }).unwrap();
    hub.hear(one, of_group("x", "S2")).unwrap();
    hub.hear(one, ToRelay::Beat(signed("B"))).unwrap();
    assert_eq!(sent(&mut hub, a), ["no leader", "leader 1", "leader 2", "T1", "leader 1", "A", "S2"]);
}

#[test]
fn agent_that_does_not_read_is_ended_alone() {
    let mut hub = hub();
    let (controller, _) = hub.connect();
    let (slow, bell) = hub.join(hello("slow", "x")).unwrap();
    let (other, _) = hub.join(hello("other", "x")).unwrap();
    let speaker = leader(&mut hub, "L");
    told(&mut hub, controller);
    for _ in 0..AGENT_QUEUE {
        hub.hear(speaker, ToRelay::Answer { agent: slow, signed: signed("A") }).unwrap();
    }
    assert_eq!(hub.ended(slow), Some(Limit::Queue), "certificates count, too");
    assert!(futures::FutureExt::now_or_never(bell.notified()).is_some());
    assert_eq!(told(&mut hub, controller), [format!("{slow} gone")]);
    assert_eq!(hub.agent_turn(slow, 1), Turn::End(Limit::Queue));
    hub.hear(speaker, of_group("x", "S")).unwrap();
    assert_eq!(sent(&mut hub, other), ["no leader", "leader L", "S"]);
    hub.leave(slow);
    assert_eq!((hub.agents(), hub.ended.len()), (1, 0));
}

#[test]
fn controller_that_does_not_read_is_ended_beyond_its_snapshot() {
    let mut hub = hub();
    for pod in ["a", "b"] {
        hub.join(hello(pod, "x")).unwrap();
    }
    let (controller, _) = hub.connect();
    let reporting = 1;
    for _ in 0..CONTROLLER_QUEUE {
        hub.pass(reporting, AgentEventKind::Report(report(1)));
    }
    assert_eq!(hub.ended(controller), None);
    hub.pass(reporting, AgentEventKind::Report(report(1)));
    assert_eq!(hub.controller_turn(controller), Turn::End(Limit::Queue));
    assert_eq!(hub.controllers(), 0);
}

#[test]
fn controller_that_does_not_read_is_ended_by_bytes() {
    let mut hub = hub();
    let (a, _) = hub.join(hello("a", "x")).unwrap();
    let (controller, _) = hub.connect();
    let text = "x".repeat(8 << 10);
    let ended = (0..CONTROLLER_QUEUE).find(|_| {
        hub.pass(
            a,
            AgentEventKind::Report(Report { epoch: 1, exit: Some(text.clone()), started: None, progress: None }),
        );
        hub.ended(controller).is_some()
    });
    assert!(ended.is_some_and(|reports| reports < 2048), "{ended:?}");
}

#[test]
fn new_connection_of_pod_evicts_its_oldest() {
    let mut hub = hub();
    let numbers: Vec<_> = (0..3).map(|_| hub.join(hello("a", "x")).unwrap().0).collect();
    assert_eq!(hub.ended(numbers[0]), Some(Limit::Pod));
    assert_eq!((hub.ended(numbers[1]), hub.ended(numbers[2]), hub.agents()), (None, None, 2));
    let mut other = hello("a", "x");
    other.pod.uid = "another".into();
    hub.join(other).unwrap();
    assert_eq!(hub.agents(), 3, "a Pod of the same name and another UID is another Pod");
}

#[rstest]
#[case::in_all(Capacity { agents: 2, of_namespace: 9 }, Limit::Connections)]
#[case::of_its_namespace(Capacity { agents: 9, of_namespace: 2 }, Limit::Namespace)]
fn agent_too_many_is_rejected_until_another_leaves(#[case] capacity: Capacity, #[case] limit: Limit) {
    let mut hub = Hub::new(capacity);
    let (first, _) = hub.join(hello("a", "x")).unwrap();
    hub.join(hello("b", "x")).unwrap();
    assert_eq!(hub.join(hello("c", "x")).unwrap_err(), limit);
    hub.leave(first);
    hub.join(hello("c", "x")).unwrap();
}

#[test]
fn full_namespace_leaves_room_for_others() {
    let mut hub = Hub::new(Capacity { agents: 9, of_namespace: 1 });
    hub.join(hello("a", "x")).unwrap();
    let mut other = hello("b", "x");
    other.pod.namespace = "other".into();
    hub.join(other).unwrap();
}

#[test]
fn controller_too_many_takes_the_place_of_the_silent_one() {
    let mut hub = hub();
    let controllers: Vec<_> = (0..CONTROLLERS).map(|_| leader(&mut hub, "L")).collect();
    hub.hear(controllers[0], ToRelay::Beat(signed("B"))).unwrap();
    let (newest, _) = hub.connect();
    assert_eq!(hub.ended(controllers[0]), None);
    assert_eq!(hub.controller_turn(controllers[1]), Turn::End(Limit::Controllers));
    assert_eq!((hub.controllers(), hub.controller_turn(newest)), (CONTROLLERS, Turn::Wait));
}

#[test]
fn controller_that_breaks_the_protocol_is_an_error() {
    let mut hub = hub();
    let (controller, _) = hub.connect();
    let beat = ToRelay::Beat(signed("B"));
    assert_eq!(hub.hear(controller, beat), Err(ControllerError::NoLeader));
    let long = "x".repeat(AGENT_FRAME);
    assert_eq!(hub.hear(controller, ToRelay::Leader(vec![long.clone()])), Err(ControllerError::TooLong));
    hub.hear(controller, ToRelay::Leader(vec!["L".into()])).unwrap();
    assert_eq!(hub.hear(controller, ToRelay::Beat(signed(&long))), Err(ControllerError::TooLong));
}

#[test]
fn texts_kept_are_bounded_and_all_are_sent() {
    let mut hub = Hub::new(Capacity { agents: 3000, of_namespace: 3000 });
    let text = |bytes: usize| Some("x".repeat(bytes));
    let report = || Report { epoch: 1, exit: text(8 << 10), started: None, progress: text(4 << 10) };
    let texts = KEPT_TEXTS / (12 << 10);
    let agents: Vec<_> = (0..=texts).map(|pod| hub.join(hello(&pod.to_string(), "x")).unwrap().0).collect();
    let (controller, _) = hub.connect();
    for (number, agent) in agents.iter().enumerate() {
        hub.pass(*agent, AgentEventKind::Report(report()));
        if number % 1000 == 0 {
            told(&mut hub, controller);
        }
    }
    assert_eq!(hub.kept_texts, texts * (12 << 10));
    assert_eq!(hub.agents[agents.last().unwrap()].kept_bytes(), 0);
    let last = frames(&mut hub, controller).pop().unwrap().pop().unwrap();
    assert_eq!(last.event, AgentEventKind::Report(report()));
    for agent in agents {
        hub.leave(agent);
    }
    assert_eq!(hub.kept_texts, 0);
}

#[test]
fn text_about_progress_makes_room_for_exit() {
    let (hello, outbox, bell) = (hello("a", "x"), Outbox::default(), Bell::default());
    let mut agent = Agent { hello, is_answered: false, outbox, bell };
    let text = |bytes: usize| Some("x".repeat(bytes));
    let kept = |agent: &Agent| {
        let report = agent.hello.report.as_ref().unwrap();
        (report.exit.is_some(), report.progress.is_some())
    };
    for (room, expected) in [(12, (true, true)), (11, (true, false)), (7, (false, false))] {
        agent.hello.report = Some(Report { epoch: 1, exit: text(8), started: None, progress: text(4) });
        let bytes = agent.limit_texts(room);
        assert_eq!((kept(&agent), bytes), (expected, agent.kept_bytes()), "{room}");
    }
}

#[test]
fn hub_without_connections_is_empty() {
    let mut hub = hub();
    let (a, _) = hub.join(hello("a", "x")).unwrap();
    for _ in 0..3 {
        hub.join(hello("b", "x")).unwrap();
    }
    let controller = leader(&mut hub, "L");
    for number in 0..=a + 9 {
        hub.leave(number);
    }
    hub.disconnect(controller);
    assert!(hub.agents.is_empty() && hub.groups.is_empty() && hub.pods.is_empty());
    assert!(hub.namespaces.is_empty() && hub.controllers.is_empty() && hub.ended.is_empty());
}
