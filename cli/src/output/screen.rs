//! Standard output: a terminal, whose text is drawn again in its place, or a file, to which it is added.

use std::io::{self, IsTerminal as _, Write as _};

use anstream::{AutoStream, ColorChoice};

use crate::args::Color;
use crate::error::Error;

/// Cursor to the upper left corner, and everything after it away.
const HOME: &str = "\u{1b}[H\u{1b}[2J";

/// Standard output.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    color: ColorChoice,
    is_terminal: bool,
}

impl Screen {
    /// Standard output, with colours as they are asked for.
    pub fn new(color: Color) -> Self {
        let color = match color {
            Color::Auto => AutoStream::choice(&io::stdout()),
            Color::Always => ColorChoice::AlwaysAnsi,
            Color::Never => ColorChoice::Never,
        };
        Self { color, is_terminal: io::stdout().is_terminal() }
    }

    /// Prints a text once.
    ///
    /// # Errors
    /// If it cannot be written, as when nobody reads any more.
    pub fn print(self, text: &str) -> Result<(), Error> {
        let mut out = AutoStream::new(io::stdout(), self.color);
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::Write)
    }

    /// Shows a text in place of the one before on a terminal, and after it elsewhere.
    ///
    /// # Errors
    /// As [`Self::print`].
    pub fn redraw(self, text: &str, is_first: bool) -> Result<(), Error> {
        if !self.is_terminal {
            let separator = if is_first { "" } else { "\n" };
            return self.print(&format!("{separator}{text}"));
        }
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
        let rows = size.map(|size| usize::from(size.ws_row)).filter(|rows| *rows > 1);
        // The sequence is for the terminal and no colour: it is not to be taken out with them.
        let mut out = io::stdout().lock();
        out.write_all(HOME.as_bytes()).map_err(Error::Write)?;
        drop(out);
        self.print(&rows.map_or_else(|| text.to_owned(), |rows| fit(text, rows)))
    }
}

/// The first lines of a text, as many as the terminal has room for, and how many there are more.
fn fit(text: &str, rows: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    // The cursor stands in the last row.
    if lines.len() < rows {
        return text.to_owned();
    }
    let shown = rows.saturating_sub(2);
    format!("{}\n... and {} more lines", lines[..shown].join("\n"), lines.len() - shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_longer_than_the_terminal_is_cut_and_says_so() {
        assert_eq!(fit("a\nb\n", 3), "a\nb\n");
        assert_eq!(fit("a\nb\nc\n", 3), "a\n... and 2 more lines");
        assert_eq!(fit("a\nb\nc\n", 2), "\n... and 3 more lines");
    }
}
