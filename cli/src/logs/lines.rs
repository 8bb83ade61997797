//! The lines to show of a log: those of the epoch that the user asks for, with their Pod and epoch; of these, the last ones.

use std::collections::VecDeque;

use super::epochs::{EpochLine, EpochOfLine};
use super::source::LogSource;

#[derive(Clone, Debug)]
pub(super) struct ShownLines {
    pod: String,
    /// The only epoch to show.
    only: Option<i32>,
    epochs: EpochOfLine,
    /// The last lines, until the end of the log is known.
    last: Option<LastLines>,
}

#[derive(Clone, Debug)]
struct LastLines {
    most: usize,
    lines: VecDeque<Vec<u8>>,
}

impl ShownLines {
    /// Of all lines, or of the last so many until the first end.
    pub(super) fn new(source: &LogSource, last: Option<usize>) -> Self {
        Self {
            pod: source.pod.clone(),
            only: source.only,
            epochs: EpochOfLine::new(source.is_divided, source.epoch),
            last: last.map(|most| LastLines { most, lines: VecDeque::new() }),
        }
    }

    /// The lines to show after this line of the log.
    pub(super) fn next(&mut self, line: Vec<u8>) -> Vec<Vec<u8>> {
        let lines = self.epochs.next(line);
        let shown = self.shown(lines);
        let Some(last) = &mut self.last else { return shown };
        for line in shown {
            last.lines.push_back(line);
            if last.lines.len() > last.most {
                last.lines.pop_front();
            }
        }
        Vec::new()
    }

    /// The lines to show at the end of what there is of the log. All lines that follow are shown.
    pub(super) fn end(&mut self) -> Vec<Vec<u8>> {
        let lines = self.epochs.end();
        let shown = self.shown(lines);
        let Some(last) = self.last.take() else { return shown };
        let all: Vec<Vec<u8>> = last.lines.into_iter().chain(shown).collect();
        all[all.len().saturating_sub(last.most)..].to_vec()
    }

    /// Whether the last lines are to be found, or lines wait for their epoch.
    pub(super) fn waits_for_end(&self) -> bool {
        self.last.is_some() || matches!(self.epochs, EpochOfLine::Unknown { .. })
    }

    fn shown(&self, lines: Vec<EpochLine>) -> Vec<Vec<u8>> {
        let is_asked = |(epoch, _): &EpochLine| self.only.is_none() || *epoch == self.only;
        lines.into_iter().filter(is_asked).map(|line| self.labelled(line)).collect()
    }

    fn labelled(&self, (epoch, line): EpochLine) -> Vec<u8> {
        let pod = &self.pod;
        let mut shown = match epoch {
            Some(epoch) => format!("[{pod} epoch {epoch}] "),
            None => format!("[{pod}] "),
        }
        .into_bytes();
        shown.extend(line);
        shown.push(b'\n');
        shown
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn divided(only: Option<i32>) -> LogSource {
        LogSource { pod: "p".to_owned(), is_divided: true, epoch: Some(2), only, ..LogSource::default() }
    }

    #[rstest]
    #[case::all(None, None, "[p epoch 1] a|[p epoch 1] b|[p epoch 2] L|[p epoch 2] c|[p epoch 2] d")]
    #[case::last_of_both_epochs(None, Some(4), "[p epoch 1] b|[p epoch 2] L|[p epoch 2] c|[p epoch 2] d")]
    #[case::last_of_one_epoch(Some(1), Some(1), "[p epoch 1] b")]
    #[case::more_than_there_are(Some(1), Some(9), "[p epoch 1] a|[p epoch 1] b")]
    #[case::none(None, Some(0), "")]
    fn last_lines_of_divided_log_are_shown(
        #[case] only: Option<i32>,
        #[case] last: Option<usize>,
        #[case] expected: &str,
    ) {
        let lifted = "2026-01-01T00:00:00Z  INFO jobset_agent::run: barrier lifted epoch=2";
        let mut lines = ShownLines::new(&divided(only), last);
        let mut shown: Vec<Vec<u8>> =
            ["a", "b", lifted, "c", "d"].iter().flat_map(|line| lines.next(line.as_bytes().to_vec())).collect();
        shown.extend(lines.end());
        let text = String::from_utf8(shown.concat()).unwrap().replace(lifted, "L");
        assert_eq!(text.trim_end().replace('\n', "|"), expected);
        assert!(!lines.waits_for_end());
        assert_eq!(lines.next(b"e".to_vec()).len(), usize::from(only.is_none()), "what is written later is shown");
    }
}
