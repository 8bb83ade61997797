//! The output of a supervised worker: copied byte by byte to the streams of the agent, with its last lines kept.
//!
//! Each stream has a pipe and a thread of its own, so that a reader of the container's log that is slow blocks the worker, as
//! it does without a supervisor, and never the agent.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IsTerminal as _, Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{ChildStderr, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::mpsc;

use crate::progress::StepReader;

/// Number of bytes that are kept of both streams together, and at most of each.
const KEPT: usize = 4096;
/// Number of bytes that are copied at once: the capacity of a pipe.
const CHUNK: usize = 65536;
/// How long the agent waits for the rest of the output once no process of the worker is left. The reader of the container's
/// log may be stuck.
const DRAIN_LIMIT: Duration = Duration::from_secs(1);
/// Two threads cannot tell the order of writes that are closer than this.
const AT_ONCE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub struct WorkerOutput {
    stdout: Arc<Mutex<KeptOutput>>,
    stderr: Arc<Mutex<KeptOutput>>,
    /// Each thread holds a sender until it has copied everything.
    copied: mpsc::Receiver<()>,
}

/// The end of what a worker wrote to one stream.
#[derive(Debug)]
struct KeptOutput {
    bytes: VecDeque<u8>,
    /// When the last of it was read.
    read_at: Option<Instant>,
}

/// Makes the program write to pipes, unless the agent has a terminal. A terminal is inherited, so that the worker can use it.
pub fn pipe(command: &mut Command) {
    if !io::stdout().is_terminal() && !io::stderr().is_terminal() {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
    }
}

impl WorkerOutput {
    /// Copies these streams of a worker to those of the agent, each with a reader of its steps. Without pipes there is nothing to copy.
    pub fn copy(
        stdout: Option<ChildStdout>,
        stderr: Option<ChildStderr>,
        step_reader: impl Fn() -> Option<StepReader>,
    ) -> io::Result<Self> {
        let (sender, copied) = mpsc::channel(1);
        let output = Self { stdout: Arc::default(), stderr: Arc::default(), copied };
        copy("stdout", stdout.map(OwnedFd::from), io::stdout(), &output.stdout, step_reader(), &sender)?;
        copy("stderr", stderr.map(OwnedFd::from), io::stderr(), &output.stderr, step_reader(), &sender)?;
        Ok(output)
    }

    /// Waits until everything is copied, at most a second. Returns the last lines of the output.
    pub async fn drained(mut self) -> String {
        // Nothing is sent: the channel closes when the last thread ends.
        let _ = tokio::time::timeout(DRAIN_LIMIT, self.copied.recv()).await;
        let [mut stdout, mut stderr] =
            [&self.stdout, &self.stderr].map(|kept| kept.lock().unwrap_or_else(PoisonError::into_inner));
        both(&mut stdout, &mut stderr)
    }
}

/// The last lines of both streams. Those of the stream that was written last come last; of standard error, if both were written
/// at once.
fn both(stdout: &mut KeptOutput, stderr: &mut KeptOutput) -> String {
    let stdout_is_last = stdout.read_at.zip(stderr.read_at).is_some_and(|(stdout, stderr)| stdout >= stderr + AT_ONCE);
    let (first, last) = if stdout_is_last { (stderr, stdout) } else { (stdout, stderr) };
    let share = |own: &KeptOutput, other: &KeptOutput| {
        (KEPT / 2).max(KEPT.saturating_sub(other.bytes.len())).min(own.bytes.len())
    };
    let shares = [share(first, last), share(last, first)];
    let lines = [(first, shares[0]), (last, shares[1])].map(|(kept, share)| {
        let is_cut = kept.bytes.len() > share || kept.bytes.len() == KEPT;
        let begin = kept.bytes.len() - share;
        last_lines(&kept.bytes.make_contiguous()[begin..], is_cut)
    });
    lines.join("\n").trim().to_owned()
}

