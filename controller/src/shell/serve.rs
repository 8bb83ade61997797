//! What others observe of the loop: `/healthz` and `/readyz`, and the watchdog of the Lease.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;
use jobset_program::lock;
use jobset_store::Key;

/// Time without a turn after which `/healthz` fails. A turn takes milliseconds, and the loop takes one at least each
/// [`super::reconcile::TICK`]. A leader has given the Lease up before that.
pub(super) const STANDS_STILL: Duration = Duration::from_mins(1);

/// What others observe of the controller's loop.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<State>);

/// Called with each JobSet whose plan begins, on the thread of the loop.
type OnPlan = Box<dyn Fn(&Key) + Send + Sync>;

#[derive(Default)]
struct State {
    /// Whether the controller has listed all objects once. A standby replica lists them, too.
    listed: AtomicBool,
    /// When the loop began its last turn; `None` until the loop begins.
    last_turn: Mutex<Option<Instant>>,
    /// The JobSet that the loop plans for.
    planned: Mutex<Option<Key>>,
    on_plan: Option<OnPlan>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { listed, last_turn, planned, on_plan: _ } = self;
        let mut state = f.debug_struct("State");
        state.field("listed", listed).field("last_turn", last_turn).field("planned", planned).finish_non_exhaustive()
    }
}

impl Health {
    /// Calls this with each JobSet whose plan begins, on the thread of the loop. A test makes a plan last long, or panic.
    pub fn calling(on_plan: impl Fn(&Key) + Send + Sync + 'static) -> Self {
        Self(Arc::new(State { on_plan: Some(Box::new(on_plan)), ..State::default() }))
    }

    /// From now on the controller is ready.
    pub fn set_ready(&self) {
        self.0.listed.store(true, Ordering::Relaxed);
    }

    pub fn begin_turn(&self, now: Instant) {
        *lock(&self.0.last_turn) = Some(now);
    }

    /// The plan for a JobSet begins.
    pub fn begin_plan(&self, jobset: &Key) {
        self.plan(Some(jobset.clone()));
        if let Some(on_plan) = &self.0.on_plan {
            on_plan(jobset);
        }
    }

    /// No plan is made any longer.
    pub fn end_plan(&self) {
        self.plan(None);
    }

    fn plan(&self, jobset: Option<Key>) {
        *lock(&self.0.planned) = jobset;
    }

    /// When the loop began its last turn; `None` until the loop begins.
    pub fn last_turn(&self) -> Option<Instant> {
        *lock(&self.0.last_turn)
    }

    /// The JobSet that the loop plans for.
    pub fn planned(&self) -> Option<Key> {
        lock(&self.0.planned).clone()
    }

    fn readiness(&self) -> (StatusCode, &'static str) {
        if self.0.listed.load(Ordering::Relaxed) {
            (StatusCode::OK, "ok\n")
        } else {
            (StatusCode::SERVICE_UNAVAILABLE, "waiting for the first listings\n")
        }
    }

    /// Whether the loop goes on. A loop that has ended, by a panic or without one, takes no more turns.
    fn liveness(&self, now: Instant) -> (StatusCode, String) {
        match self.last_turn().map(|last| now.saturating_duration_since(last)) {
            Some(age) if age > STANDS_STILL => {
                let text = format!("the loop stands still: its last turn began {} s ago\n", age.as_secs());
                (StatusCode::SERVICE_UNAVAILABLE, text)
            }
            _ => (StatusCode::OK, "ok\n".to_owned()),
        }
    }

    pub fn routes(self) -> Router {
        let health = self.clone();
        Router::new()
            .route("/healthz", get(move || std::future::ready(health.liveness(Instant::now()))))
            .route("/readyz", get(move || std::future::ready(self.readiness())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::reconcile::TICK;

    #[test]
    fn healthz_before_the_loop_begins_is_ok() {
        let later = Instant::now() + Duration::from_hours(1);
        assert_eq!(Health::default().liveness(later).0, StatusCode::OK);
    }

    #[test]
    fn healthz_fails_after_minute_without_turn_and_recovers() {
        let (health, now) = (Health::default(), Instant::now());
        health.begin_turn(now);
        assert_eq!(health.liveness(now + STANDS_STILL).0, StatusCode::OK);
        let later = now + Duration::from_secs(75);
        let (status, text) = health.liveness(later);
        assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(text, "the loop stands still: its last turn began 75 s ago\n");
        health.begin_turn(later);
        assert_eq!(health.liveness(later).0, StatusCode::OK);
        // A loop without work is not taken for one that stands still.
        assert!(TICK * 3 < STANDS_STILL);
    }

    #[tokio::test]
    async fn healthz_fails_when_the_task_of_the_loop_has_panicked() {
        let health = Health::default();
        let of_loop = health.clone();
        let task = tokio::spawn(async move {
            of_loop.begin_turn(Instant::now());
            let _locked = of_loop.0.last_turn.lock().unwrap();
            panic!("in the middle of a turn");
        });
        assert!(task.await.unwrap_err().is_panic());
        assert_eq!(health.liveness(Instant::now()).0, StatusCode::OK);
        assert_eq!(health.liveness(Instant::now() + STANDS_STILL * 2).0, StatusCode::SERVICE_UNAVAILABLE);
    }
}
