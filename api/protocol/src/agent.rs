//! The agent in a worker Pod: the names and values that manifests, admission and the agent itself share.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;

/// Name of the agent's binary, and of the injected container.
pub const NAME: &str = "jobset-agent";
/// First argument of the agent as a supervisor. The worker's command follows after `--`.
pub const SUPERVISE: &str = "supervise";
/// First argument with which the agent copies its own binary into the folder that follows.
pub const INSTALL: &str = "install";
/// Exit code with which a sidecar has its Pod restarted in place, unless [`EXIT_CODE`] is set.
pub const DEFAULT_EXIT_CODE: u8 = 81;
/// Exit code of a supervisor whose worker had failed when its JobSet failed. No rule restarts the container, so that the Pod
/// stays, with its logs.
pub const FAILED_JOBSET_EXIT_CODE: u8 = 82;
/// `terminationMessagePolicy` of a container whose end of its log serves as the termination message, if it fails without one.
pub const FALLBACK_TO_LOGS: &str = "FallbackToLogsOnError";
/// Port of the barrier, unless [`BARRIER_PORT`] is set.
pub const DEFAULT_BARRIER_PORT: u16 = 8080;
/// Path of the barrier, unless [`BARRIER_PATH`] is set.
pub const DEFAULT_BARRIER_PATH: &str = "/barrier-is-lifted";

/// Path of the barrier of the Go JobSet's agent. A sidecar with this path is the Go JobSet's.
pub const GO_BARRIER_PATH: &str = "/barrier-is-down";
/// Port of the barrier of the Go JobSet's agent, unless [`GO_BARRIER_PORT`] is set.
pub const GO_DEFAULT_BARRIER_PORT: u16 = 8081;
/// Exit code of the Go JobSet's agent, unless [`GO_EXIT_CODE`] is set.
pub const GO_DEFAULT_EXIT_CODE: u8 = 1;

