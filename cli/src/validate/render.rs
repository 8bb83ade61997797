//! The text of verdicts: a line for each object, followed by its errors, warnings and notes.

use super::check::{Outcome, Verdict, Verdicts};
use super::strict::Rejection;
use crate::output::{BAD, DIM, GOOD, Report, View, WAIT, paint};

impl Report for Verdicts {
    fn text(&self, _: &View) -> String {
        if self.objects.is_empty() {
            return "The input contains no object.\n".to_owned();
        }
        self.objects.iter().map(verdict).collect()
    }
}

fn verdict(verdict: &Verdict) -> String {
    let (style, word) = match verdict.outcome {
        Outcome::Admitted => (GOOD, "passes admission"),
        Outcome::Rejected => (BAD, "rejected"),
        Outcome::Skipped => (DIM, "skipped"),
        Outcome::Unreadable => (BAD, "unreadable"),
    };
    let what = match (verdict.kind.as_str(), verdict.name.as_str()) {
        ("", _) if verdict.document == 0 => String::new(),
        ("", _) => format!("document {}: ", verdict.document),
        (kind, "") => format!("{kind} without a name: "),
        (kind, name) => format!("{kind} {name}: "),
    };
    let skipped = if verdict.outcome == Outcome::Skipped { " (not a JobSet)" } else { "" };
    let error = |error: &Rejection| {
        let field = if error.field.is_empty() { String::new() } else { format!("{}: ", error.field) };
        format!("  {} {field}{}\n", paint(BAD, "error:"), error.message)
    };
    let errors: String = verdict.errors.iter().map(error).collect();
    let warning = |warning: &String| format!("  {} {warning}\n", paint(WAIT, "warning:"));
    let warnings: String = verdict.warnings.iter().map(warning).collect();
    let note = |note: &String| format!("  {} {note}\n", paint(DIM, "note:"));
    let notes: String = verdict.notes.iter().map(note).collect();
    format!("{}: {what}{}{skipped}\n{errors}{warnings}{notes}", verdict.source, paint(style, word))
}
