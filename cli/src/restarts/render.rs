//! The text of restarts: a table, and a timeline of each restart.

use anstyle::Style;
use k8s_openapi::jiff::SignedDuration;

use super::report::{FinalFailure, GroupRestart, RestartManner, RestartPhase, RestartReport};
use crate::output::{BAD, DIM, GOOD, HEAD, Report, Table, View, WAIT, age, clock, one_line, paint, seconds, until};

/// Width of a timeline's bar, in columns.
const BAR: f64 = 60.0;

impl Report for RestartReport {
    fn text(&self, view: &View) -> String {
        let mut parts = vec![summary(self)];
        if self.expired > 0 {
            let missing = format!(
                "Not listed: {} of them. The status keeps the last five restarts, and the API server keeps Events for a limited \
                 time (by default an hour).",
                self.expired
            );
            parts.push(paint(WAIT, &missing) + "\n");
        }
        if !self.restarts.is_empty() {
            parts.push(format!("\n{}", table(&self.restarts, view)));
            parts.extend(self.restarts.iter().map(|restart| format!("\n{}", timeline(restart))));
        }
        if let Some(until) = self.waits_until.and_then(|end| until(end, view.now)) {
            let text = format!("It keeps failing: the last restart waits {until}.");
            parts.push(format!("\n{}\n", paint(WAIT, text)));
        }
        if let Some(FinalFailure { reason, message, at }) = &self.failure {
            let head = paint(BAD, format!("It has failed ({reason})"));
            parts.push(format!("\n{head}  {} UTC\n  {}\n", at.strftime("%Y-%m-%d %H:%M:%S"), one_line(message)));
        }
        parts.concat()
    }
}

fn summary(report: &RestartReport) -> String {
    let name = paint(HEAD, format!("{}/{}", report.namespace, report.name));
    let RestartReport { group_restarts, spent, strategy, .. } = report;
    let times = match group_restarts {
        0 => return format!("{name} has not restarted as a group ({strategy:?}); {spent}.\n"),
        1 => "once".to_owned(),
        times => format!("{times} times"),
    };
    format!("{name} has restarted {times} ({strategy:?}); {spent}.\n")
}

fn table(restarts: &[GroupRestart], view: &View) -> String {
    // Empty columns are left out.
    let mut phases = vec![("detect", "DETECT"), ("register", "REGISTER"), ("lift", "LIFT"), ("recreate", "RECREATE")];
    phases.retain(|(name, _)| restarts.iter().any(|restart| phase(restart, name).is_some()));
    let titles = phases.iter().map(|(_, title)| *title);
    let titles = ["#", "AGO", "MANNER", "COUNTED"].into_iter().chain(titles).chain(["TOTAL", "CAUSE"]);
    let mut table = Table::titled(&titles.collect::<Vec<_>>());
    for restart in restarts {
        let mut row: Vec<String> = vec![
            restart.number.map_or_else(|| "?".to_owned(), |number| number.to_string()),
            age(restart.start().or(restart.lifted).or(restart.recovered), view.now),
            manner(restart).into(),
            match restart.counted {
                Some(true) => "yes",
                Some(false) => "no",
                None => "?",
            }
            .into(),
        ];
        row.extend(phases.iter().map(|(name, _)| phase(restart, name).map_or("-".to_owned(), length)));
        row.push(total(restart));
        let cause = one_line(&restart.cause);
        row.push(if view.wide { cause } else { shortened(&cause) });
        table.push(row);
    }
    table.render()
}

fn phase<'a>(restart: &'a GroupRestart, name: &str) -> Option<&'a RestartPhase> {
    restart.phases.iter().find(|phase| phase.name == name)
}

fn length(phase: &RestartPhase) -> String {
    seconds(phase.to.duration_since(phase.from))
}

fn manner(restart: &GroupRestart) -> &'static str {
    match restart.manner {
        Some(RestartManner::InPlace) => "in place",
        Some(RestartManner::Recreate) => "recreate",
        None => "?",
    }
}

fn total(restart: &GroupRestart) -> String {
    match restart.total {
        Some(total) => paint(GOOD, seconds(SignedDuration::from_secs_f64(total))),
        None if restart.superseded => paint(BAD, "not recovered"),
        None if restart.recovered.is_none() => paint(WAIT, "in progress"),
        None => paint(DIM, "?"),
    }
}

/// Maximum length of a cause in the table, in characters. The timeline has the full text.
const CAUSE: usize = 60;

fn shortened(text: &str) -> String {
    match text.char_indices().nth(CAUSE) {
        Some((end, _)) => format!("{}...", text[..end].trim_end()),
        None => text.to_owned(),
    }
}

fn timeline(restart: &GroupRestart) -> String {
    let number = restart.number.map_or_else(|| "Restart".to_owned(), |number| format!("Restart {number}"));
    let start = restart.start().or(restart.lifted).or(restart.recovered);
    let day = start.map(|start| format!("  {} UTC", start.strftime("%Y-%m-%d"))).unwrap_or_default();
    let epoch = restart.epoch.map(|epoch| format!("  from epoch {epoch}")).unwrap_or_default();
    let failures = restart.consecutive_failures.filter(|failures| *failures > 1);
    let failures = failures.map(|failures| format!("  failure {failures} in a row")).unwrap_or_default();
    let cause = if restart.cause.is_empty() { String::new() } else { format!("  {}\n", one_line(&restart.cause)) };
    [paint(HEAD, &number), day, epoch, failures, "\n".to_owned(), cause, steps(restart), bar(restart)].concat()
}

fn steps(restart: &GroupRestart) -> String {
    let mut table = Table::indented();
    let start = restart.start();
    let steps = [
        (restart.failed, BAD, "the first worker fails"),
        (restart.began, WAIT, "the restart starts"),
        (restart.recreates, WAIT, "it goes on by recreation"),
        (restart.lifted, Style::new(), "the barrier is lifted"),
        (restart.recovered, GOOD, "all Jobs are ready"),
    ];
    let mut steps: Vec<_> = steps.into_iter().filter_map(|(at, style, what)| Some((at?, style, what))).collect();
    steps.sort_by_key(|(at, ..)| *at);
    for (at, style, what) in steps {
        let offset = start.map_or_else(String::new, |start| format!("+{}", seconds(at.duration_since(start))));
        table.push(vec![clock(at), offset, paint(style, what)]);
    }
    let missing = if restart.superseded {
        Some("the next failure came before all Jobs were ready")
    } else if restart.began.is_none() {
        Some("the Event of its start has expired")
    } else {
        None
    };
    let missing = missing.map(|text| format!("  {}\n", paint(DIM, text))).unwrap_or_default();
    table.render() + &missing
}

/// A bar in which each phase has its share of the time.
fn bar(restart: &GroupRestart) -> String {
    let all: f64 = restart.phases.iter().map(|phase| phase.seconds).sum();
    if all <= 0.0 {
        return String::new();
    }
    let mut line = String::from("  ");
    for phase in &restart.phases {
        let (fill, style) = match phase.name {
            "detect" => ('░', BAD),
            "register" | "recreate" => ('▒', WAIT),
            _ => ('█', GOOD),
        };
        let share = phase.seconds / all;
        let label = format!(" {} {} ", phase.name, length(phase));
        // A phase that is too short for a column keeps its name.
        let cells = columns(share * BAR);
        line += &paint(style, fill.to_string().repeat(cells));
        line += &label;
    }
    line.trim_end().to_owned() + "\n"
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 0 to the length of the bar")]
fn columns(share: f64) -> usize {
    share.round().clamp(0.0, BAR) as usize
}
