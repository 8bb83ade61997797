//! How far a log has been shown, so that it goes on there after its connection has broken.

use k8s_openapi::jiff::Timestamp;

/// The time of the last line that was shown, and how many lines of this time were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LogCursor {
    at: Option<Timestamp>,
    shown: usize,
    /// Lines of this time that were read since the log was opened.
    read: usize,
}

impl LogCursor {
    /// From when the log has to be read: the API server takes whole seconds, and gives lines that were shown, too.
    pub(super) fn since(&self) -> Option<Timestamp> {
        self.at.and_then(|at| Timestamp::from_second(at.as_second()).ok())
    }

    pub(super) fn reopen(&mut self) {
        self.read = 0;
    }

    /// A line without the time before it; none if it was shown before. A line without a time is new.
    pub(super) fn take(&mut self, line: &[u8]) -> Option<Vec<u8>> {
        let Some((time, text)) = split(line) else { return Some(line.to_vec()) };
        match self.at {
            Some(at) if time < at => return None,
            Some(at) if time == at => {
                self.read += 1;
                if self.read <= self.shown {
                    return None;
                }
                self.shown += 1;
            }
            _ => *self = Self { at: Some(time), shown: 1, read: 1 },
        }
        Some(text.to_vec())
    }
}

fn split(line: &[u8]) -> Option<(Timestamp, &[u8])> {
    let end = line.iter().position(|byte| *byte == b' ').unwrap_or(line.len());
    let time = std::str::from_utf8(&line[..end]).ok()?.parse().ok()?;
    Some((time, line.get(end + 1..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(cursor: &mut LogCursor, lines: &[&str]) -> Vec<String> {
        cursor.reopen();
        let shown = lines.iter().filter_map(|line| cursor.take(line.as_bytes()));
        shown.map(|line| String::from_utf8(line).unwrap()).collect()
    }

    #[test]
    fn log_opened_again_goes_on_after_its_last_line() {
        let mut cursor = LogCursor::default();
        assert_eq!(cursor.since(), None);
        let (a, b) = ("2026-01-01T00:00:01.25Z a", "2026-01-01T00:00:01.75Z b");
        assert_eq!(taken(&mut cursor, &[a, b]), ["a", "b"]);
        assert_eq!(cursor.since().unwrap().to_string(), "2026-01-01T00:00:01Z");
        // Another line of the same time, and an empty one.
        let (again, empty) = ("2026-01-01T00:00:01.75Z b", "2026-01-01T00:00:02Z");
        assert_eq!(taken(&mut cursor, &[a, b, again, empty]), ["b", ""]);
        assert_eq!(taken(&mut cursor, &[b, again, empty]), [""; 0]);
        assert_eq!(taken(&mut cursor, &["no time", "2026-01-01T00:00:03+01:00 old"]), ["no time"]);
    }
}
