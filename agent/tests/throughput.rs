//! A worker that writes much: its output arrives byte by byte, and the agent keeps to its memory.

use std::hash::{DefaultHasher, Hasher as _};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;

use super::fake::{END, FakeApiServer, FakeResponse, STATE};

/// Bytes of each stream: together 100 MB a second, for a minute.
const BYTES: u64 = 3_000_000_000;
/// Peak memory of the agent, in kB: half of what an injected sidecar may use.
const MEMORY: u64 = 16 * 1024;

/// Number and digest of the bytes of a stream.
async fn digest(mut stream: impl AsyncRead + Unpin) -> Result<(u64, u64)> {
    let (mut hasher, mut bytes, mut chunk) = (DefaultHasher::new(), 0, vec![0; 1 << 20]);
    loop {
        let read = stream.read(&mut chunk).await?;
        if read == 0 {
            return Ok((bytes, hasher.finish()));
        }
        bytes += u64::try_from(read)?;
        hasher.write(&chunk[..read]);
    }
}

/// Runs the worker below the agent or alone. Returns the digests of both streams, and the peak memory of the process in kB.
async fn run(mut program: Command) -> Result<([(u64, u64); 2], u64)> {
    let mut child =
        program.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null()).kill_on_drop(true).spawn()?;
    let (stdout, stderr) = (child.stdout.take().context("no stdout")?, child.stderr.take().context("no stderr")?);
    let status = format!("/proc/{}/status", child.id().context("it has ended")?);
    let streams = tokio::spawn(async move { tokio::try_join!(digest(stdout), digest(stderr)) });
    let mut peak = 0;
    let mut samples = tokio::time::interval(Duration::from_millis(100));
    // The peak is gone when the process is.
    while !streams.is_finished() {
        let status = std::fs::read_to_string(&status).unwrap_or_default();
        let line =
            status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
        peak = line.unwrap_or(peak).max(peak);
        samples.tick().await;
    }
    let (stdout, stderr) = streams.await??;
    child.wait().await?;
    Ok(([stdout, stderr], peak))
}

/// `make test-output` runs it: a minute, which `make test` does not have.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes a minute; make test-output runs it"]
async fn output_of_a_minute_arrives_byte_by_byte() -> Result<()> {
    let script = format!("seq 1000000000 | head -c {BYTES} & seq 2000000000 -1 1 | head -c {BYTES} >&2; wait");
    let bypassed = STATE.replace("InPlaceRestart", "Recreate");
    let fake = FakeApiServer::start(move |_| FakeResponse::lines(&[&bypassed, END], true)).await?;
    let mut alone = Command::new("sh");
    alone.args(["-c", &script]);
    let (expected, _) = run(alone).await?;
    let began = Instant::now();
    let mut agent = fake.command("{token: secret}", &["sh", "-c", &script])?;
    agent.env("JOBSET_AGENT_LOG", "off");
    let (copied, peak) = run(agent).await?;
    let seconds = began.elapsed().as_secs_f64();
    #[allow(clippy::cast_precision_loss)]
    let rate = 2.0 * BYTES as f64 / 1e6 / seconds;
    println!("{BYTES} bytes of each stream in {seconds:.1} s, {rate:.0} MB/s; the agent's peak memory is {peak} kB");
    ensure!(copied == expected && copied[0].0 == BYTES, "the output was changed: {copied:?}, not {expected:?}");
    ensure!(peak > 0 && peak <= MEMORY, "the agent used {peak} kB, more than {MEMORY} kB");
    Ok(())
}
