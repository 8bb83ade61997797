//! The server on real sockets, with boards that are told what happens.

use std::os::unix::process::CommandExt as _;
use std::sync::Arc;
use std::time::Duration;

use jobset_objects::PartialPod;
use kube::runtime::watcher::Event;
use rstest::rstest;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{CONNECTIONS, Listening, Session, serve};
use crate::mirror::WatchEvent;
use crate::ui::live::Live;

/// Shorter than the time after which the server closes a silent connection by itself.
const LIMIT: Duration = Duration::from_secs(20);

/// A running server with the JobSet `ml/train` of one Pod.
struct Running {
    port: u16,
    /// The path with the token.
    token: String,
    live: Arc<Live>,
}

impl Running {
    async fn start() -> Self {
        let listening = Listening::on(0).await.unwrap();
        let port = listening.port;
        let session = Session::new(port).unwrap();
        let address = session.address("/");
        let token = address.strip_prefix(&format!("http://127.0.0.1:{port}")).unwrap().to_owned();
        let live = Arc::new(Live::new(Some("ml".to_owned())));
        tokio::spawn(serve(listening, session, Arc::clone(&live)));
        let running = Self { port, token, live };
        running.live.take(WatchEvent::JobSet(Event::Apply(serde_json::from_value(jobset()).unwrap())));
        running.pod(1);
        running
    }

    fn pod(&self, epoch: i32) {
        self.live.take(WatchEvent::Pod(Event::Apply(pod(epoch))));
        self.live.show();
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port)).await.unwrap()
    }

    /// Sends a request with these lines after the first one, and returns the answer: its head and its body.
    async fn ask(&self, method: &str, path: &str, lines: &[String]) -> (String, String) {
        let mut stream = self.connect().await;
        let request = format!("{method} {path} HTTP/1.1\r\n{}\r\nConnection: close\r\n\r\n", lines.join("\r\n"));
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        timeout(LIMIT, stream.read_to_string(&mut answer)).await.unwrap().unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_ascii_lowercase(), body.to_owned())
    }

    fn host(&self) -> String {
        format!("Host: 127.0.0.1:{}", self.port)
    }

    /// Spends the token. Returns the lines that a browser sends afterwards.
    async fn enter(&self) -> Vec<String> {
        let (head, body) = self.ask("GET", &self.token, &[self.host()]).await;
        assert!(head.starts_with("http/1.1 200 ") && body.starts_with("<!doctype html>"), "{head}");
        let cookie = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap();
        vec![self.host(), format!("Cookie: {}", cookie.split(';').next().unwrap())]
    }
}

fn jobset() -> Value {
    json!({
        "metadata": {"name": "train", "namespace": "ml", "uid": "u1"},
        "spec": {"failurePolicy": {"restartStrategy": "InPlaceRestart"}, "replicatedJobs": [
            {"name": "workers", "replicas": 1, "template": {"spec": {"parallelism": 1, "completions": 1}}}]},
    })
}

fn pod(epoch: i32) -> PartialPod {
    let pod = json!({
        "metadata": {"name": "train-workers-0-0", "namespace": "ml", "labels": {"jobset.sigs.k8s.io/jobset-name": "train"},
                     "annotations": {"jobset.sigs.k8s.io/epoch": epoch.to_string()}},
        "spec": {"nodeName": "node-1"}, "status": {"phase": "Running"},
    });
    serde_json::from_value(pod).unwrap()
}

fn status(head: &str) -> &str {
    head.split(' ').nth(1).unwrap()
}

#[tokio::test]
async fn token_is_exchanged_once_for_a_cookie() {
    let running = Running::start().await;
    let (head, body) = running.ask("GET", "/", &[running.host()]).await;
    assert!(status(&head) == "401" && body.contains("kubectl jobset ui"), "{head}\n{body}");
    let browser = running.enter().await;
    let (head, _) = running.ask("GET", &running.token, &[running.host()]).await;
    assert_eq!(status(&head), "401", "the token is spent");
    for path in ["/", "/jobset/ml/train", "/assets/app.js", "/assets/page.css", "/assets/icon.svg"] {
        assert_eq!(status(&running.ask("GET", path, &browser).await.0), "200", "{path}");
        assert_eq!(status(&running.ask("GET", path, &[running.host()]).await.0), "401", "{path}");
    }
    assert_eq!(status(&running.ask("GET", "/assets/none.js", &browser).await.0), "404");
    assert_eq!(status(&running.ask("GET", "/nowhere", &browser).await.0), "404");
}

#[tokio::test]
async fn answer_has_headers_that_keep_the_page_to_itself() {
    let running = Running::start().await;
    let browser = running.enter().await;
    for (lines, path) in [(&browser, "/"), (&browser, "/pod/ml/train/train-workers-0-0"), (&vec![running.host()], "/")]
    {
        let (head, _) = running.ask("GET", path, lines).await;
        for line in [
            "cache-control: no-store",
            "content-security-policy: default-src 'self';",
            "x-content-type-options: nosniff",
            "referrer-policy: no-referrer",
            "cross-origin-resource-policy: same-origin",
        ] {
            assert!(head.contains(line), "{path}: no {line} in\n{head}");
        }
        assert!(!head.contains("access-control-"), "{head}");
    }
}

