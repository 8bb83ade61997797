//! The requests of works, over real connections.

use std::num::NonZeroU32;
use std::time::Duration;

use axum::Router;
use axum::extract::{Request as HttpRequest, State};
use axum::http::Method;
use axum::response::{IntoResponse as _, Response};
use jobset_api::{JobSetStatus, RestartBudget, RestartStrategy};
use jobset_engine::{Failure, Outcome, Part, RequestId};
use jobset_rules::build::{Attempt, DesiredJob, JobPlace};
use jobset_store::PriorityClasses;
use kube::Config;
use prometheus::Registry;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::*;
use crate::args::ClientArgs;
use crate::shell::client::Clients;
use crate::shell::lease::Leadership;

/// Longest time that a test waits for what has to happen.
const LIMIT: Duration = Duration::from_secs(30);

const CREATION: &str = "POST /apis/batch/v1/namespaces/ml/jobs";
const STATUS_WRITE: &str = "PUT /apis/jobset.x-k8s.io/v1alpha2/namespaces/ml/jobsets/train/status";

/// An API server that has no answer to creations until it is told to answer, and tells of each request when it arrives.
struct HangingServer {
    applier: Applier,
    arrived: mpsc::UnboundedReceiver<String>,
    answers: watch::Sender<bool>,
    _leadership: watch::Sender<Leadership>,
}

#[derive(Clone)]
struct Hanging {
    requests: mpsc::UnboundedSender<String>,
    answers: watch::Receiver<bool>,
}

/// Answers with the object of the request.
async fn answer(State(Hanging { requests, mut answers }): State<Hanging>, request: HttpRequest) -> Response {
    let (parts, body) = request.into_parts();
    requests.send(format!("{} {}", parts.method, parts.uri.path())).unwrap();
    if parts.method == Method::POST {
        answers.wait_for(|answers| *answers).await.unwrap();
    }
    body.into_response()
}

impl HangingServer {
    async fn start(requests_per_second: u32) -> Self {
        let (requests, arrived) = mpsc::unbounded_channel();
        let answers = watch::Sender::new(false);
        let routes = Router::new().fallback(answer).with_state(Hanging { requests, answers: answers.subscribe() });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        let leadership = watch::Sender::new(Leadership::Leading { until: None });
        let rate = NonZeroU32::new(requests_per_second).unwrap();
        let limits = ClientArgs { kube_api_qps: rate, kube_api_burst: rate };
        let clients = Clients::new(Config::new(url.parse().unwrap()), &Registry::new()).unwrap();
        let applier = Applier::new(clients.workers(&limits, &leadership.subscribe()).unwrap());
        Self { applier, arrived, answers, _leadership: leadership }
    }

    async fn arrived(&mut self) -> String {
        timeout(LIMIT, self.arrived.recv()).await.expect("no request arrives").unwrap()
    }

    async fn apply(&self, work: Work) -> Answers {
        timeout(LIMIT, self.applier.apply(work)).await.expect("the work does not end")
    }
}

fn creations(count: i32) -> Vec<Action> {
    let creation = |index: i32| {
        let place = JobPlace { group_index: 0, job_index: index };
        let classes = PriorityClasses::default();
        let job = DesiredJob::of(&jobset("ml"), place, Attempt::default(), RestartStrategy::Recreate, &classes);
        Action::CreateJob(Box::new(job))
    };
    (0..count).map(creation).collect()
}

fn jobset(namespace: &str) -> JobSet {
    serde_json::from_value(json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": "train", "namespace": namespace, "uid": "1"},
        "spec": {"replicatedJobs": [{"name": "w", "template": {}}]},
    }))
    .unwrap()
}

fn work(namespace: &str, actions: Vec<Action>, status: Option<JobSetStatus>) -> Work {
    let jobset = jobset(namespace);
    let (urgency, status_urgency) = (Urgency::Urgent, Urgency::Urgent);
    let key = Key::of(&jobset);
    Work { key, number: 1, jobset: Arc::new(jobset), actions, status, status_urgency, urgency, confirmed: None }
}

