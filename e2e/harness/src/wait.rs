//! Waiting on conditions: every wait has a limit, and says what it waited for and what it saw last.

use std::fmt::Display;
use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// The pause between two looks at a condition.
pub const POLL: Duration = Duration::from_millis(100);

/// What one look at a condition found.
pub enum Seen<T> {
    /// The condition holds.
    Yes(T),
    /// The condition does not hold yet; the text describes the state seen, for the error at the limit.
    NotYet(String),
}

/// Polls `look` until it returns `Some`, at most for `limit`.
///
/// An error of `look` counts as "not yet": an API server that restarts must not end a wait.
///
/// # Errors
/// At the limit; the text names `what` and the last error of `look`.
pub async fn until<T, F, Fut>(limit: Duration, what: impl Display, mut look: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Option<T>>>,
{
    until_seen(limit, what, || {
        let look = look();
        async move { Ok(look.await?.map_or_else(|| Seen::NotYet("the condition does not hold".into()), Seen::Yes)) }
    })
    .await
}

/// As [`until`], for a condition that can describe the state it saw.
///
/// # Errors
/// At the limit; the text names `what` and the last state or error of `look`.
pub async fn until_seen<T, F, Fut>(limit: Duration, what: impl Display, mut look: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Seen<T>>>,
{
    let start = Instant::now();
    let mut last = "nothing was seen".to_owned();
    while let Some(left) = limit.checked_sub(start.elapsed()) {
        match tokio::time::timeout(left, look()).await {
            Ok(Ok(Seen::Yes(value))) => return Ok(value),
            Ok(Ok(Seen::NotYet(state))) => last = state,
            Ok(Err(error)) => last = format!("{error:#}"),
            Err(_) => break,
        }
        tokio::time::sleep(POLL).await;
    }
    bail!("waited {:.1} s for {what}; last seen: {last}", limit.as_secs_f64())
}
