//! The two channels between an agent and the controller, and which one carries what: a state machine without clock or I/O.
//!
//! The record is the API server's: the agent watches its JobSet, and writes its epoch into the annotation of its Pod. The *stream*
//! to a relay carries the same earlier. It may be absent, break, or lose messages, and it comes back at any time:
//!
//! - While the stream is live, the agent needs no watch. It reports over the stream, and the annotation follows later, spread
//!   over the Pods of the group.
//! - Without it, the agent watches and writes at once, as if there were no stream.
//! - An agent that has just started knows no epoch. It ignores whatever comes over the stream until an answer names the nonce of its
//!   hello: a broadcast may come from a leader that was stopped and wakes, and the agent would report an epoch that already runs.
//!   An agent that has once observed a consistent state keeps the largest epochs, so no old message can harm it.
//!
//! The model checker drives this state machine together with [`decide`](crate::decide).

use std::time::Duration;

use jobset_stream::message::Report;

use crate::decide::{Input, JobSetState};

/// How long an agent waits for the stream before it relies on the API server.
pub const STREAM_TIMEOUT: Duration = Duration::from_secs(1);
/// The same while a connection is being made. When thousands of agents start at once, the look-up of the relay's name alone can
/// take a second.
pub const CONNECTING_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Stream {
    /// The agent is not configured for it.
    Absent,
    /// Nobody has answered a hello yet.
    Down,
    /// It was live, and its connection has ended. Nobody has answered the hello of another one yet.
    Lost,
    /// The leader has answered on this connection.
    Live,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Watch {
    Stopped,
    /// It starts when [`STREAM_TIMEOUT`] has elapsed, unless the stream is live by then.
    Awaited,
    Running,
}

/// A write of the annotation that has no answer yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Write {
    epoch: i32,
    /// Whether the state machine of the agent waits for the answer. It does not if the stream has carried the report.
    is_awaited: bool,
    /// Whether it has failed, and the state machine of the agent reports again unless the stream carries the report before.
    rests: bool,
}

impl Write {
    /// The write of a report that the stream has carried: it is for the record alone.
    fn carried(epoch: i32) -> Self {
        Self { epoch, is_awaited: false, rests: false }
    }
}

/// What carries an agent's reports and the epochs of its JobSet.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Channels {
    stream: Stream,
    watch: Watch,
    /// Whether the agent has observed a consistent state of its JobSet.
    is_consistent: bool,
    synced: i32,
    reported: Option<Report>,
    /// The report whose annotation is still to be written.
    owed: Option<Write>,
    writing: Option<Write>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ChannelInput {
    /// A statement of the leader about the JobSet of the agent came over the stream, and its signature was verified.
    Statement {
        /// Whether it names the nonce of the present connection's hello.
        is_answer: bool,
        state: JobSetState,
    },
    /// The connection of the stream has ended, or it brings no statements about the JobSet.
    Disconnected,
    /// The time of [`ChannelOutput::AwaitStream`] has elapsed.
    StreamTimeout,
    Watched(Input),
    Report(Report),
    /// The worker has told of progress, or makes none any longer. The report of the present epoch has this text from now on.
    Progress {
        text: String,
        /// Whether the annotation has to have it, too.
        is_urgent: bool,
    },
    /// The answer to [`ChannelOutput::Write`]: [`Input::Reported`] or [`Input::ReportFailed`].
    Written(Input),
    /// The delay of [`ChannelOutput::WriteLater`] has elapsed.
    WriteDue,
}

/// What to do. The caller carries out outputs in their order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ChannelOutput {
    /// Pass this on to the agent's state machine.
    Tell(Input),
    /// Send [`ChannelInput::StreamTimeout`] after [`STREAM_TIMEOUT`].
    AwaitStream,
    Watch,
    StopWatch,
    Send(Report),
    /// Write the annotation. The answer is [`ChannelInput::Written`].
    Write {
        epoch: i32,
    },
    /// Send [`ChannelInput::WriteDue`] after a random one of the `annotation_delays` of the group; of the prompt ones, if the leader
    /// hears of it by the annotation alone.
    WriteLater {
        is_prompt: bool,
    },
}

