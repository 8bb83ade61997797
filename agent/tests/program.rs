//! The program with an invalid environment: it prints one line, exits with a code other than 0 and never panics.

use std::process::{Command, Output, Stdio};

use rstest::rstest;

const COMPLETE: [(&str, &str); 3] = [("NAMESPACE", "default"), ("POD_NAME", "a-0"), ("JOBSET_NAME", "a")];

fn run(environment: &[(&str, &str)]) -> std::io::Result<Output> {
    let mut program = Command::new(env!("CARGO_BIN_EXE_jobset-agent"));
    program.env_clear().envs(environment.iter().copied()).output()
}

/// `args` has a case for each variable.
#[rstest]
#[case::missing("POD_NAME", "")]
#[case::invalid("RESTART_POD_IN_PLACE_EXIT_CODE", "256")]
fn variable_missing_or_invalid_is_named(#[case] variable: &str, #[case] value: &str) {
    let output = run(&[&COMPLETE[..], &[(variable, value)]].concat()).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(2), 1), "{stderr}");
    assert!(stderr.contains(variable), "{stderr}");
}

#[test]
fn credentials_missing_names_the_service_account() {
    let output = run(&COMPLETE).unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), stderr.lines().count()), (Some(1), 1), "{stderr}");
    assert!(stderr.contains("ServiceAccount"), "{stderr}");
}

#[test]
fn kubeconfig_empty_counts_as_absent() {
    let mut environment = COMPLETE.to_vec();
    environment.push(("KUBECONFIG", ""));
    let stderr = String::from_utf8_lossy(&run(&environment).unwrap().stderr).into_owned();
    assert!(stderr.contains("ServiceAccount"), "{stderr}");
}

/// The reader of the output may have ended. The exit code must not depend on that.
#[rstest]
#[case::help(&["--help"], 0)]
#[case::version(&["--version"], 0)]
#[case::unknown_argument(&["--nonsense"], 2)]
#[case::missing_folder(&["install", "/nonexistent"], 1)]
fn output_without_reader_does_not_panic(#[case] arguments: &[&str], #[case] code: i32) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut program = Command::new(env!("CARGO_BIN_EXE_jobset-agent"));
    program.env_clear().args(arguments).stdout(Stdio::from(writer.try_clone().unwrap())).stderr(Stdio::from(writer));
    assert_eq!(program.status().unwrap().code(), Some(code));
}
