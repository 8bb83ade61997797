//! Standard output. A new report replaces the last one on a terminal, and follows it in a file or pipe.

use std::io::{self, IsTerminal as _, Write as _};

use anstream::{AutoStream, ColorChoice};
use unicode_width::UnicodeWidthStr as _;

use super::choice;
use crate::args::ColorMode;
use crate::error::Error;

/// Moves the cursor to the upper left corner and clears the terminal.
const HOME: &str = "\u{1b}[H\u{1b}[2J";

#[derive(Clone, Copy, Debug)]
pub struct Screen {
    color: ColorChoice,
    is_terminal: bool,
}

impl Screen {
    /// Standard output with colours by the given mode.
    pub fn new(color: ColorMode) -> Self {
        Self { color: choice(color, &io::stdout()), is_terminal: io::stdout().is_terminal() }
    }

    /// Prints a text once.
    pub fn print(self, text: &str) -> Result<(), Error> {
        let mut out = AutoStream::new(io::stdout(), self.color);
        out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Error::Write)
    }

    /// Writes what others have written, as it is: the lines of a log.
    pub fn write(self, bytes: &[u8]) -> Result<(), Error> {
        let mut out = io::stdout().lock();
        out.write_all(bytes).and_then(|()| out.flush()).map_err(Error::Write)
    }

    /// Shows a text. It replaces the last one on a terminal, and follows it elsewhere.
    pub fn redraw(self, text: &str, is_first: bool) -> Result<(), Error> {
        if !self.is_terminal {
            let separator = if is_first { "" } else { "\n" };
            return self.print(&format!("{separator}{text}"));
        }
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
        let size = size.map(|size| (usize::from(size.ws_row), usize::from(size.ws_col)));
        let size = size.filter(|(rows, columns)| *rows > 1 && *columns > 0);
        // `print` may strip escape sequences together with colours, so this one is written directly.
        let mut out = io::stdout().lock();
        out.write_all(HOME.as_bytes()).map_err(Error::Write)?;
        drop(out);
        self.print(&size.map_or_else(|| text.to_owned(), |(rows, columns)| fit(text, rows, columns)))
    }
}

/// The first lines of a text that fit into the terminal, and the count of the others. A line wider than the terminal takes
/// several rows.
fn fit(text: &str, rows: usize, columns: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let heights: Vec<usize> = lines.iter().map(|line| width(line).div_ceil(columns).max(1)).collect();
    // The cursor needs the last row.
    if heights.iter().sum::<usize>() < rows {
        return text.to_owned();
    }
    let room = rows.saturating_sub(2);
    let ends = heights.iter().scan(0, |end, height| {
        *end += height;
        Some(*end)
    });
    let shown = ends.take_while(|end| *end <= room).count();
    let more: String = format!("... and {} more lines", lines.len() - shown).chars().take(columns).collect();
    format!("{}\n{more}", lines[..shown].join("\n"))
}

/// Columns that a line takes on the terminal, without its colours.
fn width(line: &str) -> usize {
    anstream::adapter::strip_str(line).to_string().width()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::fits("a\nb\n", (3, 80), "a\nb\n")]
    #[case::too_long("a\nb\nc\n", (3, 80), "a\n... and 2 more lines")]
    #[case::no_room_for_any("a\nb\nc\n", (2, 80), "\n... and 3 more lines")]
    #[case::wraps("aaaa\nb\n", (3, 3), "\n...")]
    #[case::wraps_and_fits("aaaa\nb\n", (4, 3), "aaaa\nb\n")]
    #[case::as_wide_as_the_terminal("aaa\nb\n", (3, 3), "aaa\nb\n")]
    #[case::some_rows_of_long_lines("a\naaaa\nb\nc\n", (5, 3), "a\naaaa\n...")]
    #[case::empty_lines("a\n\nb\n", (4, 3), "a\n\nb\n")]
    #[case::colours_take_no_width("\u{1b}[1m\u{1b}[31mabc\u{1b}[0m\nb\n", (3, 3), "\u{1b}[1m\u{1b}[31mabc\u{1b}[0m\nb\n")]
    #[case::wide_characters("\u{8a13}\u{7df4}\nb\n", (3, 3), "\n...")]
    #[case::branches("├─ a\nb\n", (3, 4), "├─ a\nb\n")]
    fn text_longer_than_terminal_is_cut_with_count(
        #[case] text: &str,
        #[case] (rows, columns): (usize, usize),
        #[case] shown: &str,
    ) {
        assert_eq!(fit(text, rows, columns), shown);
    }
}