#[rstest]
#[case::post("POST", "405")]
#[case::put("PUT", "405")]
#[case::delete("DELETE", "405")]
#[case::options("OPTIONS", "405")]
#[case::head("HEAD", "200")]
#[tokio::test]
async fn methods_are_get_and_head_alone(#[case] method: &str, #[case] expected: &str) {
    let running = Running::start().await;
    let browser = running.enter().await;
    let (head, body) = running.ask(method, "/", &browser).await;
    assert_eq!(status(&head), expected);
    assert_eq!((head.contains("allow: get, head"), body.is_empty()), (expected == "405", method == "HEAD"));
}

#[rstest]
#[case::rebound("Host: evil.example:PORT", "421")]
#[case::other_port("Host: 127.0.0.1:1", "421")]
#[case::localhost("Host: localhost:PORT", "200")]
#[tokio::test]
async fn host_of_another_server_is_denied(#[case] host: &str, #[case] expected: &str) {
    let running = Running::start().await;
    let mut browser = running.enter().await;
    browser[0] = host.replace("PORT", &running.port.to_string());
    assert_eq!(status(&running.ask("GET", "/", &browser).await.0), expected);
    browser.push(running.host());
    assert_ne!(status(&running.ask("GET", "/", &browser).await.0), "200", "two hosts");
}

async fn event(lines: &mut (impl AsyncBufReadExt + Unpin)) -> Value {
    let event = async {
        loop {
            let mut line = String::new();
            lines.read_line(&mut line).await.unwrap();
            if let Some(data) = line.strip_prefix("data: ") {
                return serde_json::from_str(data).unwrap();
            }
        }
    };
    timeout(LIMIT, event).await.expect("an event comes")
}

#[tokio::test]
async fn events_begin_with_everything_and_go_on_with_changes() {
    let running = Running::start().await;
    let browser = running.enter().await;
    for _ in 0..2 {
        // As after a lost connection.
        running.pod(1);
        let stream = running.connect().await;
        let mut stream = BufReader::new(stream);
        let request = format!("GET /events/ml/train HTTP/1.1\r\n{}\r\n\r\n", browser.join("\r\n"));
        stream.write_all(request.as_bytes()).await.unwrap();
        let first = event(&mut stream).await;
        assert_eq!((&first["exists"], first["head"]["name"].as_str()), (&json!(true), Some("train")), "{first}");
        running.live.set_absence(Some("No controller leads.".to_owned()));
        assert_eq!(event(&mut stream).await["problems"], json!(["No controller leads."]));
        running.live.set_absence(None);
        assert_eq!(event(&mut stream).await["problems"], json!([]));
    }
}

#[tokio::test]
async fn pod_has_details() {
    let running = Running::start().await;
    let browser = running.enter().await;
    let (head, body) = running.ask("GET", "/pod/ml/train/train-workers-0-0", &browser).await;
    assert!(head.contains("content-type: application/json"), "{head}");
    let json = body.lines().find(|line| line.starts_with('{')).unwrap();
    let pod: Value = serde_json::from_str(json).unwrap();
    assert_eq!((&pod["node"], &pod["epoch"], &pod["barrier"]), (&json!("node-1"), &json!("1"), &json!("Waiting")));
    for path in ["/pod/ml/train/other", "/pod/ml/other/train-workers-0-0"] {
        assert_eq!(status(&running.ask("GET", path, &browser).await.0), "404");
    }
}

#[tokio::test]
async fn connection_of_another_user_is_denied() {
    // Only root can be another user.
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let running = Running::start().await;
    let request = format!("GET {} HTTP/1.1\\r\\n{}\\r\\nConnection: close\\r\\n\\r\\n", running.token, running.host());
    let script = format!("exec 3<>/dev/tcp/127.0.0.1/{}; printf '{request}' >&3; cat <&3", running.port);
    let mut stranger = std::process::Command::new("bash");
    stranger.args(["-c", &script]).current_dir("/").uid(65534);
    let output = tokio::task::spawn_blocking(move || stranger.output()).await.unwrap().unwrap();
    let answer = String::from_utf8(output.stdout).unwrap();
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("another user of this machine"), "{answer}");
    // The token is not spent.
    running.enter().await;
}

#[tokio::test]
async fn connections_above_the_limit_are_closed() {
    let running = Running::start().await;
    let mut held = Vec::new();
    for _ in 0..CONNECTIONS {
        held.push(running.connect().await);
    }
    // The server accepts in order, so this one is above the limit.
    let mut last = running.connect().await;
    assert_eq!(timeout(LIMIT, last.read(&mut [0; 1])).await.unwrap().unwrap_or(0), 0);
    held.clear();
    let until = tokio::time::Instant::now() + LIMIT;
    loop {
        let mut stream = running.connect().await;
        let request = format!("GET / HTTP/1.1\r\n{}\r\nConnection: close\r\n\r\n", running.host());
        let mut answer = Vec::new();
        let asked = async {
            stream.write_all(request.as_bytes()).await?;
            stream.read_to_end(&mut answer).await
        };
        if asked.await.is_ok() && answer.starts_with(b"HTTP/1.1 401") {
            break;
        }
        assert!(tokio::time::Instant::now() < until, "no place after the others have gone");
    }
}
