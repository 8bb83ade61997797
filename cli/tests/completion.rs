//! Completion: scripts that shells can read, and the answers to kubectl.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::fixture::{PROGRAM, Space, expect, folder, in_place};

fn script(shell: &str) -> Result<String> {
    expect(&Command::new(PROGRAM).args(["completion", shell]).output()?, 0)
}

fn check_syntax(shell: &str, script: &str) -> Result<()> {
    let mut child = Command::new(shell).arg("-n").stdin(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    child.stdin.take().context("no input")?.write_all(script.as_bytes())?;
    expect(&child.wait_with_output()?, 0).map(|_| ())
}

#[test]
fn scripts_of_shells_have_valid_syntax() -> Result<()> {
    check_syntax("bash", &script("bash")?)?;
    check_syntax("sh", &script("kubectl")?)?;
    for shell in ["zsh", "fish", "powershell"] {
        assert!(script(shell)?.contains("kubectl-jobset"), "{shell}");
    }
    Ok(())
}

#[test]
fn bash_script_begun_command_completes_it() -> Result<()> {
    let tried = r#"COMP_WORDS=(kubectl-jobset st) COMP_CWORD=1 COMP_TYPE=9; _clap_complete_kubectl_jobset kubectl-jobset st kubectl-jobset; echo "${COMPREPLY[@]}""#;
    let path = format!("{}:{}", folder().display(), std::env::var("PATH")?);
    let script = format!("{}\n{tried}", script("bash")?);
    let output = Command::new("bash").arg("-c").arg(script).env("PATH", path).output()?;
    assert_eq!(expect(&output, 0)?.trim(), "status");
    Ok(())
}

/// As kubectl runs `kubectl_complete-jobset`.
#[tokio::test]
async fn kubectl_asks_for_jobset_gets_names_from_cluster() -> Result<()> {
    let space = Space::new("completed").await?;
    for name in ["train-a", "train-b", "other"] {
        space.create(in_place(name, 1)).await?;
    }
    let bin = tempfile::tempdir()?;
    let program = bin.path().join("kubectl_complete-jobset");
    std::fs::write(&program, script("kubectl")?)?;
    expect(&Command::new("chmod").arg("+x").arg(&program).output()?, 0)?;
    let path = format!("{}:{}:{}", bin.path().display(), folder().display(), std::env::var("PATH")?);
    let mut kubectl = Command::new(&space.kubectl);
    let line = ["__complete", "jobset", "status", "-n", "completed", "train"];
    kubectl.args(line).env("PATH", path).env("KUBECONFIG", &space.kubeconfig);
    let text = expect(&kubectl.output()?, 0)?;
    let lines: Vec<_> = text.lines().take(3).collect();
    assert_eq!(lines, ["train-a", "train-b", ":4"], "{text}");
    Ok(())
}
