//! Answers requests: the pages and their files, the events that keep a page up to date, and details of a Pod.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use futures::stream;

use super::headers::guarded;
use super::session::{Access, Asking, Session};
use crate::mirror::JobSetKey;
use crate::ui::live::{Live, OpenPage, Page};

/// A comment is sent this often, so that the browser notices when the server has gone.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// A browser that has lost the events asks for them again after this time.
const RETRY: Duration = Duration::from_secs(1);

/// The page. Its script shows the list or a JobSet, by the path.
const PAGE: (&str, &str) = (HTML, include_str!("../assets/index.html"));
const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";
const SVG: &str = "image/svg+xml";
const JSON: &str = "application/json";

const ASSETS: [(&str, &str, &str); 13] = [
    ("icon.svg", SVG, include_str!("../assets/icon.svg")),
    ("page.css", CSS, include_str!("../assets/page.css")),
    ("grid.css", CSS, include_str!("../assets/grid.css")),
    ("app.js", JAVASCRIPT, include_str!("../assets/app.js")),
    ("dom.js", JAVASCRIPT, include_str!("../assets/dom.js")),
    ("events.js", JAVASCRIPT, include_str!("../assets/events.js")),
    ("goodput.js", JAVASCRIPT, include_str!("../assets/goodput.js")),
    ("grid.js", JAVASCRIPT, include_str!("../assets/grid.js")),
    ("jobset.js", JAVASCRIPT, include_str!("../assets/jobset.js")),
    ("list.js", JAVASCRIPT, include_str!("../assets/list.js")),
    ("pods.js", JAVASCRIPT, include_str!("../assets/pods.js")),
    ("restarts.js", JAVASCRIPT, include_str!("../assets/restarts.js")),
    ("tiles.js", JAVASCRIPT, include_str!("../assets/tiles.js")),
];

/// What the user reads who has no cookie.
const UNKNOWN: &str = "This address works once, in one browser. Run `kubectl jobset ui` again to get another one.\n";

/// What another user of the machine reads.
const STRANGER: &str =
    "This connection comes from another user of this machine. Run `kubectl jobset ui` as the user of the browser.\n";

/// The answers to a user who is not let in.
pub(super) fn strangers() -> Router {
    Router::new().fallback(async || guarded((StatusCode::FORBIDDEN, STRANGER).into_response()))
}

/// The routes of the pages, for requests that the session lets in.
pub(super) fn router(session: Session, live: Arc<Live>) -> Router {
    let router = Router::new()
        .route("/", get(page))
        .route("/jobset/{namespace}/{name}", get(page))
        .route("/assets/{name}", get(asset))
        .route("/events", get(list_events))
        .route("/events/{namespace}/{name}", get(jobset_events))
        .route("/pod/{namespace}/{jobset}/{name}", get(pod))
        .with_state(live);
    router.layer(middleware::from_fn_with_state(Arc::new(session), guard))
}

fn access(session: &Session, request: &Request) -> Access {
    let path = request.uri().path();
    let text = |name| text_of(request.headers(), name);
    session.access(&Asking {
        method: request.method(),
        is_page: path == "/" || path.starts_with("/jobset/"),
        query: request.uri().query(),
        host: text("host"),
        cookie: text("cookie"),
        site: text("sec-fetch-site"),
    })
}

/// Lets in what may come in.
async fn guard(State(session): State<Arc<Session>>, request: Request, next: Next) -> Response {
    let access = access(&session, &request);
    let denied = |status: StatusCode, text: &'static str| (status, text).into_response();
    let answer = match access {
        Access::Granted => next.run(request).await,
        Access::Exchanged(cookie) => {
            let mut answer = next.run(request).await;
            if let Ok(cookie) = HeaderValue::from_str(&cookie) {
                answer.headers_mut().insert(header::SET_COOKIE, cookie);
            }
            answer
        }
        Access::BadMethod => {
            let mut answer = denied(StatusCode::METHOD_NOT_ALLOWED, "This server only reads: use GET or HEAD.\n");
            answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            answer
        }
        Access::BadHost => denied(StatusCode::MISDIRECTED_REQUEST, "This server is not the host of the request.\n"),
        Access::Foreign => denied(StatusCode::FORBIDDEN, "Another page has sent this request.\n"),
        Access::Unknown => denied(StatusCode::UNAUTHORIZED, UNKNOWN),
    };
    guarded(answer)
}

/// The value of a header that the request has once.
fn text_of<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().and_then(|value| value.to_str().ok());
    value.filter(|_| values.next().is_none())
}

fn file((content_type, content): (&'static str, &'static str)) -> Response {
    ([(header::CONTENT_TYPE, content_type)], content).into_response()
}

async fn page() -> Response {
    file(PAGE)
}

async fn asset(Path(name): Path<String>) -> Response {
    let found = ASSETS.iter().find(|(known, ..)| *known == name);
    found.map_or_else(
        || StatusCode::NOT_FOUND.into_response(),
        |(_, content_type, content)| file((content_type, content)),
    )
}

async fn list_events(State(live): State<Arc<Live>>) -> Response {
    events(live.open(Page::List))
}

async fn jobset_events(State(live): State<Arc<Live>>, Path((namespace, name)): Path<(String, String)>) -> Response {
    events(live.open(Page::JobSet(JobSetKey::new(namespace, name))))
}

/// The updates of a page as events. The next update is made when the connection has taken the last one, so a slow browser gets
/// fewer updates.
fn events(page: OpenPage) -> Response {
    let updates = stream::unfold(page, |mut page| async move {
        let update = page.next().await;
        Some((Ok::<_, Infallible>(Event::default().retry(RETRY).data(update)), page))
    });
    Sse::new(updates).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response()
}

async fn pod(
    State(live): State<Arc<Live>>,
    Path((namespace, jobset, name)): Path<(String, String, String)>,
) -> Response {
    match live.pod(&JobSetKey::new(namespace, jobset), &name) {
        Some(pod) => ([(header::CONTENT_TYPE, JSON)], pod).into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