/// Environment of the agent: namespace of its Pod.
pub const NAMESPACE: &str = "NAMESPACE";
/// Environment of the agent: name of its Pod.
pub const POD_NAME: &str = "POD_NAME";
/// Environment of the agent: name of its JobSet.
pub const JOBSET_NAME: &str = "JOBSET_NAME";
/// Environment of the agent: UID of its JobSet.
pub const JOBSET_UID: &str = "JOBSET_UID";
/// Environment of the agent as a sidecar: the exit code that has its Pod restarted in place, 1 to 255 (KEP-467).
pub const EXIT_CODE: &str = "RESTART_POD_IN_PLACE_EXIT_CODE";
/// The Go JobSet's name of [`EXIT_CODE`].
pub const GO_EXIT_CODE: &str = "IN_PLACE_RESTART_EXIT_CODE";
/// Environment of the agent: port of the barrier, 1 to 65535.
pub const BARRIER_PORT: &str = "BARRIER_PORT";
/// Environment of the agent: path of the barrier.
pub const BARRIER_PATH: &str = "BARRIER_PATH";
/// The Go JobSet's name of [`BARRIER_PORT`].
pub const GO_BARRIER_PORT: &str = "STARTUP_PROBE_PORT";
/// The Go JobSet's name of [`BARRIER_PATH`].
pub const GO_BARRIER_PATH_VARIABLE: &str = "STARTUP_PROBE_PATH";
/// Environment of the Go JobSet's agent as a supervisor: the worker as a shell command.
pub const GO_WORKER_COMMAND: &str = "WORKER_COMMAND";
/// Environment of the agent as a sidecar: the file to which it writes the epoch before it lifts the barrier.
pub const EPOCH_FILE: &str = "EPOCH_FILE";
/// Environment of the agent as a sidecar: URL that it POSTs to, so that the worker saves its state before a restart.
pub const PRE_RESTART_URL: &str = "PRE_RESTART_URL";
/// Environment of the agent as a sidecar: file that it creates for the same purpose. The worker removes it.
pub const PRE_RESTART_FILE: &str = "PRE_RESTART_FILE";
/// Environment of the agent as a sidecar: how long the worker may take to save its state, in seconds.
pub const PRE_RESTART_SECONDS: &str = "PRE_RESTART_SECONDS";
/// Environment of the agent as a supervisor: exit codes of the worker that end the container, such as `2,3,64-78`.
pub const FATAL_EXIT_CODES: &str = "FATAL_EXIT_CODES";
/// Environment of the agent as a supervisor: time from SIGTERM to SIGKILL of the worker, in seconds.
pub const STOP_GRACE_SECONDS: &str = "STOP_GRACE_SECONDS";
/// Default of [`STOP_GRACE_SECONDS`].
pub const DEFAULT_STOP_GRACE_SECONDS: u32 = 2;
/// Environment of the agent: address of the relays' Service, `HOST:PORT`. Without it, the agent watches its JobSet.
pub const RELAY: &str = "JOBSET_RELAY";
/// Environment of the worker and of the agent: the file to which the worker writes its step. Without it, the agent looks at no
/// progress.
pub const PROGRESS_FILE: &str = "JOBSET_PROGRESS_FILE";
/// How often an agent tells of steps that rise, over the stream.
pub const STEPS_TOLD_EVERY: Duration = Duration::from_secs(30);
/// Largest step: every number up to it is exact in each language that reads JSON.
pub const MOST_STEPS: i64 = 1 << 53;
/// Value of [`PROGRESS_FILE`] in the Pods of a JobSet with the agent injected.
pub const DEFAULT_PROGRESS_FILE: &str = "/var/run/jobset-progress/step";
/// Environment of the agent: the value of [`STALL_AFTER`](crate::labels::STALL_AFTER). Without it, the agent reports progress and
/// no stall.
pub const STALL_AFTER: &str = "JOBSET_STALL_AFTER";
/// Shortest duration of [`STALL_AFTER`] and [`STALL_FIRST`]. Admission takes no other one, and the agent reads no other one.
pub const LEAST_STALL: Duration = Duration::from_secs(5);
/// Longest duration of both.
pub const LONGEST_STALL: Duration = Duration::from_hours(720);
/// Environment of the agent: the value of [`STALL_FIRST`](crate::labels::STALL_FIRST).
pub const STALL_FIRST: &str = "JOBSET_STALL_FIRST";
/// Environment of the agent as a supervisor: regular expression over the lines of the worker's output, with one group for the step.
pub const PROGRESS_PATTERN: &str = "JOBSET_PROGRESS_PATTERN";
/// Environment of the agent as a supervisor: a shell command that runs when a stall begins. The report has the end of its output.
pub const STALL_COMMAND: &str = "JOBSET_STALL_COMMAND";
/// Environment of the agent: what it logs, a level or `target=level,...`.
pub const LOG: &str = "JOBSET_AGENT_LOG";
/// Environment of the worker: its epoch. Also the key of the epoch in the file that [`EPOCH_FILE`] names.
pub const EPOCH: &str = "JOBSET_EPOCH";

/// Environment of the agent: the folder that takes the place of [`RELAY_FOLDER`].
pub const RELAY_FOLDER_VARIABLE: &str = "JOBSET_RELAY_FOLDER";
/// Folder in the agent's container with what it needs to speak with a relay: [`RELAY_TOKEN`] and [`RELAY_CA`].
pub const RELAY_FOLDER: &str = "/var/run/secrets/jobset-relay";
/// File in [`RELAY_FOLDER`]: the token of the agent's Pod with the audience [`RELAY_AUDIENCE`]. The kubelet renews it.
pub const RELAY_TOKEN: &str = "token";
/// File in [`RELAY_FOLDER`], and key of [`RELAY_CONFIG_MAP`]: the CA of the relays' certificates, in PEM. The file is absent
/// until the ConfigMap exists.
pub const RELAY_CA: &str = "ca.crt";
/// Audience of the token with which an agent speaks with a relay. The API server does not accept such a token, and a relay
/// accepts no other.
pub const RELAY_AUDIENCE: &str = "jobset-relay";
/// ConfigMap with the CA of the relays' certificates, which the controller keeps in the namespaces of JobSets whose agents
/// speak with relays.
pub const RELAY_CONFIG_MAP: &str = "jobset-relay-ca";

