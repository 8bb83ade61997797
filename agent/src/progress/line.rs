//! The line by which a worker tells of its progress: `1200`, or `step=1200 phase=checkpoint limit=3600`.

use std::time::Duration;

use jobset_protocol::agent::{MOST_STEPS, time};

/// Longest name of a phase, and of what a worker is in, in bytes.
const NAME_BYTES: usize = 63;

/// What a worker tells. A value that cannot be is left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProgressLine {
    pub step: Option<i64>,
    /// Last step of which a checkpoint is complete.
    pub checkpoint: Option<i64>,
    pub phase: Option<String>,
    /// How long the phase may last without progress.
    pub limit: Option<Duration>,
    /// What the worker is in, such as a collective operation.
    pub within: Option<String>,
}

impl ProgressLine {
    /// The last line of this text that is not empty. Words that mean nothing are left out, as are those that are torn. A number alone is
    /// the step only as the first word, of a line without `step=`: the words after it may be anything.
    pub fn parse(text: &str) -> Self {
        let mut line = Self::default();
        let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        let words = || last.split_ascii_whitespace();
        if !words().any(|word| word.starts_with("step=")) {
            line.step = words().next().and_then(step);
        }
        for word in words() {
            match word.split_once('=') {
                Some(("step", value)) => line.step = step(value).or(line.step),
                Some(("checkpoint", value)) => line.checkpoint = step(value),
                Some(("phase", value)) => line.phase = name(value),
                Some(("in", value)) => line.within = name(value),
                Some(("limit", value)) => line.limit = time(value),
                Some(_) | None => {}
            }
        }
        line
    }

    /// A line with this step alone.
    pub fn of_step(text: &str) -> Self {
        Self { step: step(text), ..Self::default() }
    }

    /// Whether it says nothing: the file was touched alone, or is torn.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

fn step(value: &str) -> Option<i64> {
    value.parse().ok().filter(|step| (0..=MOST_STEPS).contains(step))
}

/// A name that is safe to show.
fn name(value: &str) -> Option<String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/".contains(&byte);
    (!value.is_empty() && value.len() <= NAME_BYTES && value.bytes().all(is_plain)).then(|| value.to_owned())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn line(step: i64, phase: &str, limit: u64) -> ProgressLine {
        ProgressLine {
            step: (step >= 0).then_some(step),
            phase: (!phase.is_empty()).then(|| phase.to_owned()),
            limit: (limit > 0).then(|| Duration::from_secs(limit)),
            ..ProgressLine::default()
        }
    }

    #[rstest]
    #[case::bare("1200\n", line(1200, "", 0))]
    #[case::named("step=1200", line(1200, "", 0))]
    #[case::without_end_of_line("1200", line(1200, "", 0))]
    #[case::zero("0", line(0, "", 0))]
    #[case::largest("9007199254740992", line(MOST_STEPS, "", 0))]
    #[case::phase("step=1200 phase=checkpoint", line(1200, "checkpoint", 0))]
    #[case::limit("phase=compile limit=3600", line(-1, "compile", 3600))]
    #[case::limit_with_unit("phase=compile limit=90m", line(-1, "compile", 5400))]
    #[case::other_order("limit=60s phase=eval step=7", line(7, "eval", 60))]
    #[case::last_of_many("1198\n1199\n1200\n\n", line(1200, "", 0))]
    #[case::unknown_key("step=7 loss=0.3", line(7, "", 0))]
    #[case::named_of_all("step=1200 of 5000", line(1200, "", 0))]
    #[case::bare_of_all("1200 / 5000", line(1200, "", 0))]
    #[case::bare_before_phase("1200 phase=eval", line(1200, "eval", 0))]
    #[case::bare_before_named("3 step=7", line(7, "", 0))]
    #[case::bare_before_torn_name("3 step=", line(-1, "", 0))]
    #[case::number_after_a_word("epoch 3 of 9", line(-1, "", 0))]
    #[case::number_after_a_phase("phase=eval 3", line(-1, "eval", 0))]
    #[case::touched("", line(-1, "", 0))]
    #[case::blank(" \n\t\n", line(-1, "", 0))]
    #[case::negative("-1", line(-1, "", 0))]
    #[case::absurd("99999999999999999999", line(-1, "", 0))]
    #[case::above_the_largest("9007199254740993", line(-1, "", 0))]
    #[case::fraction("12.5", line(-1, "", 0))]
    #[case::torn_key("step=1200 phase=", line(1200, "", 0))]
    #[case::torn_value("step=", line(-1, "", 0))]
    #[case::no_text("\0\0\0\0", line(-1, "", 0))]
    #[case::no_name("phase=a\u{1b}[2J", line(-1, "", 0))]
    #[case::no_limit("phase=eval limit=0", line(-1, "eval", 0))]
    #[case::limit_without_end("phase=eval limit=18446744073709551615h", line(-1, "eval", 0))]
    fn line_is_read(#[case] text: &str, #[case] expected: ProgressLine) {
        assert_eq!(ProgressLine::parse(text), expected);
    }

    #[test]
    fn line_with_operation_and_checkpoint_is_read() {
        let line = ProgressLine::parse("step=1200 checkpoint=1000 in=all_reduce");
        assert_eq!((line.step, line.checkpoint, line.within.as_deref()), (Some(1200), Some(1000), Some("all_reduce")));
    }

    #[test]
    fn line_with_long_name_has_no_phase() {
        let named = |length: usize| ProgressLine::parse(&format!("phase={}", "x".repeat(length))).phase;
        assert_eq!((named(NAME_BYTES).map(|name| name.len()), named(NAME_BYTES + 1)), (Some(NAME_BYTES), None));
    }
}
