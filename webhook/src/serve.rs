//! The webhooks by path: requests in, answers out.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use jobset_program::log_limit;
use tracing::warn;

use crate::jobset::Terms;
use crate::pod::lookup::Lookup;
use crate::review::{self, Malformed, Placement, Review};
use crate::turn::Turn;

/// Path of the mutating webhook, as the Go JobSet registers it.
pub const MUTATE_PATH: &str = "/mutate-jobset-x-k8s-io-v1alpha2-jobset";
/// Path of the webhook that places Pods, as the Go JobSet registers it.
pub const POD_PATH: &str = "/mutate--v1-pod";
/// Path of the validating webhook, as the Go JobSet registers it.
pub const VALIDATE_PATH: &str = "/validate-jobset-x-k8s-io-v1alpha2-jobset";

/// The routes of the webhooks.
pub fn router(terms: Terms) -> Router {
    let terms = Arc::new(terms);
    let settings = Arc::clone(&terms);
    let mutate = async move |turn: Turn, headers: HeaderMap, body: Bytes| match content_type_of(&headers) {
        Ok(()) => {
            let terms = Arc::clone(&settings);
            turn.compute(move || written(review::mutate(&body, &terms.injection))).await
        }
        Err(refused) => refused,
    };
    let validate = async move |turn: Turn, headers: HeaderMap, body: Bytes| match content_type_of(&headers) {
        Ok(()) => {
            let terms = Arc::clone(&terms);
            turn.compute(move || written(review::validate(&body, &terms))).await
        }
        Err(refused) => refused,
    };
    Router::new()
        .route(MUTATE_PATH, post(mutate))
        .route(VALIDATE_PATH, post(validate))
        .method_not_allowed_fallback(not_allowed)
        .fallback(async |uri: Uri| refuse(StatusCode::NOT_FOUND, &format!("there is no webhook at {}", uri.path())))
}

/// The route of the webhook that places Pods.
pub fn pod_router(lookup: Lookup) -> Router {
    let place = async move |turn: Turn, headers: HeaderMap, body: Bytes| match content_type_of(&headers) {
        Ok(()) => place(&turn, body, &lookup).await,
        Err(refused) => refused,
    };
    Router::new().route(POD_PATH, post(place)).method_not_allowed_fallback(not_allowed)
}

/// A Pod that follows waits for its leader outside of the places in which others are computed.
async fn place(turn: &Turn, body: Bytes, lookup: &Lookup) -> Response {
    let sent = body.clone();
    let begun = turn.compute(move || match review::place(&sent) {
        Ok(Placement::Follows(follower)) => Err(follower),
        Ok(Placement::Reviewed(review)) => Ok(written(Ok(*review))),
        Err(malformed) => Ok(written(Err(malformed))),
    });
    let follower = match begun.await {
        Ok(answer) => return answer,
        Err(follower) => follower,
    };
    let domain = lookup.domain(&follower).await;
    turn.compute(move || written(review::follow(&body, &follower, domain))).await
}

async fn not_allowed(method: Method) -> Response {
    refuse(StatusCode::METHOD_NOT_ALLOWED, &format!("the method must be POST, not {method}"))
}

fn refuse(status: StatusCode, text: &str) -> Response {
    // It may repeat what was sent, at any length.
    let text = log_limit::beginning(text);
    if let Some(suppressed) = log_limit::permit(status.as_str()) {
        warn!(status = status.as_u16(), reason = text, suppressed, "cannot answer a request");
    }
    (status, format!("{text}\n")).into_response()
}

#[expect(clippy::result_large_err, reason = "the error is the answer")]
fn content_type_of(headers: &HeaderMap) -> Result<(), Response> {
    let content_type = headers.get(header::CONTENT_TYPE).map_or("", |value| value.to_str().unwrap_or("not text"));
    if content_type.split(';').next().is_none_or(|it| !it.trim().eq_ignore_ascii_case("application/json")) {
        let text = format!("Content-Type must be application/json, not {content_type:?}");
        return Err(refuse(StatusCode::UNSUPPORTED_MEDIA_TYPE, &text));
    }
    Ok(())
}

fn written(review: Result<Review, Malformed>) -> Response {
    match review {
        Ok(review) => {
            let outcome = review.outcome();
            let mut answer = axum::Json(review).into_response();
            answer.extensions_mut().insert(outcome);
            answer
        }
        Err(error) => refuse(StatusCode::BAD_REQUEST, &error.to_string()),
    }
}
