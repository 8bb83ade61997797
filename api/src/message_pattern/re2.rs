//! Translates RE2 syntax, as Go's `regexp` reads it, into the syntax of the `regex` crate.
//!
//! Both have the same semantics: linear time, no look-around, leftmost-first. Only syntax that differs is rewritten,
//! and the rest is copied. The crate rejects what RE2 does not know either.
//!
//! | RE2 | `regex` crate |
//! |---|---|
//! | `\Q..\E` | each character by its code |
//! | `\123`, `\0` | character by its code |
//! | `\d`, `\s`, `\w`, `\b` and their negations | ASCII only |
//! | `\p{^Greek}` | `\P{Greek}` |
//! | escaped punctuation, such as `\<` | character by its code |
//! | `{` that starts no repetition | character by its code |
//! | `[`, `&`, `~`, `-` in a class | character by its code |
//! | name of a group, which can start with a digit | omitted |

use std::fmt::Write as _;
use std::iter::Peekable;
use std::str::Chars;

/// Classes with the meaning of these letters in RE2. They are valid inside and outside of other classes.
const CLASSES: [(char, &str); 6] = [
    ('d', "[0-9]"),
    ('D', "[^0-9]"),
    ('s', r"[\t\n\x0C\r\x20]"),
    ('S', r"[^\t\n\x0C\r\x20]"),
    ('w', "[0-9A-Za-z_]"),
    ('W', "[^0-9A-Za-z_]"),
];

/// Number of code points from which on a range of a class is large.
const LARGE: u32 = 128;

/// A pattern in the syntax of the `regex` crate.
#[derive(Debug)]
pub(super) struct Translated {
    pub(super) text: String,
    /// Number of its classes that may have many code points. The parser builds each of them, whatever it is used for.
    pub(super) large_classes: usize,
    /// Whether letters match in either case, at least in a part of the pattern. The parser then looks at each code point of
    /// a large class.
    pub(super) ignores_case: bool,
}

pub(super) fn translate(pattern: &str) -> Translated {
    let mut to = Translation {
        rest: pattern.chars().peekable(),
        text: String::with_capacity(pattern.len() + 16),
        large_classes: 0,
        ignores_case: false,
    };
    while let Some(next) = to.rest.next() {
        match next {
            '\\' => to.escape(),
            '[' => to.class(),
            '(' => to.group(),
            '{' => to.brace(),
            '}' => to.literal('}'),
            other => to.text.push(other),
        }
    }
    Translated { text: to.text, large_classes: to.large_classes, ignores_case: to.ignores_case }
}

struct Translation<'a> {
    rest: Peekable<Chars<'a>>,
    text: String,
    large_classes: usize,
    ignores_case: bool,
}

