//! What kubelets write of their Pods under the full load, through `pods/status`, as Kubernetes 1.36 does when a Pod
//! restarts in place (KEP-5532):
//!
//! 1. the worker terminated, with its exit code (the sidecar still runs);
//! 2. all containers terminated with 137, the condition `AllContainersRestarting` true, not ready;
//! 3. up to a second later, at the kubelet's next sync: phase Pending, containers waiting, restart counts one higher;
//! 4. up to a second after the barrier was lifted, at the next startup probe: running and ready, with new container ids.
//!
//! A real kubelet takes a second or two to restart containers, and writes in milliseconds: the first two writes are
//! stored when the agent comes back. The agent does not wait for the others, nor they for the agent. Where the agent is
//! the worker's supervisor, containers do not restart: the Pod becomes not ready, and ready again.
//!
//! A kubelet repeats a write that fails, with the agents' back-off. The kubelets have as many seats as priority and
//! fairness gives nodes, because an administrator is exempt from it.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use http::HeaderValue;
use http::header::ACCEPT;
use jobset_agent::backoff::{after_failures, jittered};
use k8s_openapi::jiff::Timestamp;
use kube::Client;
use kube::api::{Patch, PatchParams};
use kube::core::Request;
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use tokio::task::JoinSet;

use super::case::WatchMode;
use super::jobset::NAMESPACE;
use super::pod_status::{PodPicture, pod_status};
use crate::connections::Connections;
use crate::observe::reached;

/// Concurrent writes of all kubelets: the share of the priority level `system`, 30 of 245, in the 600 requests that an API
/// server handles at once by default.
const SEATS: usize = 73;
/// A kubelet syncs its Pods, and runs a startup probe, once a second.
const PERIOD: Duration = Duration::from_secs(1);
/// Asks for the shortest answer: nobody reads what the writes return.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// What happens to a Pod.
enum PodOrder {
    /// The worker ends by itself; the answer comes when that is stored.
    Fail(oneshot::Sender<()>),
    /// The Pod restarts; the answer comes when its agent starts.
    Restart(oneshot::Sender<()>),
    /// The barrier is lifted.
    Lift,
}

/// The kubelets of all Pods. They end when this is dropped.
pub(super) struct Kubelets {
    orders: Vec<mpsc::UnboundedSender<PodOrder>>,
    /// Orders in progress.
    backlog: Arc<watch::Sender<usize>>,
    _tasks: JoinSet<()>,
}

impl Kubelets {
    /// Starts a kubelet for each Pod.
    pub(super) fn start(connections: &Connections, pods: &[String], mode: WatchMode) -> Self {
        let backlog = Arc::new(watch::Sender::new(0));
        let seats = Arc::new(Semaphore::new(SEATS));
        let mut tasks = JoinSet::new();
        let orders = pods.iter().enumerate().map(|(index, name)| {
            let (sender, orders) = mpsc::unbounded_channel();
            let (client, name) = (connections.of(index), name.clone());
            let (seats, backlog) = (Arc::clone(&seats), Arc::clone(&backlog));
            tasks.spawn(Kubelet { client, name, index, mode, seats, backlog, restarts: 0, failed: false }.run(orders));
            sender
        });
        Self { orders: orders.collect(), backlog, _tasks: tasks }
    }

    /// The worker of a Pod ends; returns when the API server has stored that.
    pub(super) async fn fail(&self, pod: usize, limit: Duration) -> Result<()> {
        let (sender, stored) = oneshot::channel();
        self.send(pod, PodOrder::Fail(sender));
        tokio::time::timeout(limit, stored).await.context("the worker's end is not stored")?.context("no kubelet")
    }

    /// A Pod restarts; returns when its agent starts.
    pub(super) async fn restart(&self, pod: usize) {
        let (sender, starts) = oneshot::channel();
        self.send(pod, PodOrder::Restart(sender));
        // The kubelet lives as long as this does.
        let _ = starts.await;
    }

    /// The barrier of a Pod is lifted.
    pub(super) fn lift(&self, pod: usize) {
        self.send(pod, PodOrder::Lift);
    }

    /// Waits until all statuses are written.
    pub(super) async fn settled(&self, limit: Duration) -> Result<()> {
        let done = |orders: &usize| (*orders == 0).then_some(());
        reached(&self.backlog, limit, "kubelets have not written all statuses (agents.log has their errors)", done)
            .await
    }

    fn send(&self, pod: usize, order: PodOrder) {
        self.backlog.send_modify(|orders| *orders += 1);
        // The receiver lives as long as this does.
        let _ = self.orders[pod].send(order);
    }
}

/// The kubelet of one Pod.
struct Kubelet {
    client: Client,
    name: String,
    index: usize,
    mode: WatchMode,
    seats: Arc<Semaphore>,
    backlog: Arc<watch::Sender<usize>>,
    restarts: u32,
    /// The worker has ended by itself since the last restart.
    failed: bool,
}

impl Kubelet {
    async fn run(mut self, mut orders: mpsc::UnboundedReceiver<PodOrder>) {
        while let Some(order) = orders.recv().await {
            self.carry_out(order).await;
            self.backlog.send_modify(|orders| *orders -= 1);
        }
    }

    async fn carry_out(&mut self, order: PodOrder) {
        match (order, self.mode) {
            (PodOrder::Fail(stored), _) => {
                self.write(PodPicture::WorkerTerminated { exit_code: 1 }).await;
                self.failed = true;
                // The waiting side may have reached its limit.
                let _ = stored.send(());
            }
            (PodOrder::Restart(starts), WatchMode::New) => {
                if !std::mem::take(&mut self.failed) {
                    self.write(PodPicture::WorkerTerminated { exit_code: 143 }).await;
                }
                self.write(PodPicture::Restarting).await;
                let _ = starts.send(());
                self.next_sync().await;
                self.restarts += 1;
                self.write(PodPicture::Waiting).await;
            }
            (PodOrder::Restart(starts), WatchMode::Kept) => {
                let _ = starts.send(());
                self.write(PodPicture::NotReady).await;
            }
            (PodOrder::Lift, _) => {
                self.next_sync().await;
                self.write(PodPicture::Ready).await;
            }
        }
    }

    async fn next_sync(&self) {
        tokio::time::sleep(PERIOD.mul_f64(fastrand::f64())).await;
    }

    async fn write(&self, picture: PodPicture) {
        let status = pod_status(picture, self.index, self.restarts, &Timestamp::now().to_string());
        let mut failures = 0;
        while let Err(error) = self.patch(&status).await {
            tracing::warn!(error = format!("{error:#}"), "cannot write a Pod's status");
            tokio::time::sleep(jittered(after_failures(failures, None))).await;
            failures += 1;
        }
    }

    async fn patch(&self, status: &Value) -> Result<()> {
        let _seat = self.seats.acquire().await.context("the seats are gone")?;
        let patch = Patch::Strategic(json!({"status": status}));
        let mut request = Request::new(format!("/api/v1/namespaces/{NAMESPACE}/pods"))
            .patch_subresource("status", &self.name, &PatchParams::default(), &patch)
            .context("not a request")?;
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static(METADATA));
        self.client.request::<IgnoredAny>(request).await.with_context(|| format!("status of Pod {}", self.name))?;
        Ok(())
    }
}
