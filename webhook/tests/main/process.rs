//! The binary: its arguments, its exit codes, and its end.

use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use jobset_harness::admission::readyz;
use jobset_harness::wait;
use tempfile::NamedTempFile;

const LIMIT: Duration = Duration::from_mins(1);

fn webhook(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_jobset-webhook"));
    command.args(arguments).env_clear().env("HOME", "/nonexistent").stdin(Stdio::null()).stderr(Stdio::piped());
    command
}

fn output(arguments: &[&str]) -> Output {
    webhook(arguments).output().unwrap()
}

#[test]
fn a_missing_namespace_is_named_with_its_flag() {
    let output = output(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--namespace"));
}

#[test]
fn failed_start_is_one_line_and_exit_code_1() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = taken.local_addr().unwrap().to_string();
    let free =
        ["--namespace=ns", "--listen=127.0.0.1:0", "--health-listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0"];
    let cases: [(Vec<&str>, &str); 3] = [
        (vec!["--namespace=ns", "--listen", &taken], "(choose another with --listen): Address already in use"),
        (
            [&free[..], &["--extra-dns-name=https://a"]].concat(),
            "\"https://a\" is neither a DNS name nor an IP address",
        ),
        (free.to_vec(), "cannot find out how to reach the API server"),
    ];
    for (arguments, expected) in cases {
        let output = output(&arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{text}");
        assert!(text.contains(expected), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}

/// A port that was free a moment ago.
fn free_port() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// A process that ends with the test.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[tokio::test]
async fn without_an_api_server_it_waits_and_ends_on_sigterm() {
    let mut kubeconfig = NamedTempFile::new().unwrap();
    let server = free_port();
    let cluster = format!(
        "apiVersion: v1\nkind: Config\nclusters: [{{name: c, cluster: {{server: 'http://{server}'}}}}]\n\
         users: [{{name: u, user: {{}}}}]\ncontexts: [{{name: x, context: {{cluster: c, user: u}}}}]\ncurrent-context: x\n"
    );
    kubeconfig.write_all(cluster.as_bytes()).unwrap();
    let health = free_port();
    let mut command =
        webhook(&["--listen=127.0.0.1:0", "--metrics-listen=127.0.0.1:0", "--drain-delay=0s", "--log-format=json"]);
    command.env("KUBECONFIG", kubeconfig.path()).env("POD_NAMESPACE", "ns").stderr(Stdio::null());
    let mut process = Process(command.arg(format!("--health-listen={health}")).spawn().unwrap());
    let reason = wait::until(LIMIT, "a reason for not being ready", async || {
        let answer = readyz(health).await?;
        Ok(answer.contains("Secret ns/jobset-webhook-leaf cannot be used: it cannot be read").then_some(answer))
    });
    assert!(reason.await.unwrap().starts_with("HTTP/1.1 503"));
    let id = rustix::process::Pid::from_child(&process.0);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    let status = wait::until(LIMIT, "the process to end", || {
        let ended = process.0.try_wait();
        async move { Ok(ended?) }
    });
    assert_eq!(status.await.unwrap().code(), Some(0));
}
