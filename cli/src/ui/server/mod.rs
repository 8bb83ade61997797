//! The HTTP server of the pages, on 127.0.0.1 alone.
//!
//! [`users`] decides whose connection is let in, [`Session`] which request, and [`routes`] answers it. Each connection has its limits here.

mod headers;
mod routes;
mod session;
#[cfg(test)]
mod tests;
mod users;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

pub use session::{Access, Asking, Session};

use users::Users;

use super::live::Live;
use crate::error::Error;

/// The most connections. A page needs one for its events, and some more while it loads.
const CONNECTIONS: usize = 64;
/// How long a request may take to arrive. A connection without requests ends after this time.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest head of a request, in bytes, and the most bytes that wait to be sent on a connection.
const BUFFER: usize = 64 << 10;
/// Pause after a connection could not be accepted, as when there are no file descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub struct Listening {
    listener: TcpListener,
    pub port: u16,
}

impl Listening {
    /// Listens on a port of 127.0.0.1, or on a free one if it is 0.
    pub async fn on(port: u16) -> Result<Self, Error> {
        let failed = |source| Error::Listen { port, source };
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await.map_err(failed)?;
        let port = listener.local_addr().map_err(failed)?.port();
        Ok(Self { listener, port })
    }
}

/// Serves the pages until the command ends.
pub async fn serve(listening: Listening, session: Session, live: Arc<Live>) {
    let (router, strangers) = (routes::router(session, live), routes::strangers());
    let users = Users::of_process();
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok((stream, _)) = listening.listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        // Over the limit, a connection is closed at once. The browser tries again.
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let router = if users.are_strange(&stream) { strangers.clone() } else { router.clone() };
        tokio::spawn(async move {
            converse(stream, router).await;
            drop(place);
        });
    }
}

async fn converse(stream: TcpStream, router: axum::Router) {
    // Events are small, and the page shows them at once.
    let _ = stream.set_nodelay(true);
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(BUFFER);
    // A connection that ends early is none of the user's business.
    let _ = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).await;
}