const LATER: ChannelOutput = ChannelOutput::WriteLater { is_prompt: false };

impl Channels {
    /// The channels of an agent that has just started, and what it does first. `has_stream` says whether it knows a relay.
    pub fn new(has_stream: bool) -> (Self, ChannelOutput) {
        let channels = Self {
            stream: if has_stream { Stream::Down } else { Stream::Absent },
            watch: if has_stream { Watch::Awaited } else { Watch::Running },
            is_consistent: false,
            synced: 0,
            reported: None,
            owed: None,
            writing: None,
        };
        (channels, if has_stream { ChannelOutput::AwaitStream } else { ChannelOutput::Watch })
    }

    /// Whether the agent relies on the API server because the stream has ended.
    pub fn has_fallen_back(&self) -> bool {
        self.stream == Stream::Lost
    }

    /// The report whose annotation is not written yet.
    pub fn unwritten(&self) -> Option<i32> {
        self.owed.or(self.writing).map(|write| write.epoch)
    }

    /// Takes one input and returns what follows.
    pub fn step(&mut self, input: ChannelInput) -> Vec<ChannelOutput> {
        match input {
            ChannelInput::Statement { is_answer, state } => self.on_statement(is_answer, state),
            ChannelInput::Disconnected => self.on_disconnected(),
            ChannelInput::StreamTimeout => self.on_stream_timeout(),
            ChannelInput::Watched(input) => self.on_watched(input),
            ChannelInput::Report(report) => self.on_report(report),
            ChannelInput::Progress { text, is_urgent } => self.on_progress(text, is_urgent),
            ChannelInput::Written(answer) => self.on_written(answer),
            ChannelInput::WriteDue => self.on_write_due(),
        }
    }

    fn on_statement(&mut self, is_answer: bool, state: JobSetState) -> Vec<ChannelOutput> {
        let mut outputs = Vec::new();
        if !is_answer && !self.is_consistent {
            return outputs;
        }
        self.is_consistent = true;
        if is_answer && self.stream != Stream::Live {
            self.stream = Stream::Live;
            if self.watch == Watch::Running {
                self.watch = Watch::Stopped;
                outputs.push(ChannelOutput::StopWatch);
            }
            outputs.extend(self.send_reported());
        }
        self.on_epochs(&state);
        outputs.push(ChannelOutput::Tell(Input::JobSet(state)));
        outputs
    }

    /// Sends the newest report once the stream is live, for the hello may be older. No answer to its write is waited for then.
    fn send_reported(&mut self) -> Vec<ChannelOutput> {
        let Some(report) = self.reported.clone() else { return Vec::new() };
        let epoch = report.epoch;
        let mut outputs = vec![ChannelOutput::Send(report)];
        let is_waited_for = |write: &&mut Write| (write.is_awaited || write.rests) && write.epoch == epoch;
        let carried = Write::carried(epoch);
        let reported = ChannelOutput::Tell(Input::Reported { epoch });
        if let Some(owed) = self.owed.as_mut().filter(is_waited_for) {
            *owed = carried;
            outputs.extend([reported, LATER]);
        } else if let Some(writing) = self.writing.as_mut().filter(is_waited_for) {
            *writing = carried;
            outputs.push(reported);
        }
        outputs
    }

    fn on_disconnected(&mut self) -> Vec<ChannelOutput> {
        if self.stream == Stream::Live {
            self.stream = Stream::Lost;
        }
        let mut outputs = self.write_owed();
        if self.watch == Watch::Stopped {
            self.watch = Watch::Awaited;
            outputs.push(ChannelOutput::AwaitStream);
        }
        outputs
    }

    fn on_stream_timeout(&mut self) -> Vec<ChannelOutput> {
        match (self.watch, self.stream) {
            (Watch::Awaited, Stream::Live) => self.watch = Watch::Stopped,
            (Watch::Awaited, _) => {
                self.watch = Watch::Running;
                return vec![ChannelOutput::Watch];
            }
            (Watch::Stopped | Watch::Running, _) => {}
        }
        Vec::new()
    }

