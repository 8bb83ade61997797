//! What a Pod has told of the progress of its worker.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;

use jobset_api::agent::MOST_STEPS;
use jobset_api::{ProcessEvidence, ProgressReport, labels};
use k8s_openapi::jiff::Timestamp;

use super::failure::shorten;
use super::view::PodView;

/// The steps that count. Programs write larger ones by mistake only.
const STEPS: RangeInclusive<i64> = 0..=MOST_STEPS;
/// Longest name of a phase, and of what a worker is in, in bytes.
const LONGEST_NAME: usize = 64;
/// Longest text of the evidence that is kept, in bytes.
const LONGEST_EVIDENCE: usize = 256;
/// How many processes the evidence names.
const PROCESSES: usize = 3;

/// The part of a [`ProgressReport`] that the rules read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodProgress {
    /// Epoch of the worker that it is about.
    pub epoch: i32,
    /// The annotation cannot be read: a worker has told of progress, and nobody knows of which.
    pub is_malformed: bool,
    /// When the agent wrote it.
    pub at: Option<Timestamp>,
    /// Highest step of that worker.
    pub step: Option<i64>,
    /// Last step that a checkpoint of that worker declared.
    pub checkpoint: Option<i64>,
    /// Longest pause between steps that a worker of the Pod has survived, in seconds.
    pub pause: Option<u32>,
    /// The worker makes no progress.
    pub stall: Option<Box<PodStall>>,
}

/// A worker that makes no progress.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct PodStall {
    pub since: Timestamp,
    pub phase: Option<Box<str>>,
    /// What it has declared to be in, such as a collective operation.
    pub within: Option<Box<str>>,
    /// Whether it is stopped ([`is_stopped`]).
    pub is_stopped: bool,
    /// What was seen of its processes, for people; empty if nothing was.
    pub evidence: Box<str>,
}

impl PodProgress {
    /// Reads the annotation of a Pod. `None` if it is absent.
    pub(super) fn of(annotations: &BTreeMap<String, String>) -> Option<Self> {
        let malformed = || Self { is_malformed: true, ..Self::default() };
        annotations.get(labels::PROGRESS).map(|text| Self::parse(text).unwrap_or_else(malformed))
    }

    /// Reads the value of the annotation, or of a report over the stream. `None` if it is malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let ProgressReport { epoch, at, step, checkpoint, pause_seconds, stall } = ProgressReport::parse(text)?;
        let is_valid = |step: &Option<i64>| step.is_none_or(|step| STEPS.contains(&step));
        if epoch < 1 || !is_valid(&step) || !is_valid(&checkpoint) {
            return None;
        }
        let stall = stall.map(|stall| {
            let processes = &stall.evidence.processes;
            Box::new(PodStall {
                since: stall.since.0,
                phase: stall.phase.as_deref().map(name),
                within: stall.within.as_deref().map(name),
                is_stopped: is_stopped(processes),
                evidence: evidence(processes, &stall.evidence.output),
            })
        });
        Some(Self { epoch, is_malformed: false, at: at.map(|at| at.0), step, checkpoint, pause: pause_seconds, stall })
    }

    /// Whether one of two reports about a Pod was written after the other.
    ///
    /// An agent that does not say when it wrote them has told of the higher step last.
    pub(super) fn is_newer(this: Option<&Self>, other: Option<&Self>) -> bool {
        match (this, other) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(this), Some(other)) if this.at.is_some() && other.at.is_some() => {
                (this.epoch, this.at) > (other.epoch, other.at)
            }
            (Some(this), Some(other)) => this.rank() > other.rank(),
        }
    }

    fn rank(&self) -> (i32, Option<i64>, Option<Timestamp>) {
        (self.epoch, self.step, self.stall.as_ref().map(|stall| stall.since))
    }
}

impl PodView {
    /// What its agent says of the worker of this epoch.
    pub fn progress_in(&self, epoch: i32) -> Option<&PodProgress> {
        self.progress.as_deref().filter(|progress| progress.epoch == epoch)
    }

    /// Whether a worker of it has told of progress, so that its agent would report a stall.
    pub fn tells_progress(&self) -> bool {
        self.progress.as_ref().is_some_and(|progress| !progress.is_malformed)
    }

    /// The stall of its worker, if its agent reports one in the epoch that it reports.
    pub fn stall(&self) -> Option<&PodStall> {
        self.progress_in(self.epoch.number()?)?.stall.as_deref()
    }

    /// The highest step of its worker in the epoch that it reports.
    pub fn step(&self) -> Option<i64> {
        self.progress_in(self.epoch.number()?)?.step
    }
}

/// A text that a tenant has chosen, for messages.
fn clean(text: &str, longest: usize) -> Box<str> {
    shorten(text, longest).replace(|letter: char| letter.is_control(), " ").into()
}

fn name(text: &str) -> Box<str> {
    clean(text, LONGEST_NAME)
}

/// Whether a worker with these processes is stopped, by a signal or a debugger: its main process is, which has the lowest number of those
/// that the agent has started, or another one is while none of the Pod does anything. A stopped helper beside a worker that computes
/// or waits for its peers with all of a core holds nobody up.
fn is_stopped(processes: &[ProcessEvidence]) -> bool {
    let main = processes.iter().min_by_key(|process| process.pid);
    main.is_some_and(is_in_stop)
        || processes.iter().any(|process| is_in_stop(process) && process.cpu_milliseconds == 0)
            && !processes.iter().any(runs)
}

fn is_in_stop(process: &ProcessEvidence) -> bool {
    matches!(process.state.as_str(), "T" | "t")
}

/// Whether it runs, or has used a tenth of the time in which it was looked at. The threads of one that waits use less.
fn runs(process: &ProcessEvidence) -> bool {
    process.state == "R" || process.cpu_milliseconds.saturating_mul(10) > process.looked_milliseconds
}

