//! An agent's process, which both drivers have: the real state machines of its decisions and of its channels, joined as the agent
//! joins them. What they see, and when, and what becomes of what they do, is the driver's.

use std::collections::VecDeque;
use std::time::Duration;

use jobset_agent::barrier::Barrier;
use jobset_agent::channels::{ChannelInput, ChannelOutput, Channels};
use jobset_agent::decide::{Agent, Input, Mode, Output};
use jobset_stream::message::Report;
use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::RuleMutation;

/// An agent's process, from its start to its end. Times are those of the driver.
#[derive(Clone, Debug, PartialEq, Hash)]
pub(super) struct AgentProcess {
    pub agent: Agent,
    channels: Channels,
    broken: Option<RuleMutation>,
    /// Whether it watches the JobSet.
    pub watches: bool,
    /// The annotation that is on its way.
    pub writing: Option<i32>,
    /// An older one beside it: what a real agent never has.
    overtaken: Option<i32>,
    /// When it no longer waits for the stream.
    pub stream_deadline: Option<i64>,
    /// When its annotation is due.
    pub write_due: Option<i64>,
    /// When its timer is over.
    pub timer: Option<i64>,
    /// The epoch that it has entered.
    pub entered: Option<i32>,
    /// What it has told of the progress of its worker last, and what the annotation that is on its way says of it.
    pub progress: Option<ProgressWord>,
    pub writing_progress: Option<ProgressWord>,
}

/// What an agent tells of the progress of its worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct ProgressWord {
    pub epoch: i32,
    /// Whether the worker makes none.
    pub stalls: bool,
}

impl ProgressWord {
    /// The text of the annotation. A worker that does not stall any longer has ended.
    pub(super) fn text(self) -> String {
        let second = 2 * i64::from(self.epoch) + i64::from(!self.stalls);
        let at = Timestamp::from_second(second).unwrap_or_default();
        let since = format!("{:.6}", Timestamp::UNIX_EPOCH);
        let stall = self.stalls.then(|| json!({ "since": since }));
        json!({"epoch": self.epoch, "at": format!("{at:.6}"), "stall": stall}).to_string()
    }
}

/// What an agent does that changes something outside of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AgentDeed {
    /// It enters an epoch.
    Enter(i32),
    /// It begins a watch, with a consistent read.
    Watch,
    StopWatch,
    /// It sends the report of this epoch over the stream.
    Send(i32),
    /// It lets its worker run, in this epoch if there are epochs.
    Lift(Option<i32>),
    /// It stops its worker of this epoch.
    StopWorker(i32),
    /// It ends so that its Pod restarts.
    Restart,
    /// It ends with this code.
    Exit(u8),
}

/// What an agent waits for a time for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AgentWait {
    Stream,
    Annotation,
    Timer(Duration),
}

/// What one of the two state machines takes in next.
enum Ready {
    Channels(ChannelInput),
    Agent(Input),
}

impl AgentProcess {
    /// An agent that starts now. `has_stream` says whether it knows a relay.
    pub(super) fn new(jobset_uid: &str, mode: Mode, has_stream: bool, broken: Option<RuleMutation>) -> Self {
        let (channels, first) = Channels::new(has_stream);
        Self {
            agent: Agent::new(Some(jobset_uid.to_owned()), mode),
            channels,
            broken: broken.filter(|_| has_stream),
            watches: first == ChannelOutput::Watch,
            writing: None,
            overtaken: None,
            // At once, or later.
            stream_deadline: (first == ChannelOutput::AwaitStream).then_some(0),
            write_due: None,
            timer: None,
            entered: None,
            progress: None,
            writing_progress: None,
        }
    }

    /// Whether its worker may run.
    pub(super) fn is_lifted(&self) -> bool {
        matches!(self.agent.barrier(), Barrier::Lifted { .. })
    }

    /// Something happens on its channels. `when` says until when it waits.
    pub(super) fn happen(&mut self, input: ChannelInput, when: impl FnMut(AgentWait) -> i64) -> Vec<AgentDeed> {
        self.run(Ready::Channels(input), when)
    }

    /// Something happens to it beside its channels.
    pub(super) fn tell(&mut self, input: Input, when: impl FnMut(AgentWait) -> i64) -> Vec<AgentDeed> {
        self.run(Ready::Agent(input), when)
    }

    /// Its worker makes no progress any longer.
    pub(super) fn stall(&mut self, when: impl FnMut(AgentWait) -> i64) -> Vec<AgentDeed> {
        let Some(epoch) = self.entered else { return Vec::new() };
        let word = ProgressWord { epoch, stalls: true };
        self.progress = Some(word);
        self.happen(ChannelInput::Progress { text: word.text(), is_urgent: true }, when)
    }