    fn on_watched(&mut self, input: Input) -> Vec<ChannelOutput> {
        if let Input::JobSet(state) = &input {
            self.is_consistent = true;
            self.on_epochs(state);
        }
        vec![ChannelOutput::Tell(input)]
    }

    fn on_epochs(&mut self, state: &JobSetState) {
        // The group restarts: nobody needs the annotation of the epoch that is over.
        self.owed.take_if(|owed| !owed.is_awaited && owed.epoch <= state.deprecated);
        self.synced = self.synced.max(state.synced);
    }

    fn on_report(&mut self, report: Report) -> Vec<ChannelOutput> {
        let epoch = report.epoch;
        self.reported = Some(report.clone());
        if self.stream == Stream::Live {
            let write = Write::carried(epoch);
            let mut outputs = vec![ChannelOutput::Send(report), ChannelOutput::Tell(Input::Reported { epoch })];
            // A report that is repeated does not put its write off.
            if self.owed.replace(write) != Some(write) {
                outputs.push(LATER);
            }
            return outputs;
        }
        self.owed = Some(Write { epoch, is_awaited: true, rests: false });
        self.write_owed()
    }

    /// The stream has it at once. Without a stream, only what is urgent is worth a request, and the workers of a group tell of it in
    /// the same second.
    fn on_progress(&mut self, text: String, is_urgent: bool) -> Vec<ChannelOutput> {
        let Some(report) = &mut self.reported else { return Vec::new() };
        report.progress = Some(text);
        let (report, is_live) = (report.clone(), self.stream == Stream::Live);
        let carried = Write::carried(report.epoch);
        let mut outputs = Vec::new();
        if is_live {
            outputs.push(ChannelOutput::Send(report));
        }
        // A report that is owed has the text when it is written. One that is put off is not prompt.
        if is_urgent && (self.owed.is_none() || !is_live) {
            self.owed.get_or_insert(carried);
            outputs.push(ChannelOutput::WriteLater { is_prompt: !is_live });
        }
        outputs
    }

    /// A write that has no answer yet goes first, and this one waits again.
    fn on_write_due(&mut self) -> Vec<ChannelOutput> {
        if self.writing.is_some() && self.owed.is_some() {
            return vec![LATER];
        }
        self.write_owed()
    }

    /// Writes the annotation that is owed, unless another write has no answer: the older epoch could arrive last.
    fn write_owed(&mut self) -> Vec<ChannelOutput> {
        if self.writing.is_some() {
            return Vec::new();
        }
        self.writing = self.owed.take();
        self.writing.map(|write| ChannelOutput::Write { epoch: write.epoch }).into_iter().collect()
    }

    fn on_written(&mut self, answer: Input) -> Vec<ChannelOutput> {
        let Some(write) = self.writing.take() else { return Vec::new() };
        let mut outputs = Vec::new();
        let has_failed = matches!(answer, Input::ReportFailed { .. });
        let newest = self.reported.as_ref().map(|report| report.epoch);
        let is_newest = self.owed.is_none() && newest == Some(write.epoch);
        // The stream has ended, and perhaps the report was lost with it: the state machine repeats it soon.
        let may_be_lost = has_failed && is_newest && self.stream == Stream::Lost && write.epoch > self.synced;
        if write.is_awaited || may_be_lost {
            outputs.push(ChannelOutput::Tell(answer));
        }
        // Without a stream, the state machine reports until the write succeeds.
        let is_left = !write.is_awaited || self.stream != Stream::Absent;
        if has_failed && is_left && is_newest {
            let rests = write.is_awaited && write.epoch > self.synced;
            self.owed = Some(Write { is_awaited: false, rests, ..write });
            outputs.extend((!rests).then_some(LATER));
            return outputs;
        }
        if self.owed.is_some_and(|owed| owed.is_awaited || self.stream != Stream::Live) {
            outputs.extend(self.write_owed());
        }
        outputs
    }
}

#[cfg(test)]
mod tests;
