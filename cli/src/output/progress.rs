//! A line of progress on standard error. It is rewritten on a terminal; elsewhere each change is a line of its own.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use anstream::{AutoStream, ColorChoice};
use unicode_width::UnicodeWidthChar as _;

use super::choice;
use crate::args::ColorMode;

/// Moves the cursor to the first column and clears the line.
const CLEAR: &str = "\r\u{1b}[K";
/// Columns of a terminal that does not tell its size.
const COLUMNS: usize = 80;

#[derive(Debug)]
pub struct ProgressLine {
    color: ColorChoice,
    is_terminal: bool,
    shown: String,
}

impl ProgressLine {
    /// Standard error with colours by the given mode.
    pub fn new(color: ColorMode) -> Self {
        Self { color: choice(color, &io::stderr()), is_terminal: io::stderr().is_terminal(), shown: String::new() }
    }

    /// Shows how far it is. The time alone is no change for a file or pipe.
    pub fn show(&mut self, text: &str, elapsed: Duration) {
        let elapsed = elapsed.as_secs();
        if self.is_terminal {
            text.clone_into(&mut self.shown);
            // The last column stays free: some terminals wrap a line that fills it.
            let columns = rustix::termios::tcgetwinsize(io::stderr()).map_or(0, |size| usize::from(size.ws_col));
            let room = if columns > 0 { columns } else { COLUMNS }.saturating_sub(1);
            write(&format!("{CLEAR}{}", cut(&format!("{elapsed}s  {text}"), room)));
        } else if self.shown != text {
            text.clone_into(&mut self.shown);
            write(&format!("{elapsed}s  {text}\n"));
        }
    }

    /// Says something that stays, in a line of its own.
    pub fn note(&mut self, text: &str) {
        self.end(&format!("{text}\n"));
    }

    /// Ends the progress, with a text that stays if it is not empty.
    pub fn end(&mut self, text: &str) {
        if self.is_terminal && !self.shown.is_empty() {
            write(CLEAR);
        }
        self.shown.clear();
        let mut out = AutoStream::new(io::stderr(), self.color);
        let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    }
}

/// Writes to standard error. Nobody may listen there, which is no failure.
fn write(text: &str) {
    let mut out = io::stderr().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// The start of a text that fits into this many columns.
fn cut(text: &str, columns: usize) -> String {
    let mut width = 0;
    let fits = |char: &char| {
        width += char.width().unwrap_or(0);
        width <= columns
    };
    text.chars().take_while(fits).collect()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::fits("abc", 3, "abc")]
    #[case::too_long("abcd", 3, "abc")]
    #[case::wide_characters("\u{8a13}\u{7df4}", 3, "\u{8a13}")]
    #[case::no_room("abc", 0, "")]
    fn text_wider_than_terminal_is_cut(#[case] text: &str, #[case] columns: usize, #[case] shown: &str) {
        assert_eq!(cut(text, columns), shown);
    }
}
