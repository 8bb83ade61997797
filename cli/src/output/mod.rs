//! From a report to what is printed. Reports are values, here they become text; nothing here does I/O but [`screen`].

mod screen;
mod style;
mod table;
mod time;

use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

use crate::args::Output;
use crate::error::Error;

pub use screen::Screen;
pub use style::{BAD, DIM, GOOD, HEAD, WAIT, one_line, paint};
pub use table::Table;
pub use time::{age, clock, seconds};

/// How people want to see a report.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// Now, for ages.
    pub now: Timestamp,
    /// Whether there is to be more of it.
    pub wide: bool,
    /// Whether each Pod has a line of its own, however many are alike.
    pub pods: bool,
}

/// What a command found out.
pub trait Report: Serialize {
    /// The report for people, with colours.
    fn text(&self, view: &View) -> String;
}

/// The report in the form that is asked for.
///
/// # Errors
/// If it cannot be serialised.
pub fn rendered(report: &impl Report, output: Output, view: &View) -> Result<String, Error> {
    match output {
        Output::Table => Ok(report.text(view)),
        Output::Wide => Ok(report.text(&View { wide: true, ..*view })),
        Output::Json => serde_json::to_string_pretty(report)
            .map(|json| json + "\n")
            .map_err(|error| Error::Serialize { format: "JSON", message: error.to_string() }),
        Output::Yaml => serde_yaml_ng::to_string(report)
            .map(|yaml| format!("---\n{yaml}"))
            .map_err(|error| Error::Serialize { format: "YAML", message: error.to_string() }),
    }
}