/// Shortest delay of an annotation behind the report over the stream.
const LEAST_ANNOTATION_DELAY: Duration = Duration::from_secs(10);
/// Pods of a group for each second that its annotations are delayed at least. On slow machines, large groups take so long to
/// restart.
const DELAYED_PER_SECOND: u32 = 300;
/// Annotations that the agents of one group write in a second, all together, while their reports go over the stream.
const ANNOTATIONS_PER_SECOND: u32 = 150;
/// Shortest time over which the agents of a group spread the writes of their annotations.
const SHORTEST_SPREAD: Duration = Duration::from_secs(1);

/// The shortest and the longest delay of an annotation behind the report over the stream, in a group of this many Pods. Each
/// agent draws its own. Most groups have restarted before the first is written, so the writes do not compete with the restart.
pub fn annotation_delays(pods: u32) -> RangeInclusive<Duration> {
    let pods = Duration::from_secs(u64::from(pods));
    let least = (pods / DELAYED_PER_SECOND).max(LEAST_ANNOTATION_DELAY);
    least..=least + (pods / ANNOTATIONS_PER_SECOND).max(SHORTEST_SPREAD)
}

/// Longest delay of an annotation that must not wait: that a worker makes no progress, makes some again, or has first told of it.
const LONGEST_PROMPT_DELAY: Duration = Duration::from_secs(3);

/// The longest delay of such an annotation in a group of this many Pods, without a stream. The Pods of a group stall in the same
/// second, so each agent draws its own from zero to this.
pub fn prompt_delay(pods: u32) -> Duration {
    (Duration::from_secs(u64::from(pods)) / ANNOTATIONS_PER_SECOND).min(LONGEST_PROMPT_DELAY)
}

/// Reads a time from a second to [`LONGEST_STALL`]: a number of seconds, or one followed by `s`, `m` or `h`.
pub fn time(text: &str) -> Option<Duration> {
    let units = [("s", 1), ("m", 60), ("h", 3600)];
    let (number, unit) =
        units.iter().find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, *seconds))).unwrap_or((text, 1));
    let seconds = number.parse::<u64>().ok()?.checked_mul(unit)?;
    (1..=LONGEST_STALL.as_secs()).contains(&seconds).then(|| Duration::from_secs(seconds))
}

/// Reads the value of [`STALL_FIRST`], or a time that is one of [`STALL_AFTER`]: from [`LEAST_STALL`] to [`LONGEST_STALL`], such as
/// `90s`, `20m` or `2h`.
pub fn stall_time(text: &str) -> Option<Duration> {
    time(text).filter(|time| *time >= LEAST_STALL)
}

/// Reads the value of [`FATAL_EXIT_CODES`]: exit codes and ranges of them, such as `2,3,64-78`. An exit code is 1 to 255;
/// 0 is no failure. Returns `None` if the text is not such a list.
pub fn exit_codes(text: &str) -> Option<BTreeSet<u8>> {
    let code = |text: &str| text.trim().parse::<u8>().ok().filter(|code| *code > 0);
    let mut codes = BTreeSet::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (code(first)?, code(last)?);
        if first > last {
            return None;
        }
        codes.extend(first..=last);
    }
    Some(codes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_list_is_read_with_ranges_and_spaces() {
        assert_eq!(exit_codes("3, 64-66,2"), Some(BTreeSet::from([2, 3, 64, 65, 66])));
        assert_eq!(exit_codes("255"), Some(BTreeSet::from([255])));
    }

    #[test]
    fn exit_codes_invalid_list_is_rejected() {
        for text in ["", "0", "256", "1,,2", "9-2", "-1", "1-", "0-3", "x"] {
            assert_eq!(exit_codes(text), None, "{text:?}");
        }
    }

    #[test]
    fn annotation_delays_grow_with_the_group() {
        let seconds =
            [0, 150, 3_000, 5_000, 15_000].map(annotation_delays).map(|it| (it.start().as_secs(), it.end().as_secs()));
        assert_eq!(seconds, [(10, 11), (10, 11), (10, 30), (16, 49), (50, 150)]);
    }

    #[test]
    fn prompt_delay_grows_with_the_group_up_to_three_seconds() {
        let milliseconds = [0, 3, 150, 300, 15_000].map(|pods| prompt_delay(pods).as_millis());
        assert_eq!(milliseconds, [0, 20, 1000, 2000, 3000]);
    }
}
