use super::*;

fn state(synced: i32, deprecated: i32) -> JobSetState {
    JobSetState { uid: "u".into(), synced, deprecated, failed: false, bypass: false }
}

fn told(synced: i32) -> ChannelOutput {
    told_of(synced, 0)
}

fn told_of(synced: i32, deprecated: i32) -> ChannelOutput {
    ChannelOutput::Tell(Input::JobSet(state(synced, deprecated)))
}

fn answer(synced: i32) -> ChannelInput {
    ChannelInput::Statement { is_answer: true, state: state(synced, 0) }
}

fn broadcast(synced: i32, deprecated: i32) -> ChannelInput {
    ChannelInput::Statement { is_answer: false, state: state(synced, deprecated) }
}

fn report(epoch: i32) -> Report {
    Report { epoch, exit: None, started: None, progress: None }
}

fn reports(epoch: i32) -> ChannelInput {
    ChannelInput::Report(report(epoch))
}

fn written(epoch: i32) -> ChannelInput {
    ChannelInput::Written(Input::Reported { epoch })
}

fn failed(epoch: i32) -> ChannelInput {
    ChannelInput::Written(Input::ReportFailed { epoch, retry_after: None })
}

fn live() -> Channels {
    let (mut channels, _) = Channels::new(true);
    channels.step(answer(1));
    channels.step(ChannelInput::StreamTimeout);
    channels
}

#[test]
fn agent_without_relay_watches_and_writes_at_once() {
    let (mut channels, first) = Channels::new(false);
    assert_eq!(first, ChannelOutput::Watch);
    assert_eq!(channels.step(ChannelInput::Watched(Input::JobSet(state(1, 0)))), [told(1)]);
    assert_eq!(channels.step(reports(2)), [ChannelOutput::Write { epoch: 2 }]);
    assert_eq!(channels.step(failed(2)).len(), 1);
    assert_eq!(channels.step(reports(2)), [ChannelOutput::Write { epoch: 2 }]);
    assert_eq!(channels.step(written(2)), [ChannelOutput::Tell(Input::Reported { epoch: 2 })]);
}

#[test]
fn newborn_ignores_broadcasts_until_its_answer() {
    let (mut channels, first) = Channels::new(true);
    assert_eq!(first, ChannelOutput::AwaitStream);
    assert_eq!(channels.step(broadcast(1, 0)), []);
    assert_eq!(channels.step(answer(2)), [told(2)]);
    assert_eq!(channels.step(broadcast(3, 0)), [told(3)]);
    // With a consistent state it may hear old ones: its state machine keeps the largest epochs.
    channels.step(ChannelInput::Disconnected);
    assert_eq!(channels.step(broadcast(1, 0)), [told(1)]);
}

#[test]
fn late_stream_is_replaced_by_watch_until_live() {
    let (mut channels, _) = Channels::new(true);
    assert_eq!(channels.step(ChannelInput::StreamTimeout), [ChannelOutput::Watch]);
    assert_eq!(channels.step(ChannelInput::StreamTimeout), []);
    channels.step(ChannelInput::Watched(Input::JobSet(state(1, 0))));
    assert_eq!(channels.step(reports(2)), [ChannelOutput::Write { epoch: 2 }]);
    let outputs = channels.step(answer(1));
    let reported = ChannelOutput::Tell(Input::Reported { epoch: 2 });
    assert_eq!(outputs, [ChannelOutput::StopWatch, ChannelOutput::Send(report(2)), reported, told(1)]);
    // A write without an answer holds up no other report, and is repeated later if it fails.
    assert_eq!(channels.step(reports(3))[0], ChannelOutput::Send(report(3)));
    assert_eq!(channels.step(failed(2)), []);
}

#[test]
fn report_behind_another_write_goes_over_live_stream() {
    let (mut channels, _) = Channels::new(true);
    channels.step(ChannelInput::StreamTimeout);
    channels.step(ChannelInput::Watched(Input::JobSet(state(1, 0))));
    channels.step(reports(2));
    assert_eq!(channels.step(reports(3)), [], "the first write has no answer");
    let outputs = channels.step(answer(2));
    let reported = ChannelOutput::Tell(Input::Reported { epoch: 3 });
    assert_eq!(outputs[1..4], [ChannelOutput::Send(report(3)), reported, LATER]);
    channels.step(written(2));
    assert_eq!(channels.step(ChannelInput::WriteDue), [ChannelOutput::Write { epoch: 3 }]);
}

#[test]
fn report_that_is_repeated_does_not_put_its_write_off() {
    let mut channels = live();
    assert_eq!(channels.step(reports(2)).len(), 3);
    let again = channels.step(reports(2));
    assert_eq!(again, [ChannelOutput::Send(report(2)), ChannelOutput::Tell(Input::Reported { epoch: 2 })]);
    assert_eq!(channels.step(ChannelInput::WriteDue), [ChannelOutput::Write { epoch: 2 }]);
}

