//! Waits for conditions. Every wait has a limit; its error names the condition and the last observed state.

use std::fmt::Display;
use std::future::Future;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// The shortest and the longest pause between two checks of a condition.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

pub enum Check<T> {
    /// The condition holds.
    Met(T),
    /// The condition does not hold yet. The text describes the observed state, for the error at the limit.
    Unmet(String),
}

/// Polls `check` until it returns `Some`, at most for `limit`.
///
/// An error of `check` counts as unmet: an API server that restarts must not end a wait.
///
/// # Errors
/// At the limit; the text names `what` and the last error of `check`.
pub async fn until<T, F, Fut>(limit: Duration, what: impl Display, mut check: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Option<T>>>,
{
    until_met(limit, what, || {
        let check = check();
        async move {
            let unmet = || Check::Unmet("the condition does not hold".into());
            Ok(check.await?.map_or_else(unmet, Check::Met))
        }
    })
    .await
}

/// As [`until`], for a condition that can describe the observed state.
///
/// # Errors
/// At the limit; the text names `what` and the last state or error of `check`.
pub async fn until_met<T, F, Fut>(limit: Duration, what: impl Display, mut check: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Check<T>>>,
{
    let start = Instant::now();
    let mut last = "no check ended".to_owned();
    while let Some(left) = limit.checked_sub(start.elapsed()) {
        match tokio::time::timeout(left, check()).await {
            Ok(Ok(Check::Met(value))) => return Ok(value),
            Ok(Ok(Check::Unmet(state))) => last = state,
            Ok(Err(error)) => last = format!("{error:#}"),
            Err(_) => break,
        }
        tokio::time::sleep(pause(start.elapsed())).await;
    }
    bail!("waited {:.1} s for {what}; last observed: {last}", limit.as_secs_f64())
}

/// The pause between two checks: a tenth of the wait so far, so that long waits cost the API server little.
pub fn pause(waited: Duration) -> Duration {
    (waited / 10).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
}
