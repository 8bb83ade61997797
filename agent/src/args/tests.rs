use jobset_api::injection::{Settings, inject};
use jobset_api::{JobSet, labels};
use rstest::rstest;

use super::*;
use crate::progress::StallAfter;
use crate::save::SaveHookKind;

const REQUIRED: &[(&str, &str)] =
    &[("NAMESPACE", "ml"), ("POD_NAME", "train-workers-0-0-x7f2k"), ("JOBSET_NAME", "train")];

fn command(args: &[&str], changes: &[(&str, &str)]) -> Result<Command, ArgsError> {
    let of = |table: &[(&str, &str)], variable: &str| {
        table.iter().find(|(name, _)| *name == variable).map(|(_, value)| OsString::from(*value))
    };
    let env = |variable: &str| of(changes, variable).or_else(|| of(REQUIRED, variable));
    let is_file = |path: &Path| path == Path::new("/opt/bin/bash");
    Command::parse(args.iter().map(OsString::from), env, || Some("of-the-token".to_owned()), is_file)
}

fn parse(changes: &[(&str, &str)]) -> Result<Config, ArgsError> {
    command(&[], changes).map(|command| match command {
        Command::Run(config) => *config,
        other => panic!("{other:?}"),
    })
}

fn paths(config: &Config) -> Vec<&str> {
    config.barrier_paths.iter().map(String::as_str).collect()
}

fn exit_code(config: &Config) -> u8 {
    match &config.role {
        Role::Sidecar { restart_exit_code, .. } => *restart_exit_code,
        Role::Supervisor { .. } => panic!("{config:?}"),
    }
}

#[test]
fn config_from_required_variables_has_the_defaults_of_the_seeds() {
    let config = parse(&[]).unwrap();
    let names = Names { namespace: "ml".into(), pod: "train-workers-0-0-x7f2k".into(), jobset: "train".into() };
    assert_eq!((&config.names, config.jobset_uid.as_deref()), (&names, None));
    assert_eq!(
        (exit_code(&config), config.barrier_ports.clone(), paths(&config)),
        (81, vec![8080], vec!["/barrier-is-lifted"])
    );
    assert_eq!(config.role.mode(), Mode::Sidecar { saves: false });
}

#[test]
fn config_takes_optional_variables() {
    let config = parse(&[
        ("RESTART_POD_IN_PLACE_EXIT_CODE", "7"),
        ("BARRIER_PORT", "8081"),
        ("BARRIER_PATH", "/x"),
        ("JOBSET_UID", "0b4c"),
        ("EPOCH_FILE", "/run/epoch"),
    ])
    .unwrap();
    assert_eq!((exit_code(&config), config.barrier_ports.clone(), paths(&config)), (7, vec![8081], vec!["/x"]));
    assert_eq!(config.jobset_uid.as_deref(), Some("0b4c"));
    assert!(matches!(config.role, Role::Sidecar { epoch_file: Some(path), .. } if path == *"/run/epoch"));
}

#[test]
fn namespace_missing_comes_from_token_with_both_agents_defaults() {
    let config = parse(&[("NAMESPACE", "")]).unwrap();
    assert_eq!((config.names.namespace.as_str(), exit_code(&config)), ("of-the-token", 1));
    assert_eq!(
        (config.barrier_ports.clone(), paths(&config)),
        (vec![8081, 8080], vec!["/barrier-is-down", "/barrier-is-lifted"])
    );
}

#[test]
fn variables_of_the_go_agent_are_accepted_after_own_ones() {
    let go = [("STARTUP_PROBE_PORT", "9000"), ("STARTUP_PROBE_PATH", "/x"), ("IN_PLACE_RESTART_EXIT_CODE", "9")];
    let config = parse(&go).unwrap();
    assert_eq!((config.barrier_ports.clone(), paths(&config), exit_code(&config)), (vec![9000], vec!["/x"], 9));
    let both = [go.as_slice(), &[("BARRIER_PORT", "9001"), ("RESTART_POD_IN_PLACE_EXIT_CODE", "10")]].concat();
    let config = parse(&both).unwrap();
    assert_eq!((config.barrier_ports.clone(), exit_code(&config)), (vec![9001], 10));
}

