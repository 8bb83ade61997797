//! The outcomes of a run as text for a person. Pure.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use super::accounted::AccountedTime;
use super::fault::{Fault, Mode};
use jobset_harness::median::median;

#[derive(Debug, Default)]
pub struct Report {
    pub steps: usize,
    pub(super) outcomes: Vec<Outcome>,
    /// Where the time of each JobSet went.
    pub ledgers: Vec<AccountedTime>,
}

#[derive(Clone, Debug)]
pub(super) struct Outcome {
    /// None between two faults.
    pub(super) fault: Option<Fault>,
    pub(super) mode: Mode,
    /// `syncedEpoch` before and after.
    pub(super) epochs: (i32, i32),
    /// None if the group was not hit.
    pub(super) hit: Option<Recovery>,
    pub(super) violations: Vec<String>,
}

/// Where a group was hit, and how long it took to come back.
#[derive(Clone, Debug)]
pub(super) struct Recovery {
    pub(super) pod: String,
    /// From the last fault to the last worker's start, as the worker wrote it down.
    pub(super) seconds: f64,
    /// The cause as the kubelet reports it, and as the JobSet's Event names it, where they are known.
    pub(super) causes: Vec<String>,
}

impl Report {
    /// What was not as it must be, each with the fault and the group, and ledgers that do not add up.
    pub fn violations(&self) -> Vec<String> {
        let of = |outcome: &Outcome| {
            let (fault, mode) = (name(outcome.fault), outcome.mode);
            outcome.violations.iter().map(|violation| format!("{fault}, {mode}: {violation}")).collect::<Vec<_>>()
        };
        let ledgers = self.ledgers.iter().filter_map(AccountedTime::violation);
        self.outcomes.iter().flat_map(of).chain(ledgers).collect()
    }

    /// How often each fault came, and how long the groups took to come back.
    pub fn table(&self) -> String {
        let mut recoveries: BTreeMap<(Fault, Mode), Vec<f64>> = BTreeMap::new();
        for outcome in &self.outcomes {
            if let (Some(fault), Some(hit)) = (outcome.fault, &outcome.hit) {
                recoveries.entry((fault, outcome.mode)).or_default().push(hit.seconds);
            }
        }
        let mut text = format!("{:<28} {:<11} {:>5} {:>9} {:>9}\n", "fault", "agent", "times", "median", "longest");
        for ((fault, mode), seconds) in recoveries {
            let longest = seconds.iter().copied().fold(0.0, f64::max);
            let times = seconds.len();
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{fault:<28} {mode:<11} {times:>5} {:>7.2} s {longest:>7.2} s", median(seconds));
        }
        text
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (from, to) = self.epochs;
        write!(f, "{:<28} {:<11} ", name(self.fault), self.mode)?;
        match &self.hit {
            _ if !self.violations.is_empty() => write!(f, "epoch {from} to {to}: {}", self.violations.join("; ")),
            Some(Recovery { pod, seconds, causes }) => {
                write!(f, "{pod}: epoch {from} to {to}, back in {seconds:.2} s")?;
                causes.iter().try_for_each(|cause| write!(f, "; {cause}"))
            }
            None => write!(f, "did not notice"),
        }
    }
}

fn name(fault: Option<Fault>) -> String {
    fault.map_or_else(|| "between faults".to_owned(), |fault| fault.to_string())
}

/// The cause of a restart in the words of its Event, between the epochs and how the restart was counted.
pub(super) fn cause(note: &str) -> Option<&str> {
    Some(note.split_once(": ")?.1.rsplit_once("; ")?.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(fault: Fault, mode: Mode, seconds: Option<f64>, violations: &[&str]) -> Outcome {
        Outcome {
            fault: Some(fault),
            mode,
            epochs: (3, 4),
            hit: seconds.map(|seconds| Recovery { pod: "g-w-0-0-abcde".into(), seconds, causes: Vec::new() }),
            violations: violations.iter().map(|violation| (*violation).to_owned()).collect(),
        }
    }

    #[test]
    fn fault_hit_two_groups_has_a_line_for_each() {
        let outcomes = vec![
            outcome(Fault::LeaderKilled, Mode::Sidecar, Some(17.0), &[]),
            outcome(Fault::LeaderKilled, Mode::Supervisor, None, &[]),
            outcome(Fault::WorkerKilled, Mode::Supervisor, Some(0.5), &[]),
            outcome(Fault::WorkerKilled, Mode::Supervisor, Some(0.9), &[]),
        ];
        let table = Report { steps: 3, outcomes, ..Report::default() }.table();
        let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["worker-killed", "supervisor", "2", "0.70", "s", "0.90", "s"]);
        assert_eq!(lines[2], ["leader-killed", "sidecar", "1", "17.00", "s", "17.00", "s"]);
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn violation_is_named_with_fault_and_group() {
        let outcomes = vec![
            outcome(Fault::PodDeleted, Mode::Sidecar, Some(1.0), &[]),
            outcome(Fault::PodDeleted, Mode::Supervisor, Some(1.0), &["a", "b"]),
        ];
        let report = Report { steps: 1, outcomes, ..Report::default() };
        assert_eq!(report.violations(), ["pod-deleted, supervisor: a", "pod-deleted, supervisor: b"]);
    }

    #[test]
    fn outcome_line_names_recovery_or_violations() {
        let line = |seconds, violations: &[&str]| {
            let line = outcome(Fault::PodDeleted, Mode::Sidecar, seconds, violations).to_string();
            line.split_whitespace().collect::<Vec<_>>().join(" ")
        };
        assert_eq!(line(Some(2.04), &[]), "pod-deleted sidecar g-w-0-0-abcde: epoch 3 to 4, back in 2.04 s");
        assert_eq!(line(None, &[]), "pod-deleted sidecar did not notice");
        assert_eq!(line(None, &["a", "b"]), "pod-deleted sidecar epoch 3 to 4: a; b");
    }

    #[test]
    fn violation_between_faults_is_named_so() {
        let mut unasked = outcome(Fault::PodDeleted, Mode::Sidecar, None, &["a"]);
        unasked.fault = None;
        assert_eq!(
            Report { outcomes: vec![unasked], ..Report::default() }.violations(),
            ["between faults, sidecar: a"]
        );
    }

    #[test]
    fn cause_is_taken_out_of_the_event() {
        let note =
            "in place, from epoch 1 to 2: Pod a on node b: container c exited with code 137 (OOMKilled); counted";
        assert_eq!(cause(note), Some("Pod a on node b: container c exited with code 137 (OOMKilled)"));
        assert_eq!(cause("something else"), None);
    }
}
