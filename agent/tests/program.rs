//! The program with an environment it cannot use: one line, a non-zero exit, never a panic.

use std::process::{Command, Output};

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
