//! What kubelets write of their Pods under the full load, through `pods/status`, after what Kubernetes 1.36 was seen to
//! write when a Pod restarts in place (KEP-5532):
//!
//! 1. the worker terminated, with its exit code (the sidecar still runs);
//! 2. all containers terminated with 137, the condition `AllContainersRestarting` true, not ready;
//! 3. up to a second later, when a kubelet looks again: phase Pending, containers waiting, restart counts one higher;
//! 4. up to a second after the barrier was lifted, when the startup probe asks again: running and ready, with new
//!    container ids.
//!
//! A real kubelet takes a second or two to restart containers, and writes in milliseconds: the first two writes are
//! stored when the agent comes back. The others do not wait for the agent, nor the agent for them: they lag, and the last
//! restart is still shown when the group runs again. Where the agent is the worker's supervisor, containers do not
//! restart: the Pod becomes not ready, and ready again.
//!
//! A write that fails is repeated with the agents' backoff until it succeeds. So many are under way at once as priority
//! and fairness would let nodes have, from which an administrator is exempt.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
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
use super::connections::Connections;
use super::jobset::NAMESPACE;
use super::pod_status::{Picture, pod_status};
use jobset_harness::progress::progress;

/// Writes under way at once, of all kubelets: the share of the priority level `system`, 30 of 245, in the 600 requests
/// that an API server carries out at once by default.
const SEATS: usize = 73;
/// A kubelet looks at its Pods, and asks a startup probe, once a second.
const PERIOD: Duration = Duration::from_secs(1);
/// How often a wait says how many writes are outstanding.
const SAY_PERIOD: Duration = Duration::from_secs(5);
/// The least of an answer: what the writes return is not looked at.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// What happens to a Pod.
enum Order {
    /// The worker ends by itself; the answer comes when that can be seen.
    Fail(oneshot::Sender<()>),
    /// The Pod restarts; the answer comes when its agent does.
    Restart(oneshot::Sender<()>),
    /// The barrier is lifted.
    Lift,
}

/// Orders that are not carried out, and the last refusal.
#[derive(Debug, Default)]
struct Backlog {
    orders: usize,
    refused: usize,
    refusal: String,
}

/// The kubelets of all Pods. They end with this.
pub(super) struct Kubelets {
    orders: Vec<mpsc::UnboundedSender<Order>>,
    backlog: Arc<watch::Sender<Backlog>>,
    _tasks: JoinSet<()>,
}

impl Kubelets {
    /// Kubelets for these Pods.
    pub(super) fn start(connections: &Connections, pods: &[String], mode: WatchMode) -> Self {
        let backlog = Arc::new(watch::Sender::new(Backlog::default()));
        let seats = Arc::new(Semaphore::new(SEATS));
        let mut tasks = JoinSet::new();
        let orders = pods.iter().enumerate().map(|(index, name)| {
            let (sender, orders) = mpsc::unbounded_channel();
            let (client, name) = (connections.of(index), name.clone());
            let (seats, backlog) = (Arc::clone(&seats), Arc::clone(&backlog));
            tasks.spawn(Kubelet { client, name, index, mode, seats, backlog, life: 0, failed: false }.run(orders));
            sender
        });
        Self { orders: orders.collect(), backlog, _tasks: tasks }
    }

    /// The worker of a Pod ends; returns when the API server has stored that.
    ///
    /// # Errors
    /// At the limit.
    pub(super) async fn fail(&self, pod: usize, limit: Duration) -> Result<()> {
        let (sender, stored) = oneshot::channel();
        self.send(pod, Order::Fail(sender));
        match tokio::time::timeout(limit, stored).await {
            Ok(stored) => stored.context("a kubelet has ended"),
            Err(_) => bail!("the worker's end was not stored in {:.0} s: {}", limit.as_secs_f64(), self.describe()),
        }
    }

    /// A Pod restarts; returns when its agent may begin.
    pub(super) async fn restart(&self, pod: usize) {
        let (sender, begins) = oneshot::channel();
        self.send(pod, Order::Restart(sender));
        // The kubelet lives as long as this does.
        let _ = begins.await;
    }

    /// The barrier of a Pod is lifted.
    pub(super) fn lift(&self, pod: usize) {
        self.send(pod, Order::Lift);
    }

    /// Waits until all is written.
    ///
    /// # Errors
    /// At the limit; the text says how much is not.
    pub(super) async fn settled(&self, limit: Duration) -> Result<()> {
        let mut backlog = self.backlog.subscribe();
        let say = async {
            loop {
                tokio::time::sleep(SAY_PERIOD).await;
                progress(&self.describe());
            }
        };
        tokio::select! {
            settled = backlog.wait_for(|backlog| backlog.orders == 0) => settled.map(|_| ()).context("no kubelets"),
            never = say => never,
            () = tokio::time::sleep(limit) => {
                bail!("not all statuses are written after {:.0} s: {}", limit.as_secs_f64(), self.describe())
            }
        }
    }

    fn describe(&self) -> String {
        let backlog = self.backlog.borrow();
        let refused = match backlog.refused {
            0 => String::new(),
            count => format!("; {count} were refused, the last because {}", backlog.refusal),
        };
        format!("statuses of {} changes to Pods are to be written{refused}", backlog.orders)
    }

    fn send(&self, pod: usize, order: Order) {
        self.backlog.send_if_modified(|backlog| {
            backlog.orders += 1;
            false
        });
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
    backlog: Arc<watch::Sender<Backlog>>,
    /// Restarts so far.
    life: u32,
    /// The worker has ended by itself since the last restart.
    failed: bool,
}

impl Kubelet {
    async fn run(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        while let Some(order) = orders.recv().await {
            self.carry_out(order).await;
            self.backlog.send_if_modified(|backlog| {
                backlog.orders -= 1;
                backlog.orders == 0
            });
        }
    }

    async fn carry_out(&mut self, order: Order) {
        match (order, self.mode) {
            (Order::Fail(stored), _) => {
                self.write(Picture::WorkerTerminated { exit_code: 1 }).await;
                self.failed = true;
                // Who asked may have reached its limit.
                let _ = stored.send(());
            }
            (Order::Restart(begins), WatchMode::New) => {
                if !std::mem::take(&mut self.failed) {
                    self.write(Picture::WorkerTerminated { exit_code: 143 }).await;
                }
                self.write(Picture::Restarting).await;
                let _ = begins.send(());
                self.next_look().await;
                self.life += 1;
                self.write(Picture::Waiting).await;
            }
            (Order::Restart(begins), WatchMode::Kept) => {
                let _ = begins.send(());
                self.write(Picture::NotReady).await;
            }
            (Order::Lift, _) => {
                self.next_look().await;
                self.write(Picture::Ready).await;
            }
        }
    }

    async fn next_look(&self) {
        tokio::time::sleep(PERIOD.mul_f64(fastrand::f64())).await;
    }

    async fn write(&self, picture: Picture) {
        let status = pod_status(picture, self.index, self.life, &Timestamp::now().to_string());
        let mut failures = 0;
        while let Err(error) = self.patch(&status).await {
            self.backlog.send_if_modified(|backlog| {
                backlog.refused += 1;
                backlog.refusal = format!("{error:#}");
                false
            });
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
