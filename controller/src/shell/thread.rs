//! Threads beside the runtime.

use anyhow::Context as _;
use tokio::sync::oneshot;

/// Size of the stack: that of the main thread.
const STACK: usize = 8 << 20;

/// Runs `work` on a thread of its own. The future is its result, or an error if it panics. The program may end before the thread.
pub fn spawn<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce() -> anyhow::Result<T> + Send + 'static,
) -> anyhow::Result<impl Future<Output = anyhow::Result<T>>> {
    let (ends, end) = oneshot::channel();
    let run = move || drop(ends.send(work()));
    let thread = std::thread::Builder::new().name(name.to_owned()).stack_size(STACK);
    thread.spawn(run).with_context(|| format!("cannot start the thread {name}"))?;
    Ok(async move { end.await.with_context(|| format!("the thread {name} has panicked"))? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn thread_that_panics_is_an_error() {
        let end = spawn("broken", || -> anyhow::Result<()> { std::panic::resume_unwind(Box::new("a panic")) });
        assert_eq!(end.unwrap().await.unwrap_err().to_string(), "the thread broken has panicked");
        assert_eq!(spawn("works", || Ok(7)).unwrap().await.unwrap(), 7);
    }
}