    /// The annotation that arrives: it is no longer on its way.
    pub(super) fn take_write(&mut self) -> Option<i32> {
        std::mem::replace(&mut self.writing, self.overtaken.take())
    }

    /// The answer to an annotation, unless it does not wait for that: broken.
    pub(super) fn answer(&self, epoch: i32, is_ok: bool) -> Option<ChannelInput> {
        (!self.answers_itself()).then(|| written(epoch, is_ok))
    }

    fn answers_itself(&self) -> bool {
        self.broken == Some(RuleMutation::WritesOvertakeEachOther)
    }

    fn run(&mut self, first: Ready, mut when: impl FnMut(AgentWait) -> i64) -> Vec<AgentDeed> {
        let (mut ready, mut deeds) = (VecDeque::from([first]), Vec::new());
        while let Some(next) = ready.pop_front() {
            match next {
                Ready::Channels(input) => self.step_channels(input, &mut ready, &mut deeds, &mut when),
                Ready::Agent(input) => self.step_agent(input, &mut ready, &mut deeds, &mut when),
            }
            if matches!(deeds.last(), Some(AgentDeed::Restart | AgentDeed::Exit(_))) {
                break;
            }
        }
        deeds
    }

    fn step_channels(
        &mut self,
        input: ChannelInput,
        ready: &mut VecDeque<Ready>,
        deeds: &mut Vec<AgentDeed>,
        when: &mut impl FnMut(AgentWait) -> i64,
    ) {
        let is_cut = input == ChannelInput::Disconnected;
        for output in self.channels.step(input) {
            match output {
                ChannelOutput::Tell(input) => ready.push_back(Ready::Agent(input)),
                ChannelOutput::AwaitStream => self.stream_deadline = Some(when(AgentWait::Stream)),
                ChannelOutput::Watch => {
                    self.watches = true;
                    deeds.push(AgentDeed::Watch);
                }
                ChannelOutput::StopWatch => {
                    self.watches = false;
                    deeds.push(AgentDeed::StopWatch);
                }
                ChannelOutput::Send(report) => deeds.push(AgentDeed::Send(report.epoch)),
                ChannelOutput::WriteLater { .. } if self.broken == Some(RuleMutation::AnnotationLeftToTheStream) => {}
                ChannelOutput::WriteLater { .. } => self.write_due = Some(when(AgentWait::Annotation)),
                ChannelOutput::Write { epoch } => {
                    let is_older = is_cut && self.broken == Some(RuleMutation::FallBackReportsOlderEpoch);
                    self.overtaken = self.writing.replace(if is_older { epoch - 1 } else { epoch });
                    self.writing_progress = self.progress;
                    if self.answers_itself() {
                        ready.push_back(Ready::Channels(written(epoch, true)));
                    }
                }
            }
        }
    }

    fn step_agent(
        &mut self,
        input: Input,
        ready: &mut VecDeque<Ready>,
        deeds: &mut Vec<AgentDeed>,
        when: &mut impl FnMut(AgentWait) -> i64,
    ) {
        for output in self.agent.step(input) {
            match output {
                Output::Report { epoch } => {
                    (self.timer, self.entered) = (None, Some(epoch));
                    deeds.push(AgentDeed::Enter(epoch));
                    if let Some(progress) = &mut self.progress {
                        progress.stalls = false;
                    }
                    // What else a report has is the driver's.
                    let progress = self.progress.map(ProgressWord::text);
                    let report = Report { epoch, exit: None, started: None, progress };
                    ready.push_back(Ready::Channels(ChannelInput::Report(report)));
                }
                Output::SetTimer(wait) => self.timer = Some(when(AgentWait::Timer(wait))),
                Output::Lift { epoch } => {
                    self.timer = None;
                    deeds.push(AgentDeed::Lift(epoch));
                }
                Output::StopWorker { epoch, .. } => deeds.push(AgentDeed::StopWorker(epoch)),
                Output::Restart { .. } => deeds.push(AgentDeed::Restart),
                Output::Exit { code } => deeds.push(AgentDeed::Exit(code)),
                // Of sidecars whose workers save their state, and of supervisors that are asked to end.
                Output::Save { .. } | Output::TerminateWorker => {}
            }
        }
    }
}

fn written(epoch: i32, is_ok: bool) -> ChannelInput {
    ChannelInput::Written(if is_ok {
        Input::Reported { epoch }
    } else {
        Input::ReportFailed { epoch, retry_after: None }
    })
}