#[test]
fn report_over_the_stream_is_written_later() {
    let mut channels = live();
    let outputs = channels.step(reports(2));
    let reported = ChannelOutput::Tell(Input::Reported { epoch: 2 });
    assert_eq!(outputs, [ChannelOutput::Send(report(2)), reported, LATER]);
    assert_eq!(channels.step(ChannelInput::WriteDue), [ChannelOutput::Write { epoch: 2 }]);
    assert_eq!(channels.step(written(2)), []);
    assert_eq!(channels.step(ChannelInput::WriteDue), []);
}

#[test]
fn late_write_that_fails_is_repeated() {
    let mut channels = live();
    channels.step(reports(2));
    channels.step(ChannelInput::WriteDue);
    assert_eq!(channels.step(failed(2)), [LATER]);
    assert_eq!(channels.step(ChannelInput::WriteDue), [ChannelOutput::Write { epoch: 2 }]);
}

#[test]
fn write_that_is_due_during_another_follows_later() {
    let mut channels = live();
    channels.step(reports(2));
    channels.step(ChannelInput::WriteDue);
    channels.step(reports(3));
    assert_eq!(channels.step(ChannelInput::WriteDue), [LATER]);
    channels.step(written(2));
    assert_eq!(channels.step(ChannelInput::WriteDue), [ChannelOutput::Write { epoch: 3 }]);
}

#[test]
fn awaited_write_failing_after_stream_return_is_repeated_later() {
    let mut channels = live();
    channels.step(ChannelInput::Disconnected);
    channels.step(reports(2));
    let reported = ChannelOutput::Tell(Input::Reported { epoch: 2 });
    assert_eq!(channels.step(answer(1)), [ChannelOutput::Send(report(2)), reported, told(1)]);
    assert_eq!(channels.step(failed(2)), [LATER]);
    assert_eq!(channels.step(ChannelInput::WriteDue), [ChannelOutput::Write { epoch: 2 }]);
}

#[test]
fn failed_write_is_repeated_later_after_stream_return() {
    let mut channels = live();
    channels.step(ChannelInput::Disconnected);
    channels.step(reports(2));
    assert_eq!(channels.step(failed(2)).len(), 1, "the state machine of the agent reports again");
    let reported = ChannelOutput::Tell(Input::Reported { epoch: 2 });
    assert_eq!(channels.step(answer(1)), [ChannelOutput::Send(report(2)), reported, LATER, told(1)]);
    assert_eq!(channels.step(ChannelInput::WriteDue), [ChannelOutput::Write { epoch: 2 }]);
}

#[test]
fn annotation_is_left_out_when_a_newer_restart_has_begun() {
    let mut channels = live();
    channels.step(reports(2));
    channels.step(broadcast(2, 2));
    assert_eq!(channels.step(ChannelInput::WriteDue), []);
    channels.step(reports(3));
    assert_eq!(channels.step(ChannelInput::WriteDue), [ChannelOutput::Write { epoch: 3 }]);
}

#[test]
fn stream_that_breaks_has_the_annotation_written_at_once() {
    let mut channels = live();
    channels.step(reports(2));
    let outputs = channels.step(ChannelInput::Disconnected);
    assert_eq!(outputs, [ChannelOutput::Write { epoch: 2 }, ChannelOutput::AwaitStream]);
    assert!(channels.has_fallen_back());
    assert_eq!(channels.step(ChannelInput::StreamTimeout), [ChannelOutput::Watch]);
    channels.step(answer(2));
    assert!(!channels.has_fallen_back());
}

#[test]
fn report_maybe_lost_with_stream_is_repeated_soon() {
    let mut channels = live();
    channels.step(reports(2));
    channels.step(ChannelInput::Disconnected);
    let answer = Input::ReportFailed { epoch: 2, retry_after: None };
    assert_eq!(channels.step(failed(2)), [ChannelOutput::Tell(answer), LATER]);
    assert_eq!(channels.step(reports(2)), [ChannelOutput::Write { epoch: 2 }]);
}

#[test]
fn agent_that_ends_knows_which_annotation_is_missing() {
    let mut channels = live();
    assert_eq!(channels.unwritten(), None);
    channels.step(reports(2));
    assert_eq!(channels.unwritten(), Some(2));
    channels.step(ChannelInput::WriteDue);
    assert_eq!(channels.unwritten(), Some(2));
    channels.step(written(2));
    assert_eq!(channels.unwritten(), None);
}

