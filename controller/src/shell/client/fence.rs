//! Writes nothing once another replica may lead.

use std::time::Instant;

use http::{Method, Request};

use crate::shell::lease::Leadership;

/// The request was not sent: this replica does not lead.
#[derive(Debug, thiserror::Error)]
#[error("not sent: this replica does not lead")]
pub(in crate::shell) struct NotLeading;

/// Lets a request pass if it only reads, or if this replica leads at this instant.
pub(super) fn pass<B>(leadership: Leadership, request: Request<B>) -> Result<Request<B>, NotLeading> {
    let reads = request.method() == Method::GET;
    if reads || leadership.holds(Instant::now()) { Ok(request) } else { Err(NotLeading) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replica_that_does_not_lead_only_reads() {
        let request = |method| Request::builder().method(method).body(()).unwrap();
        let (now, leading) = (Instant::now(), Leadership::Leading { until: None });
        assert!(pass(Leadership::Standby, request(Method::GET)).is_ok());
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            assert!(pass(Leadership::Standby, request(method.clone())).is_err(), "{method}");
            assert!(pass(Leadership::Leading { until: Some(now) }, request(method.clone())).is_err(), "{method}");
            assert!(pass(leading, request(method.clone())).is_ok(), "{method}");
        }
    }
}
