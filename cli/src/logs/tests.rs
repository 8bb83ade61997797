//! Logs whose connections break, of Pods whose nodes do not answer, and of JobSets that go.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use clap::Parser as _;
use futures::stream::{self, StreamExt as _};
use serde_json::{Value, json};
use tokio::sync::{Notify, mpsc};

use super::followed::{FollowedLog, LogOutput};
use super::show;
use super::source::{LogChoice, sources};
use crate::args::{Cli, ColorMode, Command, LogsArgs};
use crate::cluster::Cluster;
use crate::exit::Exit;
use crate::output::{ProgressLine, Screen};

const LIMIT: Duration = Duration::from_mins(10);

/// What an API server answers: in turn, the last for ever.
#[derive(Clone)]
struct Answers(Arc<Mutex<VecDeque<Answer>>>);

#[derive(Clone)]
enum Answer {
    Object(Value),
    Error(u16),
    /// Lines of a log.
    Log(&'static str),
    /// Lines of a log, after which the connection breaks.
    Broken(&'static str),
    /// None at all.
    Silence,
}

impl Answers {
    fn of(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self(Arc::new(Mutex::new(answers.into_iter().collect())))
    }

    async fn next(&self) -> Response {
        let answer = {
            let mut answers = self.0.lock().unwrap();
            if answers.len() > 1 { answers.pop_front() } else { answers.front().cloned() }
        };
        match answer.unwrap_or(Answer::Error(404)) {
            Answer::Object(object) => axum::Json(object).into_response(),
            Answer::Error(code) => {
                let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                    "message": "no", "reason": "No", "code": code, "details": {"name": "train"}});
                (StatusCode::from_u16(code).unwrap(), axum::Json(status)).into_response()
            }
            Answer::Log(lines) => lines.into_response(),
            Answer::Broken(lines) => {
                // Between the two, the lines are sent.
                let breaks = stream::once(async {
                    tokio::task::yield_now().await;
                    Err(io::Error::from(io::ErrorKind::ConnectionReset))
                });
                Body::from_stream(stream::once(async move { Ok(lines) }).chain(breaks)).into_response()
            }
            Answer::Silence => std::future::pending().await,
        }
    }
}

/// A cluster whose API server gives these answers, by the end of the path.
async fn cluster(answers: Vec<(&'static str, Answers)>) -> Cluster {
    let answers = Arc::new(answers);
    let server = Router::new().fallback(async move |request: Request| {
        let found = answers.iter().find(|(end, _)| request.uri().path().ends_with(end));
        match found {
            Some((_, answers)) => answers.next().await,
            None => StatusCode::FORBIDDEN.into_response(),
        }
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let cluster = Cluster::at(listener.local_addr().unwrap(), "ml");
    tokio::spawn(async move { axum::serve(listener, server).await });
    cluster
}

fn args(line: &str) -> LogsArgs {
    let cli = Cli::try_parse_from(["kubectl-jobset", "logs", "train"].into_iter().chain(line.split_whitespace()));
    let Command::Logs(args) = cli.unwrap().command else { panic!("another command") };
    args
}

fn jobset() -> Value {
    json!({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", "metadata": {"name": "train", "uid": "u"},
        "spec": {"replicatedJobs": []}, "status": {}})
}

fn pod(name: &str, phase: &str, state: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"nodeName": "n", "containers": [{"name": "worker"}]},
        "status": {"phase": phase, "containerStatuses": [{"name": "worker", "containerID": "a", "state": state}]}})
}

fn running(name: &str) -> Value {
    pod(name, "Running", &json!({"running": {}}))
}

fn ended(name: &str) -> Value {
    pod(name, "Succeeded", &json!({"terminated": {"exitCode": 0}}))
}

fn list(pods: &[Value]) -> Answers {
    Answers::of([Answer::Object(json!({"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": pods}))])
}

async fn shown(cluster: &Cluster, line: &str) -> Result<Exit, crate::error::Error> {
    let (screen, mut progress) = (Screen::new(ColorMode::Never), ProgressLine::new(ColorMode::Never));
    show(cluster, &args(line), &screen, &mut progress).await
}

