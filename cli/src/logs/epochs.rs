//! Divides the log of a supervised worker by epoch.

/// What the agent writes when the worker of an epoch may start.
const LIFTED: &str = "jobset_agent::run: barrier lifted epoch=";

/// Says of each line of a log in which epoch it was written.
#[derive(Clone, Debug)]
pub(super) struct EpochOfLine {
    epoch: Option<i32>,
    /// Whether the log has lines of the agent that begin an epoch.
    is_divided: bool,
}

impl EpochOfLine {
    /// Of a log that is divided by the agent, or that belongs to this epoch as a whole.
    pub(super) fn new(is_divided: bool, epoch: Option<i32>) -> Self {
        Self { epoch: epoch.filter(|_| !is_divided), is_divided }
    }

    /// The epoch of the next line; none before the first epoch, and without epochs.
    pub(super) fn next(&mut self, line: &[u8]) -> Option<i32> {
        if self.is_divided
            && let Some(epoch) = begun(line)
        {
            self.epoch = Some(epoch);
        }
        self.epoch
    }
}

/// The epoch that begins with this line of the agent.
fn begun(line: &[u8]) -> Option<i32> {
    let place = line.windows(LIFTED.len()).position(|part| part == LIFTED.as_bytes())?;
    // A line of the agent begins with its time and level, and no worker's name is there.
    let head = std::str::from_utf8(&line[..place]).ok()?;
    let [time, "INFO"] = head.split_whitespace().collect::<Vec<_>>()[..] else { return None };
    time.parse::<k8s_openapi::jiff::Timestamp>().ok()?;
    let rest = std::str::from_utf8(&line[place + LIFTED.len()..]).ok()?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_supervised_worker_belong_to_epoch_that_began_last() {
        let lines = [
            ("2026-01-01T00:00:00.000000Z  INFO jobset_agent::report: reporting the epoch epoch=1", None),
            ("2026-01-01T00:00:01.000000Z  INFO jobset_agent::run: barrier lifted epoch=1", Some(1)),
            ("step 1", Some(1)),
            ("rank 0: jobset_agent::run: barrier lifted epoch=9", Some(1)),
            ("2026-01-01T00:00:02.000000Z  INFO jobset_agent::run: the worker has ended code=1", Some(1)),
            ("2026-01-01T00:00:03.000000Z  INFO jobset_agent::run: barrier lifted epoch=2", Some(2)),
            ("step 1", Some(2)),
        ];
        let mut epochs = EpochOfLine::new(true, Some(2));
        for (line, expected) in lines {
            assert_eq!(epochs.next(line.as_bytes()), expected, "{line}");
        }
    }

    #[test]
    fn log_beside_sidecar_belongs_to_one_epoch() {
        let mut epochs = EpochOfLine::new(false, Some(4));
        let marker = b"2026-01-01T00:00:01Z  INFO jobset_agent::run: barrier lifted epoch=1";
        assert_eq!((epochs.next(b"\xff\xfe"), epochs.next(marker)), (Some(4), Some(4)));
        assert_eq!(EpochOfLine::new(false, None).next(b"a"), None);
    }
}
