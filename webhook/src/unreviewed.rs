//! Why a request gets no review, and the answer that says so.

use std::time::Duration;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use jobset_program::log_limit;
use tracing::warn;

use crate::limits::{BODY_LIMIT, LARGE};
use crate::review::Malformed;

/// Seconds after which to try again. The API server's client does so, within the webhook's timeout.
const RETRY_AFTER: header::HeaderValue = header::HeaderValue::from_static("1");

/// The limit that a request has exceeded, when the client should try again: a label of the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overload {
    /// Memory for bodies and answers.
    Memory,
    LargeMemory,
    /// The body arrived too slowly, and another request took its memory.
    Displaced,
    /// Time to wait for the turn.
    Turn,
    /// Time to wait for the turn of a large body.
    LargeTurn,
}

impl Overload {
    pub(crate) const ALL: [Self; 5] = [Self::Memory, Self::LargeMemory, Self::Displaced, Self::Turn, Self::LargeTurn];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::LargeMemory => "large_memory",
            Self::Displaced => "displaced",
            Self::Turn => "turn",
            Self::LargeTurn => "large_turn",
        }
    }
}

/// Why a request is not reviewed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreviewed {
    #[error("the body must not be larger than {BODY_LIMIT} bytes")]
    TooLarge,
    #[error("the body did not arrive within {0:?}")]
    TooSlow(Duration),
    #[error("the body could not be read: {0}")]
    Broken(axum::Error),
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// It is no request for a review.
    #[error("{1}")]
    Unfit(StatusCode, String),
    #[error("too many requests at once: they and their answers fill {0} MiB (--max-body-memory); try again")]
    NoMemory(usize),
    #[error("the body came too slowly: others needed its memory after {0:?} (--displace-after); try again")]
    Slow(Duration),
    #[error(
        "too many requests of one namespace at once: they fill memory that others need (--max-body-memory); try again"
    )]
    HeldMost,
    #[error("too many large requests at once: their bodies fill {0} bytes; try again")]
    NoMemoryForLarge(usize),
    #[error("too many reviews at once: {reviews}, and the turn of this one did not come within {wait:?}; try again")]
    NoTurn { reviews: usize, wait: Duration },
    #[error("reviews of over {LARGE} bytes have one turn, and none ended within {0:?}; try again")]
    NoTurnForLarge(Duration),
}

impl Unreviewed {
    /// The status, and the limit that was met if the client should try again.
    fn kind(&self) -> (StatusCode, Option<Overload>) {
        let overload = match self {
            Self::TooLarge => return (StatusCode::PAYLOAD_TOO_LARGE, None),
            Self::TooSlow(_) => return (StatusCode::REQUEST_TIMEOUT, None),
            Self::Broken(_) | Self::Malformed(_) => return (StatusCode::BAD_REQUEST, None),
            Self::Unfit(status, _) => return (*status, None),
            Self::NoMemory(_) | Self::HeldMost => Overload::Memory,
            Self::NoMemoryForLarge(_) => Overload::LargeMemory,
            Self::Slow(_) => Overload::Displaced,
            Self::NoTurn { .. } => Overload::Turn,
            Self::NoTurnForLarge(_) => Overload::LargeTurn,
        };
        (StatusCode::SERVICE_UNAVAILABLE, Some(overload))
    }

    pub(crate) fn answer(&self) -> Response {
        let (status, overload) = self.kind();
        let text = self.to_string();
        // It may repeat what was sent, at any length.
        let text = log_limit::beginning(&text);
        if let Some(suppressed) = log_limit::permit(overload.map_or_else(|| status.as_str(), |it| it.label())) {
            warn!(status = status.as_u16(), reason = text, suppressed, "cannot answer a request");
        }
        let mut response = (status, format!("{text}\n")).into_response();
        if let Some(overload) = overload {
            response.extensions_mut().insert(overload);
            response.headers_mut().insert(header::RETRY_AFTER, RETRY_AFTER);
        }
        response
    }
}
