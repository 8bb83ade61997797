//! From RE2's syntax, as Go's `regexp` reads it, to that of the `regex` crate.
//!
//! Both have the same semantics: linear time, no look-around, leftmost-first. Where they write something differently, it is
//! rewritten; the rest is copied. What RE2 does not know either is left for the crate to refuse.
//!
//! | RE2 | here |
//! |---|---|
//! | `\Q..\E` | each character by its number |
//! | `\123`, `\0` | character by its number |
//! | `\d`, `\s`, `\w`, `\b` and their opposites | of ASCII alone |
//! | `\p{^Greek}` | `\P{Greek}` |
//! | escaped punctuation, as `\<` | character by its number |
//! | `{` that begins no repetition | character by its number |
//! | `[`, `&`, `~`, `-` inside of a class | character by its number |
//! | name of a group, which may begin with a digit | left out |

use std::fmt::Write as _;
use std::iter::Peekable;
use std::str::Chars;

/// The classes of the crate that mean, inside and outside of other classes, what RE2 means by these letters.
const CLASSES: [(char, &str); 6] = [
    ('d', "[0-9]"),
    ('D', "[^0-9]"),
    ('s', r"[\t\n\x0C\r\x20]"),
    ('S', r"[^\t\n\x0C\r\x20]"),
    ('w', "[0-9A-Za-z_]"),
    ('W', "[^0-9A-Za-z_]"),
];

/// The pattern in the syntax of the `regex` crate.
pub(super) fn translate(pattern: &str) -> String {
    let mut to = Translation { rest: pattern.chars().peekable(), text: String::with_capacity(pattern.len() + 16) };
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
    to.text
}

struct Translation<'a> {
    rest: Peekable<Chars<'a>>,
    text: String,
}

impl Translation<'_> {
    /// A character that means itself, wherever it is.
    fn literal(&mut self, character: char) {
        if character.is_ascii_alphanumeric() {
            self.text.push(character);
        } else {
            let _ = write!(self.text, "\\x{{{:X}}}", u32::from(character));
        }
    }

    /// What follows a backslash outside of a class.
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

    /// What follows a backslash anywhere.
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

    /// Everything up to `\E`, or to the end, means itself.
    fn quote(&mut self) {
        while let Some(next) = self.rest.next() {
            if next == '\\' && self.rest.peek() == Some(&'E') {
                self.rest.next();
                return;
            }
            self.literal(next);
        }
    }

    /// A digit other than 0 that stands alone would refer to a group, which RE2 does not know.
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

    /// A class of Unicode.
    fn property(&mut self) {
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

    /// A class, of which `[` is read.
    fn class(&mut self) {
        self.text.push('[');
        self.text.extend(self.rest.next_if_eq(&'^'));
        let mut first = true;
        while let Some(next) = self.rest.next() {
            match next {
                ']' if !first => return self.text.push(']'),
                '[' if self.is_posix_class() => {
                    self.text.push('[');
                    self.copy_to(']');
                }
                '\\' => self.escape_of_class(),
                // Between two characters it makes a range.
                '-' if !first && self.rest.peek() != Some(&']') => self.text.push('-'),
                other => self.literal(other),
            }
            first = false;
        }
    }

    fn is_posix_class(&self) -> bool {
        let rest: String = self.rest.clone().take(12).collect();
        rest.strip_prefix(':').is_some_and(|rest| rest.contains(":]"))
    }

    /// A group, of which `(` is read. Nobody asks for its name.
    fn group(&mut self) {
        self.text.push('(');
        let rest: String = self.rest.clone().take(3).collect();
        let begin = if rest.starts_with("?P<") {
            3
        } else if rest.starts_with("?<") && !rest.starts_with("?<=") && !rest.starts_with("?<!") {
            2
        } else {
            0
        };
        let named: Vec<char> = self.rest.clone().skip(begin).take_while(|next| *next != '>').collect();
        let is_name = |name: &[char]| {
            !name.is_empty() && name.iter().all(|letter| letter.is_ascii_alphanumeric() || *letter == '_')
        };
        if begin > 0 && is_name(&named) {
            let _ = self.rest.nth(begin + named.len());
        }
    }

    /// A brace that begins a repetition, or means itself.
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

    /// Copies up to this character, with it.
    fn copy_to(&mut self, end: char) {
        for next in self.rest.by_ref() {
            self.text.push(next);
            if next == end {
                return;
            }
        }
    }
}
