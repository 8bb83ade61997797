//! What is measured of reviews. Labels are enums: nothing that a client sends becomes one.
//!
//! A review says in the extensions of its answer what came of it ([`Outcome`]), and a request that was refused for load which
//! limit it met ([`Overload`]); either, how long it waited for its turn ([`Waited`]). Here that is counted, around everything that
//! an API server waits for: the body, the turn, the review. An answer that says nothing, and none at all, is an error.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{self, Next};
use axum::response::Response;
use kube::core::admission::Operation;
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

use crate::limits::Waited;
use crate::pod::refusal::Reason;
use crate::serve::{MUTATE_PATH, NODES_PATH, POD_PATH, VALIDATE_PATH};
use crate::unreviewed::Overload;

/// Upper bounds of durations in seconds: most reviews take less than the first, followers wait up to 1 s for their leader, and
/// API servers wait 5 s for an answer.
const BUCKETS: [f64; 12] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];

struct Webhook {
    path: &'static str,
    /// The name that it is registered by and API servers measure it by.
    label: &'static str,
    /// What it is asked about, where it is registered as it is deployed.
    operations: &'static [Operation],
}

static WEBHOOKS: [Webhook; 4] = [
    Webhook { path: MUTATE_PATH, label: "mjobset.kb.io", operations: &[Operation::Create, Operation::Update] },
    Webhook { path: VALIDATE_PATH, label: "vjobset.kb.io", operations: &[Operation::Create, Operation::Update] },
    Webhook { path: POD_PATH, label: "mpod.kb.io", operations: &[Operation::Create] },
    Webhook { path: NODES_PATH, label: "mpodnodes.kb.io", operations: &[Operation::Create] },
];

/// What a review came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Allowed,
    /// The rules forbid it, or forbid it for now.
    Denied,
    /// There was no decision.
    Error,
}

impl Verdict {
    const ALL: [Self; 3] = [Self::Allowed, Self::Denied, Self::Error];

    fn label(self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::Error => "error",
        }
    }
}

/// What came of a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// What was asked about, if that could be read.
    pub operation: Option<Operation>,
    pub verdict: Verdict,
    /// Why a Pod is not placed.
    pub rejection: Option<Reason>,
}

/// As API servers have them in their own metrics.
fn operation_label(operation: Option<&Operation>) -> &'static str {
    match operation {
        Some(Operation::Create) => "CREATE",
        Some(Operation::Update) => "UPDATE",
        Some(Operation::Delete) => "DELETE",
        Some(Operation::Connect) => "CONNECT",
        None => "unknown",
    }
}

#[derive(Clone, Debug)]
pub struct Metrics {
    requests: IntCounterVec,
    duration: HistogramVec,
    turn_wait: HistogramVec,
    rejections: IntCounterVec,
    overload: IntCounterVec,
}

impl Metrics {
    /// Registers them, each counter with 0: one that appears with its first event shows no increase.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let counter = |name, help, labels: &[&str]| {
            let counter = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(counter.clone()))?;
            prometheus::Result::Ok(counter)
        };
        let histogram = |name, help| {
            let options = HistogramOpts::new(name, help).buckets(BUCKETS.into());
            let histogram = HistogramVec::new(options, &["webhook"])?;
            registry.register(Box::new(histogram.clone()))?;
            prometheus::Result::Ok(histogram)
        };
        let duration = histogram(
            "jobset_webhook_request_duration_seconds",
            "Duration of requests, from their head to their answer: the body, the wait for a turn and for a leader, the review.",
        )?;
        let turn_wait = histogram(
            "jobset_webhook_turn_wait_seconds",
            "Wait of requests for their turn, from the end of their body: namespaces take turns.",
        )?;
        let metrics = Self {
            requests: counter(
                "jobset_webhook_requests_total",
                "Requests by what they came to. error: there was no decision, since the request could not be read, was refused for load or given up, or the API server did not answer.",
                &["webhook", "operation", "result"],
            )?,
            duration,
            turn_wait,
            rejections: counter(
                "jobset_placement_rejections_total",
                "Pods that were refused because they could not be placed, most of them followers of a leader without a node.",
                &["reason"],
            )?,
            overload: counter(
                "jobset_webhook_overload_total",
                "Requests that were answered with 503 because too much was asked for at once, by the limit that they met.",
                &["webhook", "limit"],
            )?,
        };
        metrics.begin();
        Ok(metrics)
    }

    fn begin(&self) {
        for webhook in &WEBHOOKS {
            self.duration.with_label_values(&[webhook.label]);
            self.turn_wait.with_label_values(&[webhook.label]);
            for operation in webhook.operations {
                for verdict in Verdict::ALL {
                    self.requests.with_label_values(&series(webhook, Some(operation), verdict));
                }
            }
            self.requests.with_label_values(&series(webhook, None, Verdict::Error));
            for overload in Overload::ALL {
                self.overload.with_label_values(&[webhook.label, overload.label()]);
            }
        }
        for reason in Reason::ALL {
            self.rejections.with_label_values(&[reason.label()]);
        }
    }
}

fn series(webhook: &Webhook, operation: Option<&Operation>, verdict: Verdict) -> [&'static str; 3] {
    [webhook.label, operation_label(operation), verdict.label()]
}

/// The routes, measured where they are those of webhooks. Outside of all limits.
pub fn measure(router: Router, metrics: Metrics) -> Router {
    router.route_layer(middleware::from_fn_with_state(Arc::new(metrics), observe))
}

async fn observe(State(metrics): State<Arc<Metrics>>, request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let Some(webhook) = WEBHOOKS.iter().find(|webhook| webhook.path == path) else { return next.run(request).await };
    let mut measured = Measured { metrics, webhook, began: Instant::now(), outcome: None, overload: None };
    let response = next.run(request).await;
    if let Some(Waited(wait)) = response.extensions().get() {
        measured.metrics.turn_wait.with_label_values(&[webhook.label]).observe(wait.as_secs_f64());
    }
    measured.outcome = response.extensions().get().cloned();
    measured.overload = response.extensions().get().copied();
    response
}

/// A request, which is counted when it is over: also when its client has gone, and when its review panicked.
struct Measured {
    metrics: Arc<Metrics>,
    webhook: &'static Webhook,
    began: Instant,
    outcome: Option<Outcome>,
    overload: Option<Overload>,
}

impl Drop for Measured {
    fn drop(&mut self) {
        let Self { metrics, webhook, began, outcome, overload } = self;
        let none = Outcome { operation: None, verdict: Verdict::Error, rejection: None };
        let Outcome { operation, verdict, rejection } = outcome.take().unwrap_or(none);
        metrics.duration.with_label_values(&[webhook.label]).observe(began.elapsed().as_secs_f64());
        metrics.requests.with_label_values(&series(webhook, operation.as_ref(), verdict)).inc();
        if let Some(overload) = overload {
            metrics.overload.with_label_values(&[webhook.label, overload.label()]).inc();
        }
        if let Some(reason) = rejection {
            metrics.rejections.with_label_values(&[reason.label()]).inc();
        }
    }
}
