//! `/healthz` and `/readyz`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;

/// Time without a turn after which the controller's loop counts as standing still. A turn takes milliseconds, and the loop
/// takes one at least each [`super::reconcile::TICK`].
const STANDS_STILL: Duration = Duration::from_mins(1);

/// What the probes ask about the controller's loop.
#[derive(Clone, Debug, Default)]
pub struct Health(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// Whether the controller has listed all objects once. A standby replica lists them, too.
    listed: AtomicBool,
    /// When the loop began its last turn; `None` until the loop begins.
    last_turn: Mutex<Option<Instant>>,
}

impl Health {
    /// From now on the controller is ready.
    pub fn set_ready(&self) {
        self.0.listed.store(true, Ordering::Relaxed);
    }

    /// The loop begins a turn.
    pub fn begin_turn(&self, now: Instant) {
        *self.0.last_turn.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
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
        let last_turn = *self.0.last_turn.lock().unwrap_or_else(PoisonError::into_inner);
        match last_turn.map(|last| now.saturating_duration_since(last)) {
            Some(age) if age > STANDS_STILL => {
                let text = format!("the loop stands still: its last turn began {} s ago\n", age.as_secs());
                (StatusCode::SERVICE_UNAVAILABLE, text)
            }
            _ => (StatusCode::OK, "ok\n".to_owned()),
        }
    }

    /// The routes of the health checks.
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
    fn healthz_without_a_turn_for_a_minute_fails_and_recovers_with_the_next() {
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
