//! The program with an environment it cannot use: one line, a non-zero exit, never a panic.

use std::process::{Command, Output, Stdio};

use rstest::rstest;

const COMPLETE: [(&str, &str); 3] = [("NAMESPACE", "default"), ("POD_NAME", "a-0"), ("JOBSET_NAME", "a")];

fn run(environment: &[(&str, &str)]) -> std::io::Result<Output> {
    let mut program = Command::new(env!("CARGO_BIN_EXE_jobset-agent"));
    program.env_clear().envs(environment.iter().copied()).output()
}

fn assert_refused(output: &Output, variable: &str) {
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains(variable), "{said}");
}

#[rstest]
fn a_missing_variable_is_named(#[values(0, 1, 2)] missing: usize) {
    let (variable, _) = COMPLETE[missing];
    let rest: Vec<_> = COMPLETE.into_iter().filter(|(name, _)| *name != variable).collect();
    assert_refused(&run(&rest).unwrap(), variable);
}

#[rstest]
fn an_exit_code_outside_of_1_to_255_is_named(#[values("0", "256", "-1", "many")] code: &str) {
    let mut environment = COMPLETE.to_vec();
    environment.push(("RESTART_POD_IN_PLACE_EXIT_CODE", code));
    assert_refused(&run(&environment).unwrap(), "RESTART_POD_IN_PLACE_EXIT_CODE");
}

#[test]
fn without_credentials_it_says_what_to_mount() {
    let output = run(&COMPLETE).unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains("ServiceAccount"), "{said}");
}

#[test]
fn an_empty_kubeconfig_is_none() {
    let mut environment = COMPLETE.to_vec();
    environment.push(("KUBECONFIG", ""));
    let said = String::from_utf8_lossy(&run(&environment).unwrap().stderr).into_owned();
    assert!(said.contains("ServiceAccount"), "{said}");
}

/// Whoever has gone does not read; the exit code is there for all others.
#[rstest]
#[case::help(&["--help"], 0)]
#[case::version(&["--version"], 0)]
#[case::an_unknown_argument(&["--nonsense"], 2)]
#[case::a_folder_that_is_not_there(&["install", "/nonexistent"], 1)]
fn nobody_who_reads_it_is_no_reason_to_panic(#[case] arguments: &[&str], #[case] code: i32) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut program = Command::new(env!("CARGO_BIN_EXE_jobset-agent"));
    program.env_clear().args(arguments).stdout(Stdio::from(writer.try_clone().unwrap())).stderr(Stdio::from(writer));
    assert_eq!(program.status().unwrap().code(), Some(code));
}
