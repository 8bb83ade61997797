use std::fs;

use rstest::rstest;

use super::Program::{Controller, Webhook};
use super::{Error, Program, Translated, translate};

fn translated(program: Program, arguments: &[&str]) -> Translated {
    let arguments = std::iter::once("program").chain(arguments.iter().copied()).map(ToOwned::to_owned);
    let mut translated = translate(program, arguments.collect()).unwrap();
    translated.arguments.remove(0);
    translated
}

/// Translates with this file as `--config`. The result omits the argument `--config`.
fn with_file(program: Program, text: &str, arguments: &[&str]) -> Result<Translated, Error> {
    let path = std::env::temp_dir().join(format!("jobset-configuration-{:?}", std::thread::current().id()));
    fs::write(&path, text).unwrap();
    let config = format!("--config={}", path.display());
    let arguments = ["program", &config].into_iter().chain(arguments.iter().copied()).map(ToOwned::to_owned);
    let result = translate(program, arguments.collect());
    fs::remove_file(&path).unwrap();
    result.map(|mut translated| {
        translated.arguments.drain(..2);
        translated
    })
}

#[rstest]
#[case::controller(
    Controller,
    &["--leader-elect", "--kube-api-qps=500.5", "--kube-api-burst=500", "--health-probe-bind-address", ":8081"],
    &["--leader-elect", "--kube-api-qps=500", "--kube-api-burst=500", "--health-listen=[::]:8081"],
    &[],
)]
#[case::one_dash(Controller, &["-zap-encoder=json", "-leader-elect=false"], &["--log-format=json", "--leader-elect=false"], &[])]
#[case::webhook(
    Webhook,
    &["--leader-elect", "--kube-api-qps", "500", "--kube-api-burst=500", "--health-probe-bind-address=:8081"],
    &["--health-listen=[::]:8081"],
    &[],
)]
#[case::flags_of_neither_program(
    Controller,
    &["--metrics-bind-address=:8443", "--zap-log-level", "2", "--zap-devel", "--namespace=ml"],
    &["--namespace=ml"],
    &["--metrics-bind-address", "--zap-log-level", "--zap-devel"],
)]
#[case::values_without_meaning(
    Controller,
    &["--health-probe-bind-address=0", "--kube-api-qps=-1", "--leader-elect=maybe"],
    &[],
    &["--health-probe-bind-address=0", "--kube-api-qps=-1", "--leader-elect=maybe"],
)]
#[case::last_one_counts(
    Controller,
    &["--leader-elect", "--leader-elect=f", "--health-probe-bind-address=localhost:8081", "--kube-api-burst", "7.5"],
    &["--leader-elect=false", "--health-listen=127.0.0.1:8081", "--kube-api-burst=7"],
    &[],
)]
#[case::own_flags_stay(Controller, &["--settle-names", "5m", "-h"], &["--settle-names", "5m", "-h"], &[])]
fn go_flags_are_translated(
    #[case] program: Program,
    #[case] given: &[&str],
    #[case] expected: &[&str],
    #[case] ignored: &[&str],
) {
    let found = translated(program, given);
    assert_eq!(
        (found.arguments, found.ignored),
        (
            expected.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ignored.iter().map(ToString::to_string).collect::<Vec<_>>(),
        )
    );
}

const FILE: &str = "
apiVersion: config.jobset.x-k8s.io/v1alpha1
kind: Configuration
leaderElection: {leaderElect: true, resourceName: mine, leaseDuration: 30s, resourceLock: leases}
clientConnection: {qps: 50, burst: 100}
featureGates: {InPlaceRestart: true, RestartJob: false}
health: {healthProbeBindAddress: ':8082', readinessEndpointName: ready}
metrics: {bindAddress: ':8443'}
webhook: {port: 9444}
internalCertManagement: {enable: true, webhookServiceName: a, webhookSecretName: b}
tls: {minVersion: VersionTLS13, cipherSuites: [TLS_AES_128_GCM_SHA256]}
";

