//! The plugin on a terminal and in a pipe: colours, `--watch`, Ctrl-C, and a closed pipe.

use std::io::Read as _;
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use rexpect::process::WaitStatus;
use rexpect::session::{PtySession, spawn_command};

use crate::fixture::{LIMIT, Space, in_place};

const GREEN: &str = "\u{1b}[32m";
/// Clears the line of progress.
const LINE: &str = "\r\u{1b}[K";
const CLEAR: &str = "\u{1b}[H\u{1b}[2J";

fn spawn(space: &Space, args: &[&str]) -> Result<PtySession> {
    let mut command = space.plugin(args);
    command.env("TERM", "xterm-256color");
    let millis = u64::try_from(LIMIT.as_millis())?;
    Ok(spawn_command(command, Some(millis))?)
}

fn ended(session: &PtySession) -> Result<i32> {
    match session.process().wait()? {
        WaitStatus::Exited(_, code) => Ok(code),
        other => bail!("the plugin did not exit: {other:?}"),
    }
}

#[tokio::test]
async fn watch_on_terminal_redraws_until_ctrl_c() -> Result<()> {
    let space = Space::new("terminal").await?;
    space.create(in_place("train", 1)).await?;
    let pods = space.pods_of("train", 1).await?;
    let mut session = spawn(&space, &["status", "train", "--watch"])?;
    session.exp_string(CLEAR)?;
    session.exp_string("closed, 0 of 1 Pods have reported epoch 1")?;
    space.report(&pods[0], 1).await?;
    space.runs(&pods[0], 0).await?;
    session.exp_string(CLEAR)?;
    session.exp_string(&format!("{GREEN}Running"))?;
    session.send_control('c')?;
    assert_eq!(ended(&session)?, 130);
    Ok(())
}

#[tokio::test]
async fn wait_on_terminal_rewrites_its_line_until_ctrl_c() -> Result<()> {
    let space = Space::new("terminal-wait").await?;
    space.create(in_place("train", 1)).await?;
    let pods = space.pods_of("train", 1).await?;
    let mut session = spawn(&space, &["wait", "train", "--for", "running"])?;
    session.exp_string(&format!("{LINE}0s  terminal-wait/train Starting: 0 of 1 workers run"))?;
    // Without a change, the line still tells the time.
    session.exp_string(&format!("{LINE}1s  "))?;
    session.send_control('c')?;
    session.exp_string(LINE)?;
    assert_eq!(ended(&session)?, 130);

    let mut session = spawn(&space, &["wait", "train", "--for", "running"])?;
    session.exp_string("0 of 1 workers run")?;
    space.report(&pods[0], 1).await?;
    space.runs(&pods[0], 0).await?;
    session.exp_string(&format!("{GREEN}runs: its worker runs in epoch 1"))?;
    assert_eq!(ended(&session)?, 0);
    Ok(())
}

#[tokio::test]
async fn colour_is_for_terminals_unless_set() -> Result<()> {
    let space = Space::new("colours").await?;
    space.create(in_place("train", 1)).await?;
    space.pods_of("train", 1).await?;
    for (args, variable, coloured) in [
        (["status", "train", "--color=auto"], None, true),
        (["status", "train", "--color=never"], None, false),
        (["status", "train", "--color=auto"], Some("1"), false),
        (["status", "train", "--color=always"], Some("1"), true),
    ] {
        let mut command = space.plugin(&args);
        command.env("TERM", "xterm-256color");
        if let Some(value) = variable {
            command.env("NO_COLOR", value);
        }
        let mut session = spawn_command(command, Some(10_000))?;
        let text = session.exp_eof()?;
        assert_eq!(text.contains('\u{1b}'), coloured, "{args:?} {variable:?}: {text:?}");
    }
    // The output is a pipe.
    assert!(!space.run(&["status", "train"], 0).await?.contains('\u{1b}'));
    assert!(space.run(&["status", "train", "--color=always"], 0).await?.contains('\u{1b}'));
    Ok(())
}

#[tokio::test]
async fn watch_in_pipe_ends_quietly_when_pipe_closes() -> Result<()> {
    let space = Space::new("pipe").await?;
    space.create(in_place("train", 1)).await?;
    let pods = space.pods_of("train", 1).await?;
    let mut child = space.plugin(&["status", "train", "-w"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut out = child.stdout.take().context("no output")?;
    let (mut text, mut buffer) = (String::new(), [0; 4096]);
    while !text.contains("0 of 1 Pods have reported") {
        let count = out.read(&mut buffer)?;
        text += &String::from_utf8_lossy(&buffer[..count]);
    }
    assert!(!text.contains('\u{1b}'), "{text:?}");
    drop(out);
    space.report(&pods[0], 1).await?;
    space.runs(&pods[0], 0).await?;
    let output = tokio::task::spawn_blocking(move || child.wait_with_output()).await??;
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    Ok(())
}