#[tokio::test]
async fn apply_status_is_written_while_creation_has_no_answer() {
    let mut server = HangingServer::start(1000).await;
    let answers = server.apply(work("ml", creations(1), Some(JobSetStatus::default()))).await;
    let mut requests = [server.arrived().await, server.arrived().await];
    requests.sort();
    assert_eq!(requests, [CREATION, STATUS_WRITE]);
    assert!(matches!(answers.outcome.status, Some(Ok(true))), "{:?}", answers.outcome.status);
}

#[tokio::test]
async fn apply_actions_on_jobset_are_answered_before_status_is_written() {
    let mut server = HangingServer::start(1000).await;
    let mut actions = creations(1);
    actions.push(Action::AnnotateRestartBudget(RestartBudget::Shared));
    server.apply(work("ml", actions, Some(JobSetStatus::default()))).await;
    assert_eq!(server.arrived().await, "PATCH /apis/jobset.x-k8s.io/v1alpha2/namespaces/ml/jobsets/train");
}

#[tokio::test]
async fn apply_slow_creations_leave_their_work_and_are_answered_late() {
    let mut server = HangingServer::start(1000).await;
    let actions = creations(i32::try_from(CONCURRENCY).unwrap() + 8);
    let requests: Vec<Part> = actions.iter().map(|action| Part::Action(Request::of(action))).collect();
    let (key, jobset) = (Key { namespace: "ml".to_owned(), name: "train".to_owned() }, Arc::new(JobSet::default()));
    let mut answers = server.apply(work("ml", actions, None)).await;
    // What comes after a slow request is not sent.
    assert_eq!(answers.outcome.unanswered, requests[..CONCURRENCY]);
    assert!(answers.outcome.failures.is_empty() && answers.outcome.accepted.is_empty());
    let mut late = LateAnswers::default();
    late.extend(&key, 7, &jobset, std::mem::take(&mut answers.slow));
    late.cut(&RequestId { work: 7, part: requests[3].clone() });
    let cut = timeout(LIMIT, late.next()).await.unwrap().unwrap();
    let failures = cut.answers.outcome.failures;
    assert_eq!(cut.id.part, requests[3]);
    assert!(matches!(&failures[..], [(_, error)] if error.failure == Failure::Transient), "{failures:?}");
    server.answers.send_replace(true);
    for _ in 1..CONCURRENCY {
        let answer = timeout(LIMIT, late.next()).await.unwrap().unwrap();
        let accepted = answer.answers.outcome.accepted.into_iter().map(Part::Action);
        assert!(accepted.into_iter().any(|part| part == answer.id.part), "{:?}", answer.answers.errors);
    }
    assert!(late.next().await.is_none());
    for _ in 0..CONCURRENCY {
        assert_eq!(server.arrived().await, CREATION);
    }
    assert!(server.arrived.try_recv().is_err());
}

#[tokio::test]
async fn apply_slow_requests_give_their_connections_back() {
    let server = HangingServer::start(1000).await;
    // Twice as many as there are connections.
    let works = (0..16).map(|index| server.apply(work(&format!("hangs{index}"), creations(8), None)));
    let hanging = futures::future::join_all(works).await;
    assert!(hanging.iter().all(|answers| !answers.outcome.unanswered.is_empty()));
    let deletion = Action::DeleteJob { name: "train-w-0".to_owned(), uid: String::new() };
    let answers = server.apply(work("ml", vec![deletion], None)).await;
    assert!(answers.outcome.unanswered.is_empty(), "{:?}", answers.outcome);
}

#[tokio::test]
async fn requests_waiting_for_rate_limit_are_not_slow() {
    let server = HangingServer::start(1).await;
    server.answers.send_replace(true);
    let actions = creations(3);
    let sent: Vec<Request> = actions.iter().map(Request::of).collect();
    let Outcome { unanswered, accepted, .. } = server.apply(work("ml", actions, None)).await.outcome;
    assert!(
        unanswered.is_empty() && sent.iter().all(|request| accepted.contains(request)),
        "{unanswered:?} {accepted:?}"
    );
}
