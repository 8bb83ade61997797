//! Colours, the sixteen that every terminal has and its user has chosen.

use anstyle::{AnsiColor, Style};

/// All is well.
pub const GOOD: Style = AnsiColor::Green.on_default();
/// Something has failed.
pub const BAD: Style = AnsiColor::Red.on_default().bold();
/// Something is yet to come.
pub const WAIT: Style = AnsiColor::Yellow.on_default();
/// Titles.
pub const HEAD: Style = Style::new().bold();
/// What matters less.
pub const DIM: Style = Style::new().dimmed();

/// The words of a text in one line.
pub fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The text in this style. Whoever prints it takes the style out again where it is not wanted.
pub fn paint(style: Style, text: impl AsRef<str>) -> String {
    let text = text.as_ref();
    if text.is_empty() || style.is_plain() { text.to_owned() } else { format!("{style}{text}{style:#}") }
}
