//! What is said again, so that no relay can withhold it for long.

use super::*;

/// What is said in so much time, in its order.
fn said_within(test: &mut TestDesk, time: Duration) -> Vec<Said> {
    let end = test.now() + time;
    let mut said = Vec::new();
    while let Some(due) = test.desk.next_due().filter(|due| *due <= end) {
        test.wait(due.saturating_duration_since(test.now()).max(Duration::from_millis(1)));
        said.extend(test.next());
    }
    test.wait(end.saturating_duration_since(test.now()));
    said
}

#[test]
fn state_is_repeated_to_each_relay_with_agents() {
    let mut test = TestDesk::with_agents();
    assert_eq!(said_within(&mut test, BEAT), [Said::Again(1, 1), Said::Again(2, 1)]);
    test.stored(snapshot(11, 2));
    assert_eq!(said_within(&mut test, BEAT), [Said::Again(1, 2), Said::Again(2, 2)]);
    test.desk.agent_events(2, vec![AgentEvent { agent: 2, event: AgentEventKind::Gone }], test.now());
    let said = said_within(&mut test, BEAT);
    assert!(said.contains(&Said::Again(1, 2)) && said.contains(&Said::Beat(2)) && said.len() == 2, "{said:?}");
    test.desk.agent_events(1, vec![AgentEvent { agent: 1, event: AgentEventKind::Gone }], test.now());
    assert_eq!(said_within(&mut test, BEAT), [Said::Beat(1), Said::Beat(2)]);
}

/// Before it is known, there is nothing to repeat, and the relay has to know that somebody leads.
#[test]
fn relay_whose_agents_are_not_answered_gets_signs_of_life() {
    let mut test = TestDesk::new();
    test.hear(1, vec![hello(1)]);
    let said = said_within(&mut test, BEAT);
    assert_eq!(said, [Said::Read, Said::Beat(1), Said::Beat(2)]);
    test.read(ReadOutcome::NotFound);
    assert_eq!(said_within(&mut test, BEAT), [Said::Beat(1), Said::Beat(2)]);
}

#[test]
fn thousand_jobsets_are_repeated_once_a_beat_in_small_parts() {
    const JOBSETS: usize = 1_000;
    let mut test = TestDesk::new();
    for namespace in 0..JOBSETS / 4 {
        test.hear(1, hellos(&namespace.to_string(), namespace * 4, 4));
    }
    for jobset in 0..JOBSETS {
        test.next();
        let key = Key { namespace: (jobset / 4).to_string(), name: jobset.to_string() };
        test.desk.read(&key, ReadOutcome::Found(snapshot(10, 1)), test.now());
    }
    let (mut repeated, mut most) = (0, 0);
    let end = test.now() + BEAT;
    while let Some(due) = test.desk.next_due().filter(|due| *due <= end) {
        test.wait(due.saturating_duration_since(test.now()).max(Duration::from_millis(1)));
        let said = test.next().into_iter().filter(|said| matches!(said, Said::Again(..))).count();
        (repeated, most) = (repeated + said, most.max(said));
    }
    assert!(repeated == JOBSETS && most <= 34, "{repeated} repeated, at most {most} at once");
}