#[rstest]
#[case::controller(Controller, &[
    "--leader-elect=true", "--leader-elect-resource-name=mine", "--leader-elect-lease-duration=30s", "--kube-api-qps=50",
    "--kube-api-burst=100", "--health-listen=[::]:8082", "--feature-gates=InPlaceRestart=true,RestartJob=false",
])]
#[case::webhook(Webhook, &[
    "--health-listen=[::]:8082", "--feature-gates=InPlaceRestart=true,RestartJob=false", "--listen=[::]:9444",
    "--service-name=a", "--tls-min-version=VersionTLS13",
])]
fn file_fields_become_flags_of_their_program(#[case] program: Program, #[case] expected: &[&str]) {
    let found = with_file(program, FILE, &[]).unwrap();
    assert_eq!(found.arguments, expected);
    let ignored = [
        "health.readinessEndpointName",
        "internalCertManagement.webhookSecretName",
        "leaderElection.resourceLock",
        "metrics.bindAddress",
        "tls.cipherSuites",
    ];
    assert_eq!(found.ignored, ignored);
}

#[test]
fn file_values_without_meaning_are_ignored_and_listed() {
    let file = "{health: {healthProbeBindAddress: '0'}, clientConnection: {qps: -1}}";
    let found = with_file(Controller, file, &[]).unwrap();
    assert_eq!(found.arguments, [""; 0]);
    assert_eq!(found.ignored, ["clientConnection.qps", "health.healthProbeBindAddress"]);
}

#[test]
fn flag_overrides_file() {
    let found = with_file(Controller, "clientConnection: {qps: 50, burst: 100}", &["--kube-api-qps=7"]).unwrap();
    assert_eq!(found.arguments, ["--kube-api-qps=7", "--kube-api-burst=100"]);
}

#[rstest]
#[case::of_others("internalCertManagement: {enable: false}", &["--cert-source=mounted", "--cert-dir=/tmp/k8s-webhook-server/serving-certs"])]
#[case::in_a_folder(
    "{internalCertManagement: {enable: false}, webhook: {certDir: /certs}}",
    &["--cert-source=mounted", "--cert-dir=/certs"],
)]
#[case::gate_off("{featureGates: {TLSOptions: false}, tls: {minVersion: VersionTLS13}}", &["--feature-gates=TLSOptions=false"])]
#[case::host_alone("webhook: {host: '::1'}", &["--listen=[::1]:9443"])]
#[case::host_name("webhook: {host: localhost, port: 9444}", &["--listen=127.0.0.1:9444"])]
#[case::too_old("tls: {minVersion: VersionTLS10}", &[])]
#[case::empty("", &[])]
fn file_section_webhook_becomes_listen_address(#[case] file: &str, #[case] expected: &[&str]) {
    assert_eq!(with_file(Webhook, file, &[]).unwrap().arguments, expected);
}

#[rstest]
#[case("clientConnection: {qps: many}", r#"clientConnection.qps: "many" is not a number"#)]
#[case("leaderElection: {leaderElect: 1}", "leaderElection.leaderElect: 1 is not true or false")]
#[case("featureGates: [a]", r#"featureGates: ["a"] is not a map of gates to true or false"#)]
#[case("a: [", "is not YAML")]
#[case("[a]", "is not a map of fields")]
#[case("webhook: {port: many}", "is not a section with a host, a port number and a certDir")]
#[case("internalCertManagement: {enable: 'no'}", r#"internalCertManagement.enable: "no" is not true or false"#)]
fn file_with_invalid_value_gives_error_with_field(#[case] file: &str, #[case] expected: &str) {
    let errors =
        [Controller, Webhook].map(|program| with_file(program, file, &[]).err().map(|error| error.to_string()));
    let error = errors.into_iter().flatten().next().unwrap_or_default();
    assert!(error.starts_with("the configuration file ") && error.contains(expected), "{error}");
}

#[test]
fn file_that_is_missing_gives_error_with_path() {
    let arguments = ["program", "--config", "/nowhere/file.yaml"].map(ToOwned::to_owned).to_vec();
    let error = translate(Controller, arguments).unwrap_err().to_string();
    assert_eq!(error, "cannot read the configuration file /nowhere/file.yaml");
}
