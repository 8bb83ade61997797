//! The requests of works, over real connections.

use std::num::NonZeroU32;
use std::time::Duration;

use axum::Router;
use axum::extract::Request as HttpRequest;
use axum::http::Method;
use axum::response::IntoResponse as _;
use jobset_api::RestartStrategy;
use kube::Config;
use prometheus::Registry;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::*;
use crate::args::ClientArgs;
use crate::build::{Attempt, DesiredJob, JobPlace};
use crate::engine::PriorityClasses;
use crate::shell::client::Clients;
use crate::shell::lease::Leadership;

/// Longest time that a test waits for what has to happen.
const LIMIT: Duration = Duration::from_secs(30);

/// An API server that has no answer to creations, and tells of each request when it arrives.
struct HangingServer {
    applier: Applier,
    arrived: mpsc::UnboundedReceiver<String>,
    _leadership: watch::Sender<Leadership>,
}

impl HangingServer {
    async fn start() -> Self {
        let (requests, arrived) = mpsc::unbounded_channel();
        let routes = Router::new().fallback(move |request: HttpRequest| {
            let requests = requests.clone();
            async move {
                let (parts, body) = request.into_parts();
                requests.send(format!("{} {}", parts.method, parts.uri.path())).unwrap();
                if parts.method == Method::POST {
                    std::future::pending::<()>().await;
                }
                body.into_response()
            }
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        let leadership = watch::Sender::new(Leadership::Leading { until: None });
        let fast = NonZeroU32::new(1000).unwrap();
        let limits = ClientArgs { kube_api_qps: fast, kube_api_burst: fast };
        let clients = Clients::new(Config::new(url.parse().unwrap()), &Registry::new()).unwrap();
        let applier = Applier::new(clients.workers(&limits, &leadership.subscribe()).unwrap());
        Self { applier, arrived, _leadership: leadership }
    }

    async fn arrived(&mut self) -> String {
        timeout(LIMIT, self.arrived.recv()).await.expect("no request arrives").unwrap()
    }
}

fn jobset() -> JobSet {
    serde_json::from_value(json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet",
        "metadata": {"name": "train", "namespace": "ml", "uid": "1"},
        "spec": {"replicatedJobs": [{"name": "w", "template": {}}]},
    }))
    .unwrap()
}

fn creation(name: &str) -> Action {
    let place = JobPlace { group_index: 0, job_index: 0 };
    let classes = PriorityClasses::default();
    let job = DesiredJob::of(&jobset(), place, Attempt::default(), RestartStrategy::Recreate, &classes);
    Action::CreateJob(Box::new(DesiredJob { name: name.to_owned(), ..job }))
}

#[tokio::test]
async fn apply_status_is_written_while_creation_has_no_answer() {
    let mut server = HangingServer::start().await;
    let (applier, jobset) = (server.applier.clone(), jobset());
    let work = tokio::spawn(async move {
        applier.apply(&jobset, vec![creation("train-w-0")], Some(JobSetStatus::default()), Urgency::Urgent).await;
    });
    let mut requests = [server.arrived().await, server.arrived().await];
    requests.sort();
    assert_eq!(
        requests,
        [
            "POST /apis/batch/v1/namespaces/ml/jobs",
            "PUT /apis/jobset.x-k8s.io/v1alpha2/namespaces/ml/jobsets/train/status"
        ]
    );
    work.abort();
}

#[tokio::test]
async fn apply_actions_on_jobset_are_answered_before_status_is_written() {
    let mut server = HangingServer::start().await;
    let (applier, jobset) = (server.applier.clone(), jobset());
    let annotate = Action::AnnotateRestartBudget(jobset_api::RestartBudget::Shared);
    let actions = vec![creation("train-w-0"), annotate];
    let work = tokio::spawn(async move {
        applier.apply(&jobset, actions, Some(JobSetStatus::default()), Urgency::Urgent).await;
    });
    assert_eq!(server.arrived().await, "PATCH /apis/jobset.x-k8s.io/v1alpha2/namespaces/ml/jobsets/train");
    work.abort();
}