#[rstest]
#[case::go_agent_command_line(&[], &[("WORKER_COMMAND", "exec train --forever")], &["/bin/sh", "-c", "exec train --forever"])]
#[case::go_agent_shell_set(&[], &[("WORKER_COMMAND", "train"), ("SHELL", "/bin/zsh"), ("PATH", "/opt/bin")], &["/bin/zsh", "-c", "train"])]
#[case::go_agent_bash_in_path(&[], &[("WORKER_COMMAND", "train"), ("PATH", "/bin:/opt/bin")], &["/opt/bin/bash", "-c", "train"])]
#[case::go_agent_bash_missing(&[], &[("WORKER_COMMAND", "train"), ("PATH", "/bin")], &["/bin/sh", "-c", "train"])]
#[case::arguments(&["supervise", "--", "train", "--", "-x"], &[], &["train", "--", "-x"])]
#[case::arguments_without_dashes(&["supervise", "train", "-x"], &[], &["train", "-x"])]
#[case::arguments_before_go_agent_command_line(&["supervise", "train"], &[("WORKER_COMMAND", "other")], &["train"])]
fn supervisor_command_is_read(#[case] args: &[&str], #[case] env: &[(&str, &str)], #[case] expected: &[&str]) {
    let Ok(Command::Run(config)) = command(args, env) else { panic!("rejected") };
    let Config { role: Role::Supervisor { command, fatal, grace }, barrier_ports, .. } = *config else {
        panic!("no supervisor");
    };
    assert_eq!(command, expected);
    assert_eq!((fatal, grace, barrier_ports), (BTreeSet::new(), Duration::from_secs(2), vec![]));
}

#[test]
fn supervisor_variables_are_read() {
    let env = [("FATAL_EXIT_CODES", "3, 64-66,2"), ("STOP_GRACE_SECONDS", "0.5"), ("BARRIER_PORT", "9000")];
    let Ok(Command::Run(config)) = command(&["supervise", "train"], &env) else { panic!("rejected") };
    assert_eq!(config.role.mode(), Mode::Supervisor { fatal: BTreeSet::from([2, 3, 64, 65, 66]) });
    assert!(matches!(config.role, Role::Supervisor { grace, .. } if grace == Duration::from_millis(500)));
    assert_eq!(config.barrier_ports, [9000]);
}

#[rstest]
#[case(&[("PRE_RESTART_URL", "http://localhost:9000/save")], SaveHookKind::Http("http://localhost:9000/save".parse().unwrap()), 10)]
#[case(&[("PRE_RESTART_FILE", "/s/save"), ("PRE_RESTART_SECONDS", "30")], SaveHookKind::File("/s/save".into()), 30)]
fn sidecar_save_hook_is_read(#[case] env: &[(&str, &str)], #[case] kind: SaveHookKind, #[case] seconds: u64) {
    let config = parse(env).unwrap();
    assert_eq!(config.role.mode(), Mode::Sidecar { saves: true });
    let expected = SaveHook { kind, limit: Duration::from_secs(seconds) };
    assert!(matches!(config.role, Role::Sidecar { save: Some(save), .. } if save == expected));
}

#[test]
fn save_hook_set_twice_is_rejected() {
    let text = parse(&[("PRE_RESTART_URL", "http://localhost/"), ("PRE_RESTART_FILE", "/s")]).unwrap_err().to_string();
    assert!(text.contains("PRE_RESTART_URL and PRE_RESTART_FILE are both set"), "{text}");
}

#[rstest]
#[case("POD_NAME")]
#[case("JOBSET_NAME")]
fn required_variable_empty_is_named(#[case] variable: &'static str) {
    let text = parse(&[(variable, "")]).unwrap_err().to_string();
    assert!(text.starts_with(&format!("environment variable {variable} is not set; set it")), "{text}");
    assert_eq!(text.lines().count(), 1);
}

#[test]
fn namespace_missing_without_token_is_named() {
    let env = |variable: &str| (variable != "NAMESPACE").then(|| OsString::from("a"));
    let error = Command::parse([], env, || None, |_| false).unwrap_err();
    assert!(matches!(error, ArgsError::Missing { variable: "NAMESPACE", .. }), "{error}");
}

#[rstest]
#[case("RESTART_POD_IN_PLACE_EXIT_CODE", "1", true)]
#[case("RESTART_POD_IN_PLACE_EXIT_CODE", "255", true)]
#[case("RESTART_POD_IN_PLACE_EXIT_CODE", "", true)]
#[case("RESTART_POD_IN_PLACE_EXIT_CODE", "0", false)]
#[case("RESTART_POD_IN_PLACE_EXIT_CODE", "256", false)]
#[case("RESTART_POD_IN_PLACE_EXIT_CODE", "-1", false)]
#[case("RESTART_POD_IN_PLACE_EXIT_CODE", "X", false)]
#[case("RESTART_POD_IN_PLACE_EXIT_CODE", "81 ", false)]
#[case("IN_PLACE_RESTART_EXIT_CODE", "0", false)]
#[case("BARRIER_PORT", "0", false)]
#[case("BARRIER_PORT", "65536", false)]
#[case("STARTUP_PROBE_PORT", "x", false)]
#[case("BARRIER_PATH", "barrier", false)]
#[case("BARRIER_PATH", "/a b", false)]
#[case("BARRIER_PATH", "/a?b", false)]
#[case("BARRIER_PATH", "/healthz", false)]
#[case("PRE_RESTART_URL", "http://[::1]:9000", true)]
#[case("PRE_RESTART_URL", "http://example.com/", false)]
#[case("PRE_RESTART_URL", "https://localhost/", false)]
#[case("PRE_RESTART_URL", "localhost:9000", false)]
#[case("JOBSET_AGENT_LOG", "debug", true)]
#[case("JOBSET_AGENT_LOG", "jobset_agent=loud", false)]
#[case("NAMESPACE", "ml/../kube-system", false)]
#[case("JOBSET_NAME", "a,metadata.name=b", false)]
#[case("POD_NAME", "Pod", false)]
#[case("POD_NAME", "..", false)]
fn value_invalid_is_rejected_with_variable_and_value(
    #[case] variable: &'static str,
    #[case] value: &str,
    #[case] accepted: bool,
) {
    assert_read(parse(&[(variable, value)]).map(drop), variable, value, accepted);
}