impl Translation<'_> {
    /// Writes a literal character. The text is valid inside and outside of a class.
    fn literal(&mut self, character: char) {
        if character.is_ascii_alphanumeric() {
            self.text.push(character);
        } else {
            let _ = write!(self.text, "\\x{{{:X}}}", u32::from(character));
        }
    }

    /// Translates an escape sequence outside of a class. The backslash is already read.
    fn escape(&mut self) {
        match self.rest.peek() {
            Some('Q') => {
                self.rest.next();
                self.quote();
            }
            Some('b' | 'B') => {
                let Some(boundary) = self.rest.next() else { return };
                let _ = write!(self.text, "(?-u:\\{boundary})");
            }
            Some('A' | 'z') => self.copy_escaped(),
            _ => self.escape_of_class(),
        }
    }

    /// Translates an escape sequence that is valid inside and outside of a class. The backslash is already read.
    fn escape_of_class(&mut self) {
        let Some(next) = self.rest.peek().copied() else { return self.text.push('\\') };
        if let Some((_, class)) = CLASSES.iter().find(|(letter, _)| *letter == next) {
            self.rest.next();
            self.text.push_str(class);
            return;
        }
        match next {
            'p' | 'P' => self.property(),
            '0'..='7' => self.octal(),
            'x' => {
                self.copy_escaped();
                if self.rest.peek() == Some(&'{') {
                    self.copy_to('}');
                }
            }
            _ if next.is_ascii() && !next.is_ascii_alphanumeric() => {
                self.rest.next();
                self.literal(next);
            }
            _ => self.copy_escaped(),
        }
    }

    /// Translates a quoted text up to `\E` or the end.
    fn quote(&mut self) {
        while let Some(next) = self.rest.next() {
            if next == '\\' && self.rest.peek() == Some(&'E') {
                self.rest.next();
                return;
            }
            self.literal(next);
        }
    }

    /// Translates an octal code. A single digit other than 0 is copied: it is a back-reference, which RE2 does not
    /// have.
    fn octal(&mut self) {
        let digits: String =
            std::iter::from_fn(|| self.rest.next_if(|next| ('0'..='7').contains(next))).take(3).collect();
        match u32::from_str_radix(&digits, 8).ok().and_then(char::from_u32) {
            Some(character) if digits.len() > 1 || digits == "0" => {
                let _ = write!(self.text, "\\x{{{:X}}}", u32::from(character));
            }
            _ => {
                self.text.push('\\');
                self.text.push_str(&digits);
            }
        }
    }

    /// Translates a Unicode class.
    fn property(&mut self) {
        self.large_classes += 1;
        let Some(letter) = self.rest.next() else { return };
        let negated = self.rest.peek() == Some(&'{') && {
            let mut ahead = self.rest.clone();
            ahead.next();
            ahead.next() == Some('^')
        };
        let other = if letter == 'p' { 'P' } else { 'p' };
        self.text.push('\\');
        self.text.push(if negated { other } else { letter });
        if self.rest.peek() != Some(&'{') {
            return self.text.extend(self.rest.next());
        }
        self.text.extend(self.rest.next());
        if negated {
            self.rest.next();
        }
        self.copy_to('}');
    }

    /// Translates a class. The `[` is already read.
    fn class(&mut self) {
        self.text.push('[');
        self.text.extend(self.rest.next_if_eq(&'^'));
        let (mut first, mut is_large) = (true, false);
        // The character before, and whether a hyphen makes it the first one of a range.
        let (mut before, mut is_range) = ('\0', false);
        while let Some(next) = self.rest.next() {
            let was_range = std::mem::take(&mut is_range);
            match next {
                ']' if !first => {
                    self.large_classes += usize::from(is_large);
                    return self.text.push(']');
                }
                '[' if self.is_posix_class() => {
                    is_large |= self.rest.clone().nth(1) == Some('^');
                    self.text.push('[');
                    self.copy_to(']');
                }
                '\\' => {
                    // Codes can be the ends of a range, and these classes have all but a few characters.
                    is_large |= matches!(self.rest.peek(), Some('0'..='7' | 'x' | 'D' | 'S' | 'W'));
                    self.escape_of_class();
                }
                // A hyphen between two characters is a range.
                '-' if !first && self.rest.peek() != Some(&']') => {
                    is_range = true;
                    self.text.push('-');
                }
                other => {
                    is_large |= was_range && u32::from(other).saturating_sub(u32::from(before)) > LARGE;
                    before = other;
                    self.literal(other);
                }
            }
            first = false;
        }
    }

    fn is_posix_class(&self) -> bool {
        let rest: String = self.rest.clone().take(12).collect();
        rest.strip_prefix(':').is_some_and(|rest| rest.contains(":]"))
    }

    /// Translates a group without its name, which no caller reads. The `(` is already read.
    fn group(&mut self) {
        self.text.push('(');
        let rest: String = self.rest.clone().take(3).collect();
        let begin = if rest.starts_with("?P<") {
            3
        } else if rest.starts_with("?<") && !rest.starts_with("?<=") && !rest.starts_with("?<!") {
            2
        } else {
            self.ignores_case |= rest.starts_with('?') && self.sets_case();
            return;
        };
        let is_of_name = |next: &char| next.is_ascii_alphanumeric() || *next == '_';
        let name = self.rest.clone().skip(begin).take_while(is_of_name).count();
        if name > 0 && self.rest.clone().nth(begin + name) == Some('>') {
            let _ = self.rest.nth(begin + name);
        }
    }

    /// Whether the flags of the group, which begin here with `?`, have an `i`.
    fn sets_case(&self) -> bool {
        self.rest.clone().skip(1).take_while(|next| next.is_ascii_alphabetic() || *next == '-').any(|flag| flag == 'i')
    }

    /// Translates a brace: the start of a repetition, or a literal.
    fn brace(&mut self) {
        let inside: String = self.rest.clone().take_while(|next| *next != '}').take(12).collect();
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let (least, most) = inside.split_once(',').unwrap_or((&inside, ""));
        let closed = self.rest.clone().nth(inside.chars().count()) == Some('}');
        if closed && is_number(least) && (most.is_empty() || is_number(most)) {
            self.text.push('{');
            self.copy_to('}');
        } else {
            self.literal('{');
        }
    }

    fn copy_escaped(&mut self) {
        self.text.push('\\');
        self.text.extend(self.rest.next());
    }

    /// Copies the text up to and including this character.
    fn copy_to(&mut self, end: char) {
        for next in self.rest.by_ref() {
            self.text.push(next);
            if next == end {
                return;
            }
        }
    }
}