/// `python3 (7) is stopped, 10 ms of CPU in 5000 ms; ...`. Processes that are stopped come first.
fn evidence(processes: &[ProcessEvidence], output: &str) -> Box<str> {
    let mut sorted: Vec<&ProcessEvidence> = processes.iter().collect();
    sorted.sort_by_key(|process| !is_in_stop(process));
    let mut words: Vec<String> = sorted.into_iter().take(PROCESSES).map(describe).collect();
    if let Some(last) = output.lines().rev().find(|line| !line.trim().is_empty()) {
        words.push(format!("output: {}", last.trim()));
    }
    clean(&words.join("; "), LONGEST_EVIDENCE)
}

fn describe(process: &ProcessEvidence) -> String {
    let ProcessEvidence { pid, name, state, wait_channel, system_call, cpu_milliseconds, looked_milliseconds } =
        process;
    let does = match state.as_str() {
        "R" => "runs".to_owned(),
        "S" => "sleeps".to_owned(),
        "D" => "waits for a device".to_owned(),
        "T" | "t" => "is stopped".to_owned(),
        "Z" => "has ended".to_owned(),
        state => format!("is in state {state}"),
    };
    let channel = if wait_channel.is_empty() { String::new() } else { format!(" in {wait_channel}") };
    let call = match system_call.as_str() {
        "" | "running" => String::new(),
        number => format!(", system call {number}"),
    };
    format!("{name} ({pid}) {does}{channel}{call}, {cpu_milliseconds} ms of CPU in {looked_milliseconds} ms")
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[test]
    fn evidence_names_stopped_processes_first_within_limit() {
        let process = |pid, state: &str| ProcessEvidence { pid, state: state.to_owned(), ..ProcessEvidence::default() };
        let text = evidence(&[process(7, "S"), process(8, "T")], "a\n\u{7}last\n\n");
        assert_eq!(&*text, " (8) is stopped, 0 ms of CPU in 0 ms;  (7) sleeps, 0 ms of CPU in 0 ms; output:  last");
        assert!(evidence(&[process(7, &"x".repeat(4_000))], "").len() <= LONGEST_EVIDENCE);
    }

    #[rstest]
    #[case::not_json("7")]
    #[case::no_epoch(r#"{"step":3}"#)]
    #[case::epoch_zero(r#"{"epoch":0}"#)]
    #[case::negative_step(r#"{"epoch":1,"step":-1}"#)]
    #[case::huge_step(r#"{"epoch":1,"step":9223372036854775807}"#)]
    #[case::huge_checkpoint(r#"{"epoch":1,"checkpoint":9223372036854775807}"#)]
    fn malformed_report_is_none(#[case] text: &str) {
        assert_eq!(PodProgress::parse(text), None);
    }

    #[rstest]
    #[case::main_process(&[(7, "T", 0)], true)]
    #[case::traced(&[(7, "t", 0)], true)]
    #[case::main_process_beside_one_that_runs(&[(8, "R", 5_000), (7, "T", 0)], true)]
    #[case::pager_beside_worker_that_spins(&[(9, "T", 0), (7, "R", 5_000)], false)]
    #[case::pager_beside_worker_that_used_its_core(&[(9, "T", 0), (7, "S", 4_800)], false)]
    #[case::child_of_shell(&[(8, "T", 0), (7, "S", 0)], true)]
    #[case::child_of_shell_beside_loaders(&[(8, "T", 0), (7, "S", 0), (9, "S", 20)], true)]
    #[case::stopped_while_it_was_looked_at(&[(8, "T", 40), (7, "S", 0)], false)]
    #[case::none(&[(7, "S", 0), (8, "D", 0)], false)]
    #[case::nothing_seen(&[], false)]
    fn worker_is_stopped_by_its_main_process(#[case] seen: &[(i32, &str, u64)], #[case] expected: bool) {
        let process = |(pid, state, cpu_milliseconds): &(i32, &str, u64)| ProcessEvidence {
            pid: *pid,
            state: (*state).to_owned(),
            cpu_milliseconds: *cpu_milliseconds,
            looked_milliseconds: 5_000,
            ..ProcessEvidence::default()
        };
        assert_eq!(is_stopped(&seen.iter().map(process).collect::<Vec<_>>()), expected);
    }

    #[rstest]
    #[case::later_epoch((2, None, 0, None), (1, None, 9, None), true)]
    #[case::higher_step((1, None, 2, None), (1, None, 1, Some(5)), true)]
    #[case::stall_at_same_step((1, None, 1, Some(5)), (1, None, 1, None), true)]
    #[case::end_of_stall_at_same_step((1, Some(9), 1, None), (1, Some(8), 1, Some(5)), true)]
    #[case::begin_of_that_stall_comes_late((1, Some(8), 1, Some(5)), (1, Some(9), 1, None), false)]
    #[case::same((1, Some(8), 1, None), (1, Some(8), 1, None), false)]
    fn later_report_is_newer(
        #[case] this: (i32, Option<i64>, i64, Option<i64>),
        #[case] other: (i32, Option<i64>, i64, Option<i64>),
        #[case] expected: bool,
    ) {
        let second = |second: i64| Timestamp::from_second(second).unwrap();
        let report = |(epoch, at, step, since): (i32, Option<i64>, i64, Option<i64>)| PodProgress {
            epoch,
            at: at.map(second),
            step: Some(step),
            stall: since.map(|since| Box::new(PodStall { since: second(since), ..PodStall::default() })),
            ..PodProgress::default()
        };
        assert_eq!(PodProgress::is_newer(Some(&report(this)), Some(&report(other))), expected);
    }
}
