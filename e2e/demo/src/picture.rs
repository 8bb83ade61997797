//! The timeline of a restart as a picture. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::timeline::Line;

/// Pixels: width of the picture, where the bars begin and end, and the height of a row.
const WIDTH: f64 = 860.0;
const LEFT: f64 = 210.0;
const RIGHT: f64 = 840.0;
const ROW: f64 = 34.0;
/// Where the first row begins, below the marks of the JobSet.
const TOP: f64 = 64.0;
/// Seconds that are shown before the failure and after the last start.
const MARGIN: f64 = 0.25;

/// Text is readable on light and dark pages.
const STYLE: &str = "text{font:13px system-ui,sans-serif;fill:#24292f}.mark{stroke:#57606a;stroke-dasharray:4 3}\
                     .bar text{fill:#fff;font-size:12px}\
                     @media(prefers-color-scheme:dark){text{fill:#e6edf3}.mark{stroke:#9da7b3}}";

/// What a Pod does for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Works,
    Restarts,
    Waits,
}

impl Doing {
    /// What a line of the timeline says of its Pod.
    fn of(line: &Line) -> Option<Self> {
        match line.what.as_str() {
            "WORKER STARTED" => Some(Self::Works),
            "waits at the barrier" => Some(Self::Waits),
            what if what.starts_with("worker ended") => Some(Self::Restarts),
            _ => None,
        }
    }

    /// Colors that people who do not see red and green can tell apart, and the words in the bar.
    fn style(self) -> (&'static str, &'static str) {
        match self {
            Self::Works => ("#0072B2", "runs"),
            Self::Restarts => ("#B34700", "restarts"),
            Self::Waits => ("#7A5C00", "waits"),
        }
    }
}

/// Draws what happened to the Pods of a JobSet: when each worker ended, waited at the barrier, and started, by the seconds since
/// the failure; and what the status of the JobSet said meanwhile. Empty if nothing happened.
pub(super) fn svg(lines: &[(f64, Line)]) -> String {
    let mut pods: BTreeMap<&str, Vec<(f64, Doing)>> = BTreeMap::new();
    let mut marks = Vec::new();
    for (time, line) in lines {
        if let Some(doing) = Doing::of(line) {
            pods.entry(&line.pod).or_default().push((*time, doing));
        } else if line.pod.starts_with("jobset/") {
            marks.push((*time, line.what.as_str()));
        }
    }
    let started =
        |events: &[(f64, Doing)]| events.iter().rev().find(|(_, doing)| *doing == Doing::Works).map(|it| it.0);
    let Some(last) = pods.values().filter_map(|events| started(events)).reduce(f64::max) else { return String::new() };
    let end = last + MARGIN;
    let x = |time: f64| LEFT + (RIGHT - LEFT) * (time.clamp(-MARGIN, end) + MARGIN) / (end + MARGIN);
    let bottom = TOP + ROW * f64::from(u32::try_from(pods.len()).unwrap_or(u32::MAX));
    let mut svg = String::new();
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {:.0}\" role=\"img\" aria-labelledby=\"t\">\
         <title id=\"t\">A restart in place of {} workers: {last:.2} s from the failure to the last start</title><style>{STYLE}</style>",
        bottom + 40.0,
        pods.len(),
    );
    for (row, (pod, events)) in pods.iter_mut().enumerate() {
        events.sort_by(|one, other| one.0.total_cmp(&other.0));
        let y = TOP + ROW * f64::from(u32::try_from(row).unwrap_or(u32::MAX));
        let _ = write!(svg, "<text x=\"8\" y=\"{:.0}\">{}</text><g class=\"bar\">", y + 19.0, escaped(pod));
        let begins = std::iter::once((-MARGIN, Doing::Works)).chain(events.iter().copied());
        let ends = events.iter().map(|(time, _)| *time).chain([end]);
        for ((from, doing), to) in begins.zip(ends) {
            bar(&mut svg, (x(from), x(to)), y, doing);
        }
        svg.push_str("</g>");
    }
    let failed = std::iter::once((0.0, "a worker fails"));
    for (number, (time, what)) in failed.chain(marks).enumerate() {
        let (x, y) = (x(time), 18.0 + 18.0 * f64::from(u32::try_from(number % 2).unwrap_or_default()));
        let anchor = if x > RIGHT - 240.0 { "end" } else { "start" };
        let _ = write!(
            svg,
            "<line class=\"mark\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.0}\" y2=\"{bottom:.0}\"/>\
             <text x=\"{x:.1}\" y=\"{y:.0}\" text-anchor=\"{anchor}\">{time:.2} s: {}</text>",
            y + 4.0,
            escaped(what),
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.0}\" text-anchor=\"end\">{last:.2} s: all run again, in the same Pods</text></svg>",
        x(last),
        bottom + 24.0,
    );
    svg.push('\n');
    svg
}

/// One bar, with its words where they fit.
fn bar(svg: &mut String, (from, to): (f64, f64), y: f64, doing: Doing) {
    let (color, words) = doing.style();
    let width = (to - from).max(0.0);
    let _ = write!(
        svg,
        "<rect x=\"{from:.1}\" y=\"{y:.0}\" width=\"{width:.1}\" height=\"{:.0}\" rx=\"3\" fill=\"{color}\"/>",
        ROW - 8.0
    );
    if width > 52.0 {
        let _ = write!(svg, "<text x=\"{:.1}\" y=\"{:.0}\">{words}</text>", from + 6.0, y + 17.0);
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(pod: &str, what: &str) -> Line {
        Line {
            pod: pod.to_owned(),
            node: String::new(),
            uid: "kept",
            epoch: String::new(),
            synced: 5,
            deprecated: 4,
            what: what.to_owned(),
        }
    }

    #[test]
    fn each_pod_has_a_bar_for_each_state_and_each_change_of_the_jobset_a_mark() {
        let lines = [
            (0.0, line("a", "worker ended, exit code 1")),
            (0.5, line("jobset/train", "deprecatedEpoch = 5")),
            (0.9, line("b", "worker ended, exit code 143")),
            (1.0, line("a", "waits at the barrier")),
            (1.2, line("b", "waits at the barrier")),
            (1.3, line("b", "barrier lifted")),
            (1.5, line("a", "WORKER STARTED")),
            (2.0, line("b", "WORKER STARTED")),
        ];
        let svg = svg(&lines);
        assert_eq!((svg.matches("<rect").count(), svg.matches("<line").count()), (8, 2), "{svg}");
        assert!(svg.contains("2.00 s: all run again") && svg.contains("0.50 s: deprecatedEpoch = 5"), "{svg}");
        assert_eq!(super::svg(&lines[..4]), "");
    }
}
