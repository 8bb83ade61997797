//! `ui` on JobSets that the controller reconciles, asked as a browser asks it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Stdio};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::task::{block_in_place, spawn_blocking};

use crate::fixture::{LIMIT, PROGRAM, Space, in_place};

/// A running `ui`. It is ended with this value.
pub(crate) struct Ui {
    child: Child,
    /// The address that it has printed, with the token.
    pub(crate) address: String,
    port: u16,
}

impl Ui {
    /// Starts `ui` with these arguments, and waits for its address. `KUBECTL_JOBSET` names another program than that of the
    /// tests, such as an optimised one.
    pub(crate) fn start(space: &Space, args: &[&str]) -> Result<Self> {
        let mut command = space.plugin_of(
            &std::env::var("KUBECTL_JOBSET").unwrap_or_else(|_| PROGRAM.to_owned()),
            &[&["ui", "--no-browser"], args].concat(),
        );
        let mut child = command.stdout(Stdio::piped()).spawn()?;
        let mut address = String::new();
        BufReader::new(child.stdout.take().context("no output")?).read_line(&mut address)?;
        let address = address.trim_end().to_owned();
        let rest = address.strip_prefix("http://127.0.0.1:").with_context(|| format!("no address: {address:?}"))?;
        let port = rest.split('/').next().unwrap_or_default().parse()?;
        Ok(Self { child, address, port })
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a GET request for a path with these lines, and returns the open connection.
    fn get(&self, path: &str, lines: &str) -> Result<BufReader<TcpStream>> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(LIMIT))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\n{lines}\r\n", self.port)?;
        Ok(BufReader::new(stream))
    }

    /// Spends the token. Returns the line with the cookie.
    fn enter(&self) -> Result<String> {
        let path = self.address.split_once(&format!(":{}", self.port)).context("no port")?.1;
        let mut answer = String::new();
        self.get(path, "Connection: close\r\n")?.read_to_string(&mut answer)?;
        let cookie = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")).context(answer.clone())?;
        Ok(format!("Cookie: {}\r\n", cookie.split(';').next().unwrap_or_default()))
    }

    /// Sends Ctrl-C and returns the exit code.
    fn interrupt(mut self) -> Result<Option<i32>> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).context("no process")?;
        kill_process(pid, Signal::INT)?;
        Ok(self.child.wait()?.code())
    }
}

impl Drop for Ui {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads updates of a page until one of them satisfies a condition.
fn until(page: &mut BufReader<TcpStream>, what: &str, is_met: impl Fn(&Value) -> bool) -> Result<Value> {
    let mut last = Value::Null;
    loop {
        let mut line = String::new();
        if page.read_line(&mut line).with_context(|| format!("no {what}; the last update: {last}"))? == 0 {
            bail!("the events have ended before {what}");
        }
        if let Some(data) = line.strip_prefix("data: ") {
            last = serde_json::from_str(data)?;
            if is_met(&last) {
                return Ok(last);
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn page_follows_pods_reports_and_explanation() -> Result<()> {
    let space = Space::new("ui").await?;
    space.create(in_place("train", 2)).await?;
    let pods = space.pods_of("train", 2).await?;
    let ui = block_in_place(|| Ui::start(&space, &["train"]))?;
    assert!(ui.address.contains("/jobset/ui/train?token="), "{}", ui.address);
    let cookie = block_in_place(|| ui.enter())?;
    let mut page = ui.get("/events/ui/train", &cookie)?;
    let mut list = ui.get("/events", &cookie)?;
    block_in_place(|| {
        until(&mut page, "a grid of two Pods", |it| it["complete"] == true && it["head"]["barrier"]["reported"] == 0)?;
        until(&mut page, "an explanation", |it| {
            it["explanation"]["findings"]
                .as_array()
                .is_some_and(|all| all.iter().any(|one| one["reason"] == "WaitingAtBarrier"))
        })?;
        until(&mut list, "the JobSet in the list", |it| it["jobsets"][0]["name"] == "train")
    })?;
    space.node("ui-1", &serde_json::json!({})).await?;
    space.bind_to(&pods[0], "ui-1").await?;
    space.report(&pods[0], 1).await?;
    let name = pods[0].metadata.name.clone().unwrap_or_default();
    block_in_place(|| {
        until(&mut page, "a Pod at the barrier", |it| {
            it["cells"]
                .as_array()
                .is_some_and(|cells| cells.iter().any(|cell| cell[1] == "W" && cell[3] == name.as_str()))
        })?;
        let mut answer = String::new();
        let details = format!("/pod/ui/train/{name}");
        ui.get(&details, &format!("{cookie}Connection: close\r\n"))?.read_to_string(&mut answer)?;
        assert!(answer.contains("\"node\":\"ui-1\"") && answer.contains("\"barrier\":\"Waiting\""), "{answer}");
        anyhow::Ok(())
    })?;
    space.jobsets().delete("train", &kube::api::DeleteParams::default()).await?;
    block_in_place(|| until(&mut page, "the end", |it| it["exists"] == false))?;
    assert_eq!(block_in_place(|| ui.interrupt())?, Some(130));
    Ok(())
}

#[tokio::test]
async fn ui_that_cannot_be_served_ends_at_once() -> Result<()> {
    let space = Space::new("ui-errors").await?;
    let text = space.run(&["ui", "nobody", "--no-browser"], 3).await?;
    assert!(text.starts_with("error: there is no JobSet nobody in namespace ui-errors"), "{text}");
    let taken = TcpListener::bind("127.0.0.1:0")?;
    let port = taken.local_addr()?.port().to_string();
    let text = space.run(&["ui", "--no-browser", "--port", &port], 2).await?;
    assert!(text.contains(&format!("cannot listen on 127.0.0.1:{port}")) && text.contains("--port 0"), "{text}");
    let mut command = space.plugin(&["ui", "--no-browser", "--context", "none"]);
    let output = spawn_blocking(move || command.output()).await??;
    assert_eq!(output.status.code(), Some(2));
    Ok(())
}