fn copy(
    name: &str,
    from: Option<OwnedFd>,
    to: impl AsFd,
    kept: &Arc<Mutex<KeptOutput>>,
    mut step_reader: Option<StepReader>,
    copied: &mpsc::Sender<()>,
) -> io::Result<()> {
    let Some(from) = from else { return Ok(()) };
    // A second descriptor of the stream of the agent is not buffered.
    let (mut from, mut to) = (File::from(from), File::from(to.as_fd().try_clone_to_owned()?));
    let (kept, copied) = (Arc::clone(kept), copied.clone());
    // The thread allocates nothing: the allocator would give it a heap of its own.
    let mut chunk = vec![0; CHUNK];
    thread::Builder::new().name(name.to_owned()).stack_size(CHUNK * 2).spawn(move || {
        loop {
            let read = match from.read(&mut chunk) {
                Ok(0) => break,
                Ok(read) => &chunk[..read],
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            kept.lock().unwrap_or_else(PoisonError::into_inner).keep(read);
            if let Some(steps) = &mut step_reader {
                steps.read(read);
            }
            // Without a reader the output is lost, as it is without a supervisor. The worker must not end because of that.
            let _ = to.write_all(read);
        }
        drop(copied);
    })?;
    Ok(())
}

impl Default for KeptOutput {
    fn default() -> Self {
        Self { bytes: VecDeque::with_capacity(KEPT), read_at: None }
    }
}

impl KeptOutput {
    /// Keeps the last bytes.
    fn keep(&mut self, read: &[u8]) {
        let read = &read[read.len().saturating_sub(KEPT)..];
        let surplus = (self.bytes.len() + read.len()).saturating_sub(KEPT);
        self.bytes.drain(..surplus);
        self.bytes.extend(read);
        self.read_at = Some(Instant::now());
    }
}

/// The output as a text that is safe to show: without escape sequences of terminals and without control characters other than
/// the end of a line and a tab. A first line that may be cut off is left out if others follow.
fn last_lines(bytes: &[u8], is_cut: bool) -> String {
    let text = String::from_utf8_lossy(bytes);
    let whole = text.split_once('\n').filter(|(_, rest)| is_cut && !rest.trim().is_empty());
    let mut characters = whole.map_or(&*text, |(_, rest)| rest).chars().peekable();
    let mut shown = String::new();
    while let Some(character) = characters.next() {
        match character {
            // A sequence such as ESC [ 3 1 m ends with its first letter.
            '\u{1b}' if characters.next_if_eq(&'[').is_some() => {
                while characters.next_if(|it| !it.is_ascii_alphabetic()).is_some() {}
            }
            '\n' | '\t' => shown.push(character),
            _ if character.is_control() => {}
            _ => shown.push(character),
        }
        if character == '\u{1b}' {
            characters.next_if(char::is_ascii_alphabetic);
        }
    }
    shown.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::nothing(b"", "")]
    #[case::lines(b"step 7\nloss is NaN\n", "step 7\nloss is NaN")]
    #[case::colour(b"\x1b[31mred\x1b[0m end", "red end")]
    #[case::escape_at_the_end(b"end\x1b", "end")]
    #[case::control_characters(b"a\x00b\x07\r\n\tc", "ab\n\tc")]
    #[case::no_utf8(b"a\xffb", "a\u{fffd}b")]
    fn last_lines_are_safe_to_show(#[case] bytes: &[u8], #[case] expected: &str) {
        assert_eq!(last_lines(bytes, false), expected);
    }

    /// The output of one stream, written so many milliseconds after the start.
    fn kept(text: &[u8], start: Instant, after: u64) -> KeptOutput {
        let mut kept = KeptOutput::default();
        kept.keep(text);
        KeptOutput { read_at: kept.read_at.map(|_| start + Duration::from_millis(after)), ..kept }
    }

    #[rstest]
    #[case::at_once("out", 10, "err", 0, "out\nerr")]
    #[case::error_last("out", 0, "err", 100, "out\nerr")]
    #[case::output_last("out\n", 100, "err\n", 0, "err\nout")]
    #[case::no_error("out", 0, "", 0, "out")]
    fn lines_of_the_stream_written_last_come_last(
        #[case] out: &str,
        #[case] out_at: u64,
        #[case] err: &str,
        #[case] err_at: u64,
        #[case] expected: &str,
    ) {
        let start = Instant::now();
        let lines = both(&mut kept(out.as_bytes(), start, out_at), &mut kept(err.as_bytes(), start, err_at));
        assert_eq!(lines, expected);
    }

    #[test]
    fn lines_of_long_output_are_whole_and_of_both_streams() {
        let text = |name: &str| (0..1000).fold(String::new(), |text, number| format!("{text}{name} {number}\n"));
        let start = Instant::now();
        let lines = both(&mut kept(text("out").as_bytes(), start, 0), &mut kept(text("err").as_bytes(), start, 0));
        assert!(lines.len() <= KEPT && lines.len() > KEPT - 40, "{}", lines.len());
        assert!(lines.starts_with("out ") && lines.contains("\nout 999\nerr "), "{lines}");
        assert!(lines.ends_with("\nerr 999"), "{lines}");
        let alone = both(&mut kept(text("out").as_bytes(), start, 0), &mut KeptOutput::default());
        assert!(alone.len() > KEPT - 40 && alone.ends_with("\nout 999"), "{alone}");
    }

    #[test]
    fn keep_of_one_long_chunk_is_its_end() {
        let mut kept = KeptOutput::default();
        kept.keep(b"before");
        kept.keep(&[[b'a'; KEPT], [b'b'; KEPT]].concat());
        assert_eq!(kept.bytes, vec![b'b'; KEPT]);
    }
}
