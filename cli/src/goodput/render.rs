//! The text of where time went.

use jobset_api::{Ledger, LedgerBucket};
use k8s_openapi::jiff::Timestamp;

use super::report::{GoodputReport, GoodputRow, Spent, seconds};
use crate::output::{BAD, GOOD, HEAD, Report, Table, View, WAIT, capitalized, paint};

/// Goodput from which on a share is good, and below which it is bad.
const GOOD_FROM: f64 = 0.9;
const BAD_BELOW: f64 = 0.5;

impl Report for GoodputReport {
    fn text(&self, view: &View) -> String {
        let mut parts = Vec::new();
        match self.jobsets.as_slice() {
            [] if self.without_ledger.is_empty() => {
                let place = self.namespace.as_ref().map_or("any namespace".to_owned(), |it| format!("namespace {it}"));
                return format!("There is no such JobSet in {place}.\n");
            }
            [] => {}
            [row] if !view.wide => parts.push(one(row)),
            rows => parts.push(many(rows, self.namespace.is_none())),
        }
        if !self.without_ledger.is_empty() {
            let text = format!(
                "Without a ledger, because no controller that keeps one has written their status: {}.",
                self.without_ledger.join(", ")
            );
            parts.push(paint(WAIT, text) + "\n");
        }
        parts.join("\n")
    }
}

/// The share of the active time that was of use, for the line of a report. None if the JobSet has not been active.
pub fn summary(ledger: &Ledger, now: Timestamp) -> Option<String> {
    let Spent { active, redone, goodput, .. } = Spent::of(ledger, now);
    let share = goodput?;
    let redone = if redone > 0 { ", without steps that are done again" } else { "" };
    Some(format!("{} of {}{redone}", paint(style(share), percent(share)), duration(seconds(active))))
}

fn one(row: &GoodputRow) -> String {
    let name = paint(HEAD, format!("{}/{}", row.namespace, row.name));
    let share = row.goodput.map_or_else(
        || "it has not been active yet".to_owned(),
        |share| format!("goodput {} of {}", paint(style(share), percent(share)), duration(row.active_seconds)),
    );
    let mut table = Table::titled(&["BUCKET", "TIME", "SHARE", ""]);
    for bucket in LedgerBucket::TIMED {
        let time = time_in(bucket, row);
        let now = if bucket == row.bucket { "now" } else { "" };
        table.push(vec![capitalized(bucket.word()), duration(time), share_in(bucket, row), now.to_owned()]);
        if bucket == LedgerBucket::Running && row.redone_seconds > 0.0 {
            let steps = format!("{} steps", row.redone_steps);
            let cells =
                ["- of it done again", &duration(row.redone_seconds), &share_of(row.redone_seconds, row), &steps];
            table.push(cells.map(str::to_owned).to_vec());
        }
    }
    let late = if row.begins_late {
        let since =
            format!("The ledger began at {:.0}, when its controller first saw the JobSet, which is older.", row.since);
        format!("\n{}\n", paint(WAIT, since))
    } else {
        String::new()
    };
    format!("{name}  {share}\n{}{late}", table.render())
}

fn many(rows: &[GoodputRow], all_namespaces: bool) -> String {
    let buckets = LedgerBucket::TIMED.map(|bucket| bucket.word().to_uppercase());
    let mut titles = if all_namespaces { vec!["NAMESPACE", "NAME"] } else { vec!["NAME"] };
    titles.extend(["GOODPUT", "TIME", "NOW"]);
    titles.extend(buckets.iter().map(String::as_str));
    titles.push("REDONE");
    let mut table = Table::titled(&titles);
    for row in rows {
        let mut cells = if all_namespaces { vec![row.namespace.clone()] } else { Vec::new() };
        let goodput = row.goodput.map_or_else(|| "-".to_owned(), |share| paint(style(share), percent(share)));
        cells.extend([row.name.clone(), goodput, duration(row.active_seconds), row.bucket.word().to_owned()]);
        cells.extend(LedgerBucket::TIMED.map(|bucket| match bucket {
            LedgerBucket::Suspended => duration(time_in(bucket, row)),
            bucket => share_in(bucket, row),
        }));
        cells.push(share_of(row.redone_seconds, row));
        table.push(cells);
    }
    table.render()
}

fn style(share: f64) -> anstyle::Style {
    match share {
        share if share >= GOOD_FROM => GOOD,
        share if share < BAD_BELOW => BAD,
        _ => WAIT,
    }
}

fn time_in(bucket: LedgerBucket, row: &GoodputRow) -> f64 {
    row.seconds.get(bucket.word()).copied().unwrap_or_default()
}

/// The share of a bucket in the active time. That of the suspended one is in none.
fn share_in(bucket: LedgerBucket, row: &GoodputRow) -> String {
    if bucket == LedgerBucket::Suspended { "-".to_owned() } else { share_of(time_in(bucket, row), row) }
}

fn share_of(time: f64, row: &GoodputRow) -> String {
    if time > 0.0 && row.active_seconds > 0.0 { percent(time / row.active_seconds) } else { "-".to_owned() }
}

fn percent(share: f64) -> String {
    format!("{:.1}%", share * 100.0)
}

/// A time in at most two units.
fn duration(seconds: f64) -> String {
    if seconds <= 0.0 {
        return "-".to_owned();
    }
    // A life is far shorter than the largest number.
    #[allow(clippy::cast_possible_truncation)]
    let whole = seconds as i64;
    let (minutes, hours, days) = (whole / 60, whole / 3600, whole / 86_400);
    match whole {
        0..60 => format!("{seconds:.2}s"),
        60..3600 => format!("{minutes}m{}s", whole % 60),
        3600..86_400 => format!("{hours}h{}m", minutes % 60),
        _ => format!("{days}d{}h", hours % 24),
    }
}
