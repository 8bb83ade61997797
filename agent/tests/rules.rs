//! Inputs and outputs of the agent's state machine, as its tables write them.

use std::time::Duration;

use jobset_agent::decide::{Agent, Input, JobSetState, Output};

pub(crate) const UID: &str = "8d1c";

pub(crate) fn state(synced: i32, deprecated: i32) -> JobSetState {
    JobSetState { uid: UID.into(), synced, deprecated, failed: false, bypass: false }
}

pub(crate) fn jobset(synced: i32, deprecated: i32) -> Input {
    Input::JobSet(state(synced, deprecated))
}

pub(crate) fn bypassed(synced: i32, deprecated: i32) -> Input {
    Input::JobSet(JobSetState { bypass: true, ..state(synced, deprecated) })
}

pub(crate) fn reported(epoch: i32) -> Input {
    Input::Reported { epoch }
}

pub(crate) fn report(epoch: i32) -> Output {
    Output::Report { epoch }
}

pub(crate) fn timer(seconds: u64) -> Output {
    Output::SetTimer(Duration::from_secs(seconds))
}

pub(crate) fn timer_ms(millis: u64) -> Output {
    Output::SetTimer(Duration::from_millis(millis))
}

pub(crate) fn lift(epoch: i32) -> Output {
    Output::Lift { epoch: Some(epoch) }
}

pub(crate) fn exit(code: u8) -> Output {
    Output::Exit { code }
}

pub(crate) const BYPASS_LIFT: Output = Output::Lift { epoch: None };

pub(crate) fn outputs_of(mut agent: Agent, inputs: Vec<Input>) -> Vec<Output> {
    inputs.into_iter().flat_map(|input| agent.step(input)).collect()
}
