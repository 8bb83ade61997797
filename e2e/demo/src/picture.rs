//! The timeline of a restart as a picture. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;

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

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Happening {
    /// What the Pod of this name does from then on.
    Pod(String, Activity),
    /// What the status of the JobSet says from then on.
    JobSet(String),
}

/// What a Pod does for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Activity {
    Works,
    Restarts,
    Waits,
}

impl Activity {
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
pub(super) fn svg(happenings: &[(f64, Happening)]) -> String {
    let mut pods: BTreeMap<&str, Vec<(f64, Activity)>> = BTreeMap::new();
    let mut marks = Vec::new();
    for (time, happening) in happenings {
        match happening {
            Happening::Pod(pod, activity) => pods.entry(pod).or_default().push((*time, *activity)),
            Happening::JobSet(status) => marks.push((*time, status.as_str())),
        }
    }
    let last_start = |events: &[(f64, Activity)]| {
        events.iter().filter(|(_, activity)| *activity == Activity::Works).map(|it| it.0).reduce(f64::max)
    };
    let Some(last) = pods.values().filter_map(|events| last_start(events)).reduce(f64::max) else {
        return String::new();
    };
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
        let begins = std::iter::once((-MARGIN, Activity::Works)).chain(events.iter().copied());
        let ends = events.iter().map(|(time, _)| *time).chain([end]);
        for ((from, activity), to) in begins.zip(ends) {
            bar(&mut svg, (x(from), x(to)), y, activity);
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
fn bar(svg: &mut String, (from, to): (f64, f64), y: f64, activity: Activity) {
    let (color, words) = activity.style();
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

    #[test]
    fn picture_has_bar_for_state_and_mark_for_change() {
        let pod = |name: &str, activity| Happening::Pod(name.to_owned(), activity);
        let happenings = [
            (0.0, pod("a", Activity::Restarts)),
            (0.5, Happening::JobSet("deprecatedEpoch = 5".to_owned())),
            (0.9, pod("b", Activity::Restarts)),
            (1.0, pod("a", Activity::Waits)),
            (1.2, pod("b", Activity::Waits)),
            (1.5, pod("a", Activity::Works)),
            (2.0, pod("b", Activity::Works)),
        ];
        let svg = svg(&happenings);
        assert_eq!((svg.matches("<rect").count(), svg.matches("<line").count()), (8, 2), "{svg}");
        assert!(svg.contains("2.00 s: all run again") && svg.contains("0.50 s: deprecatedEpoch = 5"), "{svg}");
        assert_eq!(super::svg(&happenings[..4]), "");
    }
}
