//! `validate` without a cluster.

use std::io::Write as _;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use jobset_harness::paths;

use crate::fixture::{PROGRAM, expect};

/// Runs `validate` with this standard input, and checks the exit code.
fn validate(args: &[&str], input: &str, code: i32) -> Result<String> {
    let mut command = Command::new(PROGRAM);
    command.arg("validate").args(args).env("KUBECONFIG", "/nowhere");
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    child.stdin.take().context("no input")?.write_all(input.as_bytes())?;
    expect(&child.wait_with_output()?, code)
}

#[test]
fn validate_outcome_sets_exit_code() -> Result<()> {
    let folder = paths::workspace().join("e2e/manifests");
    let story = folder.join("story-1.yaml");
    let story = story.to_str().context("not UTF-8")?;
    let passes = validate(&["-f", story], "", 0)?;
    assert_eq!(passes, format!("{story}: JobSet in-place: passes admission\n"));
    let everything = folder.join("everything.yaml");
    let everything = everything.to_str().context("not UTF-8")?;
    let warned = validate(&["-f", everything], "", 0)?;
    let begin = format!("{everything}: JobSet everything: passes admission\n  warning: ");
    assert!(warned.starts_with(&begin) && warned.contains("ttlSecondsAfterFinished: has no effect"), "{warned}");

    let injected = std::fs::read_to_string(folder.join("injected.yaml"))?;
    let assumed = validate(&["-f", "-"], &injected, 0)?;
    assert!(
        assumed.contains("note: the image of the agent is assumed: the admission webhook of the cluster sets it"),
        "{assumed}"
    );
    let given = validate(&["-f", "-", "-f", story, "--agent-image", "agent:1"], &injected, 0)?;
    assert!(!given.contains("note:"), "{given}");
    let gate =
        validate(&["-f", "-", "--agent-image", "agent:1", "--feature-gates", "InPlaceRestart=false"], &injected, 1)?;
    assert!(gate.contains("InPlaceRestart"), "{gate}");
    validate(&["-f", "-", "--agent-image", "agent:1", "-o", "json"], &injected, 0)?;

    validate(&["-f", "-"], "a: [", 2)?;
    validate(&["-f", "-"], "", 2)?;
    validate(&[], "", 2)?;
    let missing = validate(&["-f", "/nowhere.yaml"], "", 2)?;
    let url = validate(&["-f", "https://example.com/train.yaml"], "", 2)?;
    assert!(url.contains("URLs are not read"), "{url}");
    assert_eq!(missing, "error: cannot read /nowhere.yaml: No such file or directory (os error 2)\n");
    Ok(())
}
