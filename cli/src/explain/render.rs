//! The text of an explanation.

use super::{Explanation, Finding};
use crate::output::{BAD, DIM, GOOD, HEAD, Report, View, WAIT, one_line, paint, printable};
use crate::status::JobSetState;

impl Report for Explanation {
    fn text(&self, _: &View) -> String {
        let name = paint(HEAD, format!("{}/{}", self.namespace, self.name));
        let jobs = format!("{} of {} Jobs are ready", self.jobs_ready, self.jobs);
        let absent = self.no_controller.as_ref().map(|absent| {
            format!("{name} {}: {absent}. What its status says may be old.\n", paint(BAD, "has no controller"))
        });
        let head = match self.state {
            JobSetState::Completed => format!("{name} {}.\n", paint(GOOD, "has completed")),
            JobSetState::Running => format!("{name} {}: {jobs}.\n", paint(GOOD, "runs")),
            JobSetState::NotReady => {
                let workers = self.workers.unwrap_or_default();
                let text = format!("{} of {} workers do not run", workers.waiting, workers.expected);
                format!(
                    "{name} {} ({:?}): {text}, although its status says that {jobs}.\n",
                    paint(WAIT, "does not run"),
                    self.state
                )
            }
            JobSetState::NoJobs => format!("{name} {} ({:?}).\n", paint(WAIT, "does not run"), self.state),
            JobSetState::Restarting => {
                let workers = self.workers.unwrap_or_default();
                let text = match workers.waiting {
                    // The Jobs are ready by their Pods before the barrier is lifted, or by an old status.
                    0 => format!(
                        "all {} workers run again, and the controller has not ended the restart yet",
                        workers.expected
                    ),
                    waiting => format!("{} of {} workers run", workers.expected - waiting, workers.expected),
                };
                format!("{name} {} ({:?}): {text}.\n", paint(WAIT, "does not run"), self.state)
            }
            state => {
                let style = if state.is_bad() { BAD } else { WAIT };
                format!("{name} {} ({state:?}): {jobs}.\n", paint(style, "does not run"))
            }
        };
        let head = absent.unwrap_or_default() + &head;
        if self.findings.is_empty() && !self.runs {
            let text = "No cause found: run the command again in some seconds, or with --watch.";
            return format!("{head}{text}\n");
        }
        let findings = self.findings.iter().enumerate().map(|(index, finding)| self::finding(index + 1, finding));
        head + &findings.collect::<String>()
    }
}

fn finding(number: usize, finding: &Finding) -> String {
    // Messages of other programs may have several lines.
    let safe: Vec<String> = finding.details.iter().map(|detail| printable(detail)).collect();
    let lines = safe.iter().flat_map(|detail| detail.lines()).filter(|line| !line.trim().is_empty());
    let details: Vec<String> = lines.map(|line| format!("   {}\n", line.trim_end())).collect();
    let (what, arrow) = (paint(HEAD, one_line(&finding.what)), paint(DIM, "->"));
    format!("\n{number}. {what}\n{}   {arrow} {}\n", details.concat(), finding.advice)
}
