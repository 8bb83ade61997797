//! A worker that writes much: its output arrives byte by byte, and the agent keeps to its memory.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Child;

use super::fake::{END, FakeApiServer, FakeResponse, STATE};

/// Bytes of each stream: of both together, a minute of 100 MB a second.
const BYTES: usize = 3_000_000_000;
/// Length of the text that the worker writes again and again. No buffer's length divides it.
const PERIOD: usize = 10_000_019;
/// Peak memory of the agent, in kB: half of what an injected sidecar may use.
const MEMORY: u64 = 16 * 1024;

/// Bytes that do not repeat within the period.
fn text() -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[0]
    };
    (0..PERIOD).map(|_| next()).collect()
}

/// Reads a stream to its end, and compares it with the text, again and again. Returns the number of bytes.
async fn compare(mut stream: impl AsyncRead + Unpin, text: &[u8]) -> Result<usize> {
    let (mut bytes, mut chunk) = (0, vec![0; 1 << 20]);
    loop {
        let read = stream.read(&mut chunk).await?;
        if read == 0 {
            return Ok(bytes);
        }
        let mut left = &chunk[..read];
        while !left.is_empty() {
            let expected = &text[bytes % PERIOD..];
            let length = left.len().min(expected.len());
            ensure!(left[..length] == expected[..length], "other bytes than the worker's, within 1 MiB after {bytes}");
            bytes += length;
            left = &left[length..];
        }
    }
}

/// The peak memory of the process, in kB, once its output has ended.
async fn peak(child: &Child, output_has_ended: impl Fn() -> bool) -> Result<u64> {
    let status = format!("/proc/{}/status", child.id().context("it has ended")?);
    let mut peak = 0;
    let mut samples = tokio::time::interval(Duration::from_millis(100));
    // The peak is gone when the process is.
    while !output_has_ended() {
        let status = std::fs::read_to_string(&status).unwrap_or_default();
        let line =
            status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
        peak = line.unwrap_or(peak).max(peak);
        samples.tick().await;
    }
    Ok(peak)
}

/// `make test-output` runs it: a minute, which `make test` does not have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute; make test-output runs it"]
async fn output_of_a_minute_arrives_byte_by_byte() -> Result<()> {
    let (folder, text) = (tempfile::tempdir()?, text());
    let file = folder.path().join("text");
    std::fs::write(&file, &text)?;
    let stream = format!("while cat {}; do :; done 2>/dev/null | head -c {BYTES}", file.display());
    let script = format!("({stream}) & ({stream}) >&2; wait");
    let bypassed = STATE.replace("InPlaceRestart", "Recreate");
    let fake = FakeApiServer::start(move |_| FakeResponse::lines(&[&bypassed, END], true)).await?;
    let began = Instant::now();
    let mut agent = fake.command("{token: secret}", &["sh", "-c", &script])?;
    agent.env("JOBSET_AGENT_LOG", "off").stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
    let mut child = agent.kill_on_drop(true).spawn()?;
    let (stdout, stderr) = (child.stdout.take().context("no stdout")?, child.stderr.take().context("no stderr")?);
    let streams = tokio::spawn(async move { tokio::try_join!(compare(stdout, &text), compare(stderr, &text)) });
    let peak = peak(&child, || streams.is_finished()).await?;
    let copied = streams.await??;
    child.wait().await?;
    let seconds = began.elapsed().as_secs_f64();
    #[allow(clippy::cast_precision_loss)]
    let rate = 2.0 * BYTES as f64 / 1e6 / seconds;
    println!("{BYTES} bytes of each stream in {seconds:.1} s, {rate:.0} MB/s; the agent's peak memory is {peak} kB");
    ensure!(copied == (BYTES, BYTES), "not all of the output has arrived: {copied:?}");
    ensure!(peak > 0 && peak <= MEMORY, "the agent used {peak} kB, more than {MEMORY} kB");
    Ok(())
}
