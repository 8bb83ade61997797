//! Colours: only the sixteen that every terminal has and its user can choose.

use anstyle::{AnsiColor, Style};

/// Ready, running or succeeded.
pub const GOOD: Style = AnsiColor::Green.on_default();
pub const BAD: Style = AnsiColor::Red.on_default().bold();
pub const WAIT: Style = AnsiColor::Yellow.on_default();
pub const HEAD: Style = Style::new().bold();
pub const DIM: Style = Style::new().dimmed();

/// The text in one line, with single blanks between words, and safe to print as [`printable`].
pub fn one_line(text: &str) -> String {
    printable(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The text with blanks in place of what could control a terminal or reverse the text on it. Workers write termination
/// messages, last words and parts of Events.
pub fn printable(text: &str) -> String {
    let is_safe = |char: char| match char {
        '\n' => true,
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => false,
        char => !char.is_control(),
    };
    text.chars().map(|char| if is_safe(char) { char } else { ' ' }).collect()
}

/// The text with a capital letter at its start.
pub fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

/// The text in this style. [`Screen`](super::Screen) removes styles where colours are off.
pub fn paint(style: Style, text: impl AsRef<str>) -> String {
    let text = text.as_ref();
    if text.is_empty() || style.is_plain() { text.to_owned() } else { format!("{style}{text}{style:#}") }
}