#[rstest]
#[case("FATAL_EXIT_CODES", "1", true)]
#[case("FATAL_EXIT_CODES", "0", false)]
#[case("FATAL_EXIT_CODES", "256", false)]
#[case("FATAL_EXIT_CODES", "1,,2", false)]
#[case("FATAL_EXIT_CODES", "9-2", false)]
#[case("FATAL_EXIT_CODES", "-1", false)]
#[case("STOP_GRACE_SECONDS", "0", true)]
#[case("STOP_GRACE_SECONDS", "-1", false)]
#[case("STOP_GRACE_SECONDS", "NaN", false)]
#[case("STOP_GRACE_SECONDS", "inf", false)]
#[case("STOP_GRACE_SECONDS", "86401", false)]
#[case("STOP_GRACE_SECONDS", "5s", false)]
fn supervisor_value_invalid_is_rejected_with_variable_and_value(
    #[case] variable: &'static str,
    #[case] value: &str,
    #[case] accepted: bool,
) {
    assert_read(command(&["supervise", "train"], &[(variable, value)]).map(drop), variable, value, accepted);
}

fn assert_read(read: Result<(), ArgsError>, variable: &str, value: &str, accepted: bool) {
    match read {
        Ok(()) => assert!(accepted, "{variable}={value:?} was accepted"),
        Err(error) => {
            assert!(!accepted, "{error}");
            let text = error.to_string();
            assert!(text.contains(variable) && text.contains(&format!("{value:?}; it must be ")), "{text}");
            assert_eq!(text.lines().count(), 1);
        }
    }
}

#[test]
fn error_for_value_with_line_break_is_one_line() {
    let text = parse(&[("RESTART_POD_IN_PLACE_EXIT_CODE", "8\n1")]).unwrap_err().to_string();
    assert_eq!(text.lines().count(), 1, "{text}");
}

#[test]
fn command_without_environment_reads_none() {
    let parse = |args: &[&str]| Command::parse(args.iter().map(OsString::from), |_| None, || None, |_| false);
    assert_eq!(parse(&["--help"]), Ok(Command::Help));
    assert_eq!(parse(&["--version"]), Ok(Command::Version));
    assert_eq!(parse(&["install", "/shared"]), Ok(Command::Install("/shared".into())));
    assert_eq!(parse(&["install"]), Err(ArgsError::Folder));
    assert_eq!(parse(&["install", "/a", "/b"]), Err(ArgsError::Folder));
    assert_eq!(parse(&["supervise"]), Err(ArgsError::NoCommand));
    assert_eq!(parse(&["supervise", "--"]), Err(ArgsError::NoCommand));
    assert_eq!(parse(&["--verbose"]), Err(ArgsError::Argument("--verbose".to_owned())));
    assert!(matches!(parse(&[]), Err(ArgsError::Missing { variable: "NAMESPACE", .. })));
}

#[rstest]
#[case::service(
    "jobset-relay.jobset-system.svc:9443",
    "jobset-relay.jobset-system.svc:9443",
    "jobset-relay.jobset-system.svc"
)]
#[case::full_name(
    "jobset-relay.ns.svc.cluster.local.:9443",
    "jobset-relay.ns.svc.cluster.local.:9443",
    "jobset-relay.ns.svc.cluster.local"
)]
#[case::full_name_with_another_in_the_certificate(
    "jobset-relay.ns.svc=jobset-relay.ns.svc.cluster.local.:9443",
    "jobset-relay.ns.svc.cluster.local.:9443",
    "jobset-relay.ns.svc"
)]
#[case::other_host("jobset-relay.ns.svc=127.0.0.1:9443", "127.0.0.1:9443", "jobset-relay.ns.svc")]
fn relay_address_is_read(#[case] value: &str, #[case] address: &str, #[case] name: &str) {
    let relay = parse(&[("JOBSET_RELAY", value)]).unwrap().relay.unwrap();
    assert_eq!((relay.address.as_str(), relay.name.to_str().as_ref()), (address, name));
    let leader = name.replace("jobset-relay", "jobset-controller").replace(".cluster.local", "");
    assert_eq!(relay.leader, leader);
    assert_eq!(relay.folder, Path::new("/var/run/secrets/jobset-relay"));
    let elsewhere = parse(&[("JOBSET_RELAY", value), ("JOBSET_RELAY_FOLDER", "/x")]).unwrap().relay.unwrap();
    assert_eq!(elsewhere.folder, Path::new("/x"));
}

