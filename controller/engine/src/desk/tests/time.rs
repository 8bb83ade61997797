//! The time of statements.

use super::*;

#[test]
fn time_of_statements_grows_though_the_clock_is_set_back() {
    let mut test = TestDesk::with_agents();
    let mut times = Vec::new();
    let mut note = |outputs: Vec<DeskOutput>| {
        times.extend(outputs.into_iter().map(|output| match output {
            DeskOutput::Send(_, RelayMessage::Answers { time, .. }) => time,
            DeskOutput::Send(_, RelayMessage::Group { statement, .. } | RelayMessage::Beat(statement)) => {
                statement.time
            }
            other => panic!("{other:?} has no time"),
        }));
    };
    test.desk.agent_events(2, vec![AgentEvent { agent: 2, event: AgentEventKind::Gone }], test.now());
    note(test.desk.stored(&key(), snapshot(11, 2), test.now()));
    note(test.desk.stored(&key(), snapshot(12, 3), test.now()));
    test.wait(Duration::from_millis(500));
    note(test.desk.stored(&key(), snapshot(13, 4), test.now()));
    let back = Now { time: Timestamp::UNIX_EPOCH, ..test.clocks() };
    note(test.desk.relay_connected(3, back));
    test.desk.clear();
    note(test.desk.relay_connected(4, back));
    assert!(times.is_sorted_by(|one, other| one < other), "{times:?}");
    assert!(times.iter().all(|time| *time >= 1_000_000), "{times:?}");
}

#[test]
fn statement_time_is_monotonic_when_clock_is_set() {
    let mut test = TestDesk::with_agents();
    let times = [(3, 0), (4, 3_600_000), (5, -3_600_000)].map(|(relay, set)| {
        test.wait(BEAT);
        let now = test.clocks();
        let set = Now { time: Timestamp::from_millisecond(now.time.as_millisecond() + set).unwrap(), ..now };
        let outputs = test.desk.relay_connected(relay, set);
        let beat = outputs.into_iter().find_map(|output| match output {
            DeskOutput::Send(_, RelayMessage::Beat(statement)) => Some(statement.time),
            _ => None,
        });
        beat.expect("no sign of life")
    });
    let passed = i64::try_from(BEAT.as_millis()).unwrap();
    assert_eq!([times[1] - times[0], times[2] - times[1]], [passed; 2]);
}
