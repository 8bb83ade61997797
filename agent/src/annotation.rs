//! An annotation that a report carries beside the epoch: when the agent started, or how its worker failed.

use std::sync::OnceLock;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tokio::time::Instant;

/// How long no other value is tried after the API server has rejected one. A policy of an earlier release rejects them all, until it is
/// upgraded.
const REJECTED_FOR: Duration = Duration::from_mins(10);

/// The value of an annotation, until the API server has rejected a report with it.
#[derive(Debug)]
pub struct Annotation {
    value: String,
    rejected: OnceLock<Instant>,
}

impl Annotation {
    /// An annotation that no report has carried yet.
    pub fn new(value: String) -> Self {
        Self { value, rejected: OnceLock::new() }
    }

    /// The start of an agent, which tells its life from those before and after it in one Pod: this time in RFC 3339, with
    /// microseconds.
    pub fn started(at: Timestamp) -> Self {
        Self::new(format!("{at:.6}"))
    }

    /// The value, for a relay, which no policy keeps from admitting it.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// The value for the API server; `None` once it has rejected that.
    pub fn admitted(&self) -> Option<&str> {
        self.rejected.get().is_none().then_some(&self.value)
    }

    /// The API server admits a report without this, and none with it: it is not sent again.
    pub fn reject(&self) {
        self.rejected.get_or_init(Instant::now);
    }

    /// Whether another value is worth a try.
    pub fn may_be_replaced(&self) -> bool {
        self.rejected.get().is_none_or(|at| at.elapsed() >= REJECTED_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn value_after_rejected_one_is_tried_later() {
        let annotation = Annotation::new("{}".to_owned());
        assert!(annotation.may_be_replaced());
        annotation.reject();
        assert!(!annotation.may_be_replaced());
        tokio::time::advance(REJECTED_FOR).await;
        assert!(annotation.may_be_replaced());
    }

    #[test]
    fn start_rejected_stays_known_to_relays_alone() {
        let start = Annotation::started("2026-01-01T00:00:00.2Z".parse().unwrap());
        assert_eq!(start.admitted(), Some("2026-01-01T00:00:00.200000Z"));
        start.reject();
        assert_eq!((start.admitted(), start.value()), (None, "2026-01-01T00:00:00.200000Z"));
    }
}
