//! What one relay or agent may say, and what is kept of it.

use super::*;

#[rstest]
#[case::long_name(None, 254, false)]
#[case::longest_name(None, 253, true)]
#[case::own_namespace(Some("ml"), 5, true)]
#[case::another_namespace(Some("web"), 5, false)]
fn hello_is_taken_in(#[case] namespace: Option<&str>, #[case] length: usize, #[case] is_taken: bool) {
    let mut test = TestDesk::new();
    test.desk = Desk::new(namespace.map(str::to_owned));
    test.desk.relay_connected(1, test.clocks());
    let mut event = hello(1);
    if let AgentEventKind::Hello { jobset, .. } = &mut event.event {
        *jobset = "a".repeat(length);
    }
    test.hear(1, vec![event]);
    assert_eq!(test.desk.agents(), usize::from(is_taken));
}

#[test]
fn exit_text_that_is_too_long_is_left_out() {
    let mut test = TestDesk::with_agents();
    let exit = Some("x".repeat(EXIT_BYTES + 1));
    let event = AgentEvent {
        agent: 1,
        event: AgentEventKind::Report(Report { epoch: 2, exit, started: None, progress: None }),
    };
    let outputs = test.desk.agent_events(1, vec![event], test.now());
    assert!(matches!(&outputs[..], [DeskOutput::Report { report: StreamReport { epoch: 2, exit: None, .. }, .. }]));
}

#[test]
fn desk_keeps_less_than_1_kb_for_each_agent() {
    let strings = "train-workers-12345-67890-abcde".len() + "c0ffee00-0000-4000-8000-000000000000".len();
    assert!(size_of::<(u64, Agent)>() * 2 + strings < 256, "{}", size_of::<(u64, Agent)>());
}

#[test]
fn stolen_relay_with_forged_agents_is_limited_others_are_answered() {
    let mut test = TestDesk::with_agents();
    for first in (1..).step_by(1000).take(AGENTS_OF_A_RELAY / 1000 + 1) {
        test.desk.agent_events(1, (first..first + 1000).map(hello).collect(), test.now());
    }
    assert_eq!(test.desk.agents(), AGENTS_OF_A_RELAY + 1);
    test.hear(2, vec![hello(7)]);
    assert_eq!(test.desk.agents(), AGENTS_OF_A_RELAY + 2);
}
