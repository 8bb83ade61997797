//! Renders reports as text, JSON or YAML. Only [`screen`] does I/O.

mod progress;
mod screen;
mod style;
mod table;
mod time;

use anstream::stream::RawStream;
use anstream::{AutoStream, ColorChoice};
use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

use crate::args::{ColorMode, OutputFormat};
use crate::error::Error;

pub use progress::ProgressLine;
pub use screen::Screen;
pub use style::{BAD, DIM, GOOD, HEAD, WAIT, capitalized, one_line, paint, printable};
pub use table::Table;
pub use time::{age, clock, seconds, until};

fn choice(color: ColorMode, stream: &impl RawStream) -> ColorChoice {
    match color {
        ColorMode::Auto => AutoStream::choice(stream),
        ColorMode::Always => ColorChoice::AlwaysAnsi,
        ColorMode::Never => ColorChoice::Never,
    }
}

/// Options of a report's text.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// The current time, for ages.
    pub now: Timestamp,
    /// Whether to add the columns of `-o wide`.
    pub wide: bool,
    /// Whether each Pod has its own line, also where many are alike.
    pub pods: bool,
}

pub trait Report: Serialize {
    /// The report as text with colours.
    fn text(&self, view: &View) -> String;
}

pub fn rendered(report: &impl Report, output: OutputFormat, view: &View) -> Result<String, Error> {
    match output {
        OutputFormat::Table => Ok(report.text(view)),
        OutputFormat::Wide => Ok(report.text(&View { wide: true, ..*view })),
        OutputFormat::Json => serde_json::to_string_pretty(report)
            .map(|json| json + "\n")
            .map_err(|error| Error::Serialize { format: "JSON", message: error.to_string() }),
        OutputFormat::Yaml => serde_yaml_ng::to_string(report)
            .map(|yaml| format!("---\n{yaml}"))
            .map_err(|error| Error::Serialize { format: "YAML", message: error.to_string() }),
    }
}