#[rstest]
#[case::no_port("jobset-relay.ns.svc")]
#[case::port_zero("jobset-relay.ns.svc:0")]
#[case::no_host(":9443")]
#[case::no_domain("relay:9443")]
#[case::address_without_name("127.0.0.1:9443")]
#[case::url("https://jobset-relay.ns.svc:9443")]
fn relay_address_invalid_is_rejected(#[case] value: &str) {
    let error = parse(&[("JOBSET_RELAY", value)]).unwrap_err();
    assert!(matches!(error, ArgsError::Invalid { variable: "JOBSET_RELAY", .. }), "{error}");
}

/// The Pods of a JobSet that admission has taken, with the agent injected, start.
#[test]
fn every_duration_that_admission_takes_is_read() {
    let units = [("s", 2_592_001), ("m", 43_201), ("h", 721), ("d", 31), ("ms", 2_592_000_001_u64)];
    let edges = units.into_iter().flat_map(|(unit, above)| {
        let numbers = [0, 1, 4, 5, 6, 4_999, 5_000, 5_001, above - 2, above - 1, above, above * 1000];
        numbers.map(|number| format!("{number}{unit}"))
    });
    let others = ["auto", "PT20M", "1h30m", "90.5s", "719h59m59.9999s", "720h0.1s", "P30D", "1e3s", "1000h", "-1h"];
    let mut taken = 0;
    for value in edges.chain(others.map(str::to_owned)) {
        let Some(variables) = injected(&value) else { continue };
        taken += 1;
        let variables: Vec<_> = variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let progress = parse(&variables).unwrap_or_else(|error| panic!("{value}: {error}")).progress;
        assert_ne!(progress.limits.after, StallAfter::Never, "{value}");
        assert_eq!(progress.file, Some(PathBuf::from("/var/run/jobset-progress/step")));
    }
    assert!(taken >= 20, "{taken}");
}

/// The variables of an agent in a Pod of a JobSet whose workers may make no progress for this long. `None` if admission rejects it.
fn injected(value: &str) -> Option<Vec<(String, String)>> {
    let mut annotations = serde_json::json!({(labels::STALL_AFTER): value});
    if value != "auto" {
        annotations[labels::STALL_FIRST] = value.into();
    }
    let container = serde_json::json!({"name": "worker", "image": "worker:1"});
    let pod = serde_json::json!({"spec": {"containers": [container]}});
    let mut jobset: JobSet = serde_json::from_value(serde_json::json!({
        "metadata": {"name": "train", "namespace": "ml", "annotations": annotations},
        "spec": {"failurePolicy": {"restartStrategy": "InPlaceRestart"},
            "replicatedJobs": [{"name": "workers", "template": {"spec": {"template": pod}}}]},
    }))
    .unwrap();
    jobset.stall_after()?;
    let settings = Settings { agent_image: Some("agent:1".to_owned()), ..Settings::default() }.of(&jobset);
    assert_eq!(inject(&mut jobset.spec, "Sidecar", &settings).iter().len(), 0);
    let pod = jobset.spec.replicated_jobs[0].template.spec.template.spec.clone().unwrap();
    let variables = pod.init_containers.unwrap().remove(0).env.unwrap().into_iter();
    Some(variables.filter_map(|variable| Some((variable.name, variable.value?))).collect())
}

#[test]
fn pattern_of_worker_does_not_keep_agent_from_starting() {
    let Ok(Command::Run(config)) = command(&["supervise", "train"], &[("PROGRESS_PATTERN", "(")]) else {
        panic!("rejected");
    };
    assert_eq!(config.progress.pattern, None);
    let Ok(Command::Run(config)) = command(&["supervise", "train"], &[("JOBSET_PROGRESS_PATTERN", "(")]) else {
        panic!("a malformed pattern keeps the worker from running");
    };
    assert_eq!(config.progress.pattern, None);
    assert_eq!(config.progress.malformed_pattern.as_deref(), Some("("));
}
