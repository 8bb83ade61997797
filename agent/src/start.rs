//! The start of this agent, which tells its life from those before and after it in one Pod.

use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::jiff::Timestamp;

/// When the agent started, and whether the API server admits that.
#[derive(Debug)]
pub struct AgentStart {
    at: String,
    /// Whether the API server has rejected a report with this.
    rejected: AtomicBool,
}

impl AgentStart {
    /// An agent that starts now.
    pub fn now() -> Self {
        Self::at(Timestamp::now())
    }

    fn at(time: Timestamp) -> Self {
        Self { at: format!("{time:.6}"), rejected: AtomicBool::new(false) }
    }

    /// The time in RFC 3339, with microseconds: value of the annotation `jobset.sigs.k8s.io/agent-started`.
    pub fn text(&self) -> &str {
        &self.at
    }

    /// Value of the annotation; `None` once the API server has rejected it.
    pub fn annotation(&self) -> Option<&str> {
        (!self.rejected.load(Ordering::Relaxed)).then_some(&self.at)
    }

    /// The API server admits a report without this, and none with it: it is not sent again.
    pub fn reject(&self) {
        self.rejected.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_is_rfc_3339_with_microseconds() {
        let start = AgentStart::at("2026-01-01T00:00:00.2Z".parse().unwrap());
        assert_eq!(start.annotation(), Some("2026-01-01T00:00:00.200000Z"));
        start.reject();
        assert_eq!((start.annotation(), start.text()), (None, "2026-01-01T00:00:00.200000Z"));
    }
}
