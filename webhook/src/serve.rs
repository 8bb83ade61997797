//! The webhooks by path: requests in, answers out.

use std::ops::ControlFlow;
use std::sync::Arc;

use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use axum::{Extension, Router};

use crate::jobset::Terms;
use crate::nodes::known::KnownJobSets;
use crate::pod::lookup::Lookup;
use crate::review::nodes::{self, KeepAway};
use crate::review::{self, Malformed, Placement, Reading, Review};
use crate::turn::Turn;
use crate::unreviewed::Unreviewed;

/// Path of the mutating webhook, as the Go JobSet registers it.
pub const MUTATE_PATH: &str = "/mutate-jobset-x-k8s-io-v1alpha2-jobset";
/// Path of the webhook that places Pods, as the Go JobSet registers it.
pub const POD_PATH: &str = "/mutate--v1-pod";
/// Path of the webhook that keeps Pods away from the nodes that their JobSet avoids.
pub const NODES_PATH: &str = "/mutate-v1-pod-nodes";
/// Path of the validating webhook, as the Go JobSet registers it.
pub const VALIDATE_PATH: &str = "/validate-jobset-x-k8s-io-v1alpha2-jobset";

pub fn router(terms: Terms) -> Router {
    let terms = Arc::new(terms);
    let settings = Arc::clone(&terms);
    let mutate = async move |Extension(turn): Extension<Turn>, headers: HeaderMap| {
        let settings = Arc::clone(&settings);
        answer(&turn, &headers, move |body, reading| review::mutate(body, reading, &settings.injection)).await
    };
    let validate = async move |Extension(turn): Extension<Turn>, headers: HeaderMap| {
        let terms = Arc::clone(&terms);
        answer(&turn, &headers, move |body, reading| review::validate(body, reading, &terms)).await
    };
    Router::new()
        .route(MUTATE_PATH, post(mutate))
        .route(VALIDATE_PATH, post(validate))
        .method_not_allowed_fallback(not_allowed)
        .fallback(not_found)
}

/// The routes of the webhooks of Pods: the one that places them, and the one that keeps them away from nodes.
pub fn pod_router(lookup: Lookup, known: KnownJobSets) -> Router {
    let place = async move |Extension(turn): Extension<Turn>, headers: HeaderMap| {
        place(&turn, &headers, &lookup).await.unwrap_or_else(|unreviewed| unreviewed.answer())
    };
    let keep_away = async move |Extension(turn): Extension<Turn>, headers: HeaderMap| {
        keep_away(&turn, &headers, &known).await.unwrap_or_else(|unreviewed| unreviewed.answer())
    };
    Router::new()
        .route(POD_PATH, post(place))
        .route(NODES_PATH, post(keep_away))
        .method_not_allowed_fallback(not_allowed)
}

/// What is read of the body, and made of it: quickly, and where that fails, with care.
async fn computed<T: Send + 'static>(
    turn: &Turn,
    headers: &HeaderMap,
    review: impl Fn(&[u8], Reading) -> Result<T, Malformed> + Clone + Send + 'static,
) -> Result<T, Unreviewed> {
    content_type_of(headers)?;
    let quick = review.clone();
    let computed = match turn.compute(move |body| quick(body, Reading::Quick)).await? {
        Err(Malformed::Unread) => turn.compute_alone(move |body| review(body, Reading::Careful)).await?,
        computed => computed,
    };
    Ok(computed?)
}

async fn answer(
    turn: &Turn,
    headers: &HeaderMap,
    review: impl Fn(&[u8], Reading) -> Result<Review, Malformed> + Clone + Send + 'static,
) -> Response {
    let written = move |body: &[u8], reading| review(body, reading).map(written);
    computed(turn, headers, written).await.unwrap_or_else(|unreviewed| unreviewed.answer())
}

/// A Pod that follows waits for its leader outside of the places in which others are computed.
async fn place(turn: &Turn, headers: &HeaderMap, lookup: &Lookup) -> Result<Response, Unreviewed> {
    let begin = |body: &[u8], reading| match review::place(body, reading)? {
        Placement::Follows(follower) => Ok(ControlFlow::Continue(follower)),
        Placement::Reviewed(review) => Ok(ControlFlow::Break(written(*review))),
    };
    let follower = match computed(turn, headers, begin).await? {
        ControlFlow::Continue(follower) => follower,
        ControlFlow::Break(answer) => return Ok(answer),
    };
    let domain = turn.wait(lookup.domain(&follower)).await?;
    Ok(turn.compute(move |body| review::follow(body, &follower, domain).map(written)).await??)
}

/// A Pod whose JobSet is known is answered in its first place. Any other waits for the JobSet outside of the places.
async fn keep_away(turn: &Turn, headers: &HeaderMap, known: &KnownJobSets) -> Result<Response, Unreviewed> {
    let now = known.clone();
    let begin = move |body: &[u8], reading| match nodes::begin(body, reading, |key| now.now(key))? {
        KeepAway::Asks(key) => Ok(ControlFlow::Continue(key)),
        KeepAway::Reviewed(review) => Ok(ControlFlow::Break(written(*review))),
    };
    let key = match computed(turn, headers, begin).await? {
        ControlFlow::Continue(key) => key,
        ControlFlow::Break(answer) => return Ok(answer),
    };
    let found = turn.wait(known.read(&key)).await?;
    Ok(turn.compute(move |body| nodes::finish(body, &key, found).map(written)).await??)
}

async fn not_allowed(method: Method) -> Response {
    Unreviewed::Unfit(StatusCode::METHOD_NOT_ALLOWED, format!("the method must be POST, not {method}")).answer()
}

async fn not_found(uri: Uri) -> Response {
    Unreviewed::Unfit(StatusCode::NOT_FOUND, format!("there is no webhook at {}", uri.path())).answer()
}

fn content_type_of(headers: &HeaderMap) -> Result<(), Unreviewed> {
    let content_type = headers.get(header::CONTENT_TYPE).map_or("", |value| value.to_str().unwrap_or("not text"));
    if content_type.split(';').next().is_none_or(|it| !it.trim().eq_ignore_ascii_case("application/json")) {
        let text = format!("Content-Type must be application/json, not {content_type:?}");
        return Err(Unreviewed::Unfit(StatusCode::UNSUPPORTED_MEDIA_TYPE, text));
    }
    Ok(())
}

fn written(review: Review) -> Response {
    let outcome = review.outcome();
    let mut answer = axum::Json(review).into_response();
    answer.extensions_mut().insert(outcome);
    answer
}
