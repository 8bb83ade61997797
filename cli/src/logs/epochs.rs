//! Divides the log of a supervised worker by epoch.

use k8s_openapi::jiff::Timestamp;

/// What the agent writes when the worker of an epoch may start.
const LIFTED: &str = "jobset_agent::run: barrier lifted epoch=";
/// The begin of the names that lines of the agent have.
const AGENT: &str = "jobset_agent::";

/// A line with the epoch in which it was written, if it is known.
pub(super) type EpochLine = (Option<i32>, Vec<u8>);

/// Says of each line of a log in which epoch it was written.
#[derive(Clone, Debug)]
pub(super) enum EpochOfLine {
    /// All lines are of one epoch, or of none.
    Whole(Option<i32>),
    /// No line has begun an epoch yet: the log is that of a container that has just started, or the kubelet has rotated it.
    Unknown { running: Option<i32>, held: Vec<Vec<u8>> },
    /// Lines are of the epoch that began last.
    Begun(Option<i32>),
}

impl EpochOfLine {
    /// Of a log that is divided by the agent, whose worker runs in this epoch or ran in it last; or that belongs to this epoch as a
    /// whole.
    pub(super) fn new(is_divided: bool, epoch: Option<i32>) -> Self {
        if is_divided { Self::Unknown { running: epoch, held: Vec::new() } } else { Self::Whole(epoch) }
    }

    /// The lines whose epoch is known with this line. The others wait for the line that begins an epoch.
    pub(super) fn next(&mut self, line: Vec<u8>) -> Vec<EpochLine> {
        let is_begin = !matches!(self, Self::Whole(_));
        if let Some(epoch) = is_begin.then(|| begun(&line)).flatten() {
            let mut lines = self.release(epoch.checked_sub(1));
            *self = Self::Begun(Some(epoch));
            lines.push((Some(epoch), line));
            return lines;
        }
        match self {
            Self::Whole(epoch) | Self::Begun(epoch) => vec![(*epoch, line)],
            Self::Unknown { held, .. } => {
                held.push(line);
                Vec::new()
            }
        }
    }

    /// The lines that wait, at the end of what there is of the log. Lines that follow are of the same epoch.
    pub(super) fn end(&mut self) -> Vec<EpochLine> {
        let Self::Unknown { running, .. } = self else { return Vec::new() };
        let running = *running;
        let lines = self.release(running);
        *self = Self::Begun(running);
        lines
    }

    /// The lines that wait. A worker has written them in this epoch. An agent also writes before the first one.
    fn release(&mut self, epoch: Option<i32>) -> Vec<EpochLine> {
        let epoch = epoch.filter(|epoch| *epoch > 0);
        let Self::Unknown { held, .. } = self else { return Vec::new() };
        let labelled = |line: Vec<u8>| (epoch.filter(|_| of_agent(&line).is_none()), line);
        std::mem::take(held).into_iter().map(labelled).collect()
    }
}

fn begun(line: &[u8]) -> Option<i32> {
    let (level, text) = of_agent(line)?;
    let rest = text.strip_prefix(LIFTED).filter(|_| level == "INFO")?;
    rest.split_whitespace().next()?.parse().ok()
}

/// Level and text of a line of the agent, which begins with its time. The lines of workers may have the same words.
fn of_agent(line: &[u8]) -> Option<(&str, &str)> {
    let text = std::str::from_utf8(line).ok()?;
    let (time, rest) = text.split_once(' ')?;
    let (level, rest) = rest.trim_start().split_once(' ')?;
    time.parse::<Timestamp>().ok()?;
    rest.starts_with(AGENT).then_some((level, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORTS: &str = "2026-01-01T00:00:00.000000Z  INFO jobset_agent::report: reporting the epoch epoch=1";

    fn lifted(epoch: i32) -> String {
        format!("2026-01-01T00:00:0{epoch}.000000Z  INFO jobset_agent::run: barrier lifted epoch={epoch}")
    }

    /// The epochs of these lines, in their order.
    fn epochs(running: Option<i32>, lines: &[&str]) -> Vec<Option<i32>> {
        let mut epochs = EpochOfLine::new(true, running);
        let mut labelled: Vec<EpochLine> =
            lines.iter().flat_map(|line| epochs.next(line.as_bytes().to_vec())).collect();
        labelled.extend(epochs.end());
        let texts: Vec<_> = labelled.iter().map(|(_, line)| std::str::from_utf8(line).unwrap()).collect();
        assert_eq!(texts, lines, "each line once, and in its place");
        labelled.into_iter().map(|(epoch, _)| epoch).collect()
    }

    #[test]
    fn lines_of_supervised_worker_belong_to_epoch_that_began_last() {
        let ended = "2026-01-01T00:00:02.000000Z  INFO jobset_agent::run: the worker has ended code=1";
        let (first, second) = (lifted(1), lifted(2));
        let of_worker = "rank 0: jobset_agent::run: barrier lifted epoch=9";
        let lines = [REPORTS, &first, "step 1", of_worker, ended, &second, "step 1"];
        assert_eq!(epochs(Some(2), &lines), [None, Some(1), Some(1), Some(1), Some(1), Some(2), Some(2)]);
    }

    #[test]
    fn lines_before_first_begin_belong_to_epoch_before() {
        let begin = lifted(5);
        assert_eq!(epochs(Some(5), &["step 7", REPORTS, &begin, "step 8"]), [Some(4), None, Some(5), Some(5)]);
    }

    #[test]
    fn log_without_begin_belongs_to_running_epoch() {
        assert_eq!(epochs(Some(4), &["step 7", REPORTS]), [Some(4), None]);
        assert_eq!(epochs(None, &["step 7"]), [None]);
        let mut followed = EpochOfLine::new(true, Some(4));
        assert_eq!(followed.end(), []);
        assert_eq!(followed.next(b"step 8".to_vec()), [(Some(4), b"step 8".to_vec())]);
        assert_eq!(followed.next(lifted(5).into_bytes())[0].0, Some(5));
    }

    #[test]
    fn log_beside_sidecar_belongs_to_one_epoch() {
        let mut epochs = EpochOfLine::new(false, Some(4));
        for line in [b"\xff\xfe".to_vec(), lifted(1).into_bytes()] {
            assert_eq!(epochs.next(line.clone()), [(Some(4), line)]);
        }
        assert_eq!(EpochOfLine::new(false, None).next(b"a".to_vec())[0].0, None);
    }
}