#[test]
fn two_writes_are_never_under_way() {
    let mut channels = live();
    channels.step(reports(2));
    channels.step(ChannelInput::WriteDue);
    channels.step(ChannelInput::Disconnected);
    // The older epoch could arrive last.
    assert_eq!(channels.step(reports(3)), []);
    assert_eq!(channels.step(written(2)), [ChannelOutput::Write { epoch: 3 }]);
    assert_eq!(channels.step(written(3)), [ChannelOutput::Tell(Input::Reported { epoch: 3 })]);
}

#[test]
fn newer_report_over_the_stream_waits_for_its_own_delay() {
    let mut channels = live();
    channels.step(reports(2));
    channels.step(ChannelInput::WriteDue);
    channels.step(reports(3));
    assert_eq!(channels.step(written(2)), []);
    assert_eq!(channels.step(ChannelInput::WriteDue), [ChannelOutput::Write { epoch: 3 }]);
}

#[test]
fn connections_that_keep_failing_do_not_put_off_the_watch() {
    let (mut channels, _) = Channels::new(true);
    assert_eq!(channels.step(ChannelInput::Disconnected), []);
    assert_eq!(channels.step(ChannelInput::StreamTimeout), [ChannelOutput::Watch]);
}

fn progress(text: &str, is_urgent: bool) -> ChannelInput {
    ChannelInput::Progress { text: text.to_owned(), is_urgent }
}

fn progressed(epoch: i32, text: &str) -> Report {
    Report { progress: Some(text.to_owned()), ..report(epoch) }
}

#[test]
fn steps_go_over_the_stream_alone() {
    let mut channels = live();
    channels.step(reports(2));
    channels.step(ChannelInput::WriteDue);
    channels.step(written(2));
    assert_eq!(channels.step(progress("a", false)), [ChannelOutput::Send(progressed(2, "a"))]);
    channels.step(ChannelInput::Disconnected);
    assert_eq!(channels.step(progress("b", false)), []);
    // The report on the next connection has them.
    assert_eq!(channels.step(answer(2))[0], ChannelOutput::Send(progressed(2, "b")));
}

#[test]
fn stall_goes_over_the_stream_and_is_written_later() {
    let mut channels = live();
    channels.step(reports(2));
    channels.step(ChannelInput::WriteDue);
    channels.step(written(2));
    let outputs = channels.step(progress("a", true));
    assert_eq!(outputs, [ChannelOutput::Send(progressed(2, "a")), LATER]);
    // The write of the end of the stall is the same.
    assert_eq!(channels.step(progress("b", true)), [ChannelOutput::Send(progressed(2, "b"))]);
    assert_eq!(channels.step(ChannelInput::WriteDue), [ChannelOutput::Write { epoch: 2 }]);
    // An end that comes meanwhile is written afterwards.
    channels.step(progress("c", true));
    assert_eq!(channels.step(written(2)), []);
    assert_eq!(channels.step(ChannelInput::WriteDue), [ChannelOutput::Write { epoch: 2 }]);
}

#[test]
fn stall_without_stream_is_written_promptly() {
    let prompt = || ChannelOutput::WriteLater { is_prompt: true };
    let (mut channels, _) = Channels::new(false);
    assert_eq!(channels.step(progress("a", true)), [], "before the first report");
    channels.step(ChannelInput::Watched(Input::JobSet(state(1, 0))));
    channels.step(reports(2));
    assert_eq!(channels.step(progress("a", true)), [prompt()]);
    assert_eq!(channels.step(ChannelInput::WriteDue), [LATER], "one write at a time");
    let reported = ChannelOutput::Tell(Input::Reported { epoch: 2 });
    assert_eq!(channels.step(written(2)), [reported, ChannelOutput::Write { epoch: 2 }]);
    assert_eq!(channels.step(written(2)), []);
    // The agents of a group do not write in the same second.
    assert_eq!(channels.step(progress("b", true)), [prompt()]);
    assert_eq!(channels.step(ChannelInput::WriteDue), [ChannelOutput::Write { epoch: 2 }]);
    // A write that fails is tried again, and nobody waits for it. What is urgent does not wait as long.
    assert_eq!(channels.step(failed(2)), [LATER]);
    assert_eq!(channels.step(progress("c", true)), [prompt()]);
    assert_eq!(channels.step(ChannelInput::WriteDue), [ChannelOutput::Write { epoch: 2 }]);
}

#[test]
fn stall_of_deprecated_epoch_is_not_written() {
    let mut channels = live();
    channels.step(reports(2));
    channels.step(ChannelInput::WriteDue);
    channels.step(written(2));
    channels.step(progress("a", true));
    channels.step(broadcast(2, 2));
    assert_eq!(channels.step(ChannelInput::WriteDue), []);
}