#[tokio::test]
async fn log_that_breaks_off_is_no_success() {
    let of = async |log| {
        let one = Answers::of([Answer::Object(jobset())]);
        let cluster =
            cluster(vec![("/train", one), ("/pods", list(&[ended("p")])), ("/p/log", Answers::of([log]))]).await;
        shown(&cluster, "").await.unwrap()
    };
    assert_eq!(of(Answer::Log("a\nb\n")).await, Exit::Ok);
    assert_eq!(of(Answer::Broken("a\n")).await, Exit::Cluster);
    assert_eq!(of(Answer::Error(500)).await, Exit::Cluster, "the node does not answer");
    assert_eq!(of(Answer::Error(400)).await, Exit::No, "the container has not started");
    assert_eq!(of(Answer::Log("")).await, Exit::No, "nothing is shown");
}

#[tokio::test(start_paused = true)]
async fn followed_log_goes_on_after_its_connection_broke() {
    let (a, b, c) = ("2026-01-01T00:00:01.1Z a\n", "2026-01-01T00:00:01.2Z b\n", "2026-01-01T00:00:03Z c\n");
    let text = |lines: &[&str]| -> &'static str { lines.concat().leak() };
    // The API server ends an answer as it should although the kubelet has not ended it.
    let logs =
        [Answer::Broken(text(&[a])), Answer::Log(text(&[a, b])), Answer::Log(text(&[b, c])), Answer::Log(text(&[c]))];
    let pods = [running("p"), running("p"), ended("p")].map(Answer::Object);
    let cluster = cluster(vec![("/p/log", Answers::of(logs)), ("/pods/p", Answers::of(pods))]).await;

    let started = serde_json::from_value(running("p")).unwrap();
    let jobset = serde_json::from_value(jobset()).unwrap();
    let source = sources(&jobset, &[&started], &LogChoice::default()).unwrap().sources.remove(0);
    let (sender, mut output) = mpsc::channel(16);
    tokio::time::timeout(LIMIT, FollowedLog::new(&cluster, "train", source, None, sender).run()).await.unwrap();
    let mut lines = String::new();
    while let Some(shown) = output.recv().await {
        if let LogOutput::Line(line) = shown {
            lines += std::str::from_utf8(&line).unwrap();
        }
    }
    assert_eq!(lines, "[p] a\n[p] b\n[p] c\n");
}

#[tokio::test(start_paused = true)]
async fn follow_ends_well_when_jobset_is_deleted() {
    let jobsets = [Answer::Object(jobset()), Answer::Error(503), Answer::Object(jobset()), Answer::Error(404)];
    let pods = Answers::of([Answer::Object(ended("p"))]);
    let log = Answers::of([Answer::Log("2026-01-01T00:00:01Z a\n")]);
    let answers =
        vec![("/train", Answers::of(jobsets)), ("/pods", list(&[ended("p")])), ("/pods/p", pods), ("/p/log", log)];
    let cluster = cluster(answers).await;
    let exit = tokio::time::timeout(LIMIT, shown(&cluster, "-f")).await.expect("an end");
    assert_eq!(exit.unwrap(), Exit::Ok);
}

#[tokio::test(start_paused = true)]
async fn followed_pod_on_silent_node_holds_up_no_other() {
    let asked = Arc::new(Notify::new());
    let (of_other, pods) = (Arc::clone(&asked), list(&[running("a"), running("b")]));
    let one = Answers::of([Answer::Object(jobset())]);
    let silent = Answers::of([Answer::Silence]);
    let server = Router::new().fallback(async move |request: Request| {
        let path = request.uri().path().to_owned();
        match path.rsplit_once('/').unwrap_or_default() {
            (_, "train") => one.next().await,
            (_, "pods") => pods.next().await,
            (pod, "log") if pod.ends_with("/b") => {
                of_other.notify_one();
                silent.next().await
            }
            _ => silent.next().await,
        }
    });
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let cluster = Cluster::at(listener.local_addr().unwrap(), "ml");
    tokio::spawn(async move { axum::serve(listener, server).await });
    tokio::select! {
        _ = shown(&cluster, "-f") => panic!("the command has ended"),
        asked = tokio::time::timeout(LIMIT, asked.notified()) => asked.expect("the log of the other Pod is asked for"),
    }
}
