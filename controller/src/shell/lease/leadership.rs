//! Whether this replica leads, and may write.

use std::time::Instant;

use http::{Method, Request};
use jobset_engine::Now;

/// Whether this replica leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leadership {
    /// Another replica leads, or none. This one must not write.
    #[default]
    Standby,
    Leading {
        /// Until when, by its own clock, this replica may write without another renewal of the Lease; `None` without an
        /// election. A replica whose machine stood still observes this deadline before anything else.
        until: Option<Instant>,
        /// The clock by which this leader states times; `None` without an election. It begins after all times that earlier leaders
        /// have stated, passes as fast as real time, and is never set.
        clock: Option<Now>,
    },
}

/// The request was not sent: this replica does not lead.
#[derive(Debug, thiserror::Error)]
#[error("not sent: this replica does not lead")]
pub struct NotLeading;

impl Leadership {
    /// Whether this replica may write.
    pub fn holds(self, now: Instant) -> bool {
        match self {
            Self::Standby => false,
            Self::Leading { until, .. } => until.is_none_or(|until| now < until),
        }
    }

    /// The clock by which this replica states times as the leader.
    pub fn clock(self) -> Option<Now> {
        match self {
            Self::Standby => None,
            Self::Leading { clock, .. } => clock,
        }
    }

    /// The fence: admits a request that only reads, and any request while this replica leads.
    pub(in crate::shell) fn admit<B>(self, request: Request<B>) -> Result<Request<B>, NotLeading> {
        let reads = request.method() == Method::GET;
        if reads || self.holds(Instant::now()) { Ok(request) } else { Err(NotLeading) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn leadership_not_renewed_ends_at_its_deadline() {
        let now = Instant::now();
        let leading = Leadership::Leading { until: Some(now + Duration::from_secs(10)), clock: None };
        assert!(leading.holds(now + Duration::from_secs(9)) && !leading.holds(now + Duration::from_secs(10)));
        assert!(!Leadership::Standby.holds(now));
        assert!(Leadership::Leading { until: None, clock: None }.holds(now + Duration::from_hours(1)));
    }

    #[test]
    fn fence_without_leadership_admits_only_reads() {
        let admits = |leadership: Leadership, method: &Method| {
            leadership.admit(Request::builder().method(method).body(()).unwrap()).is_ok()
        };
        let (leading, late) = (
            Leadership::Leading { until: None, clock: None },
            Leadership::Leading { until: Some(Instant::now()), clock: None },
        );
        assert!([Leadership::Standby, late].iter().all(|it| admits(*it, &Method::GET)));
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            let admitted = [Leadership::Standby, late, leading].map(|leadership| admits(leadership, &method));
            assert_eq!(admitted, [false, false, true], "{method}");
        }
    }
}
