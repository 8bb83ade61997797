//! What the agent logs.

use tracing::{Level, Subscriber};
use tracing_subscriber::filter::{FilterExt as _, LevelFilter, Targets, filter_fn};
use tracing_subscriber::layer::Filter;
use tracing_subscriber::registry::LookupSpan;

/// Name of the event whose line begins an epoch. `kubectl jobset logs` divides the log of a supervised worker by it.
pub const EPOCH_BEGINS: &str = "epoch begins";
/// The begin of the targets of the agent's own events.
const OWN: &str = "jobset_agent";

/// What the user has chosen, and the lines that begin epochs, unless nothing of the agent is to be logged.
pub fn filter<S>(chosen: Targets) -> impl Filter<S>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let divides = chosen.would_enable(OWN, &Level::ERROR);
    let begins_epoch = filter_fn(move |metadata| divides && metadata.name() == EPOCH_BEGINS);
    chosen.or(begins_epoch.with_max_level_hint(LevelFilter::INFO))
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use rstest::rstest;
    use tracing_subscriber::Layer as _;
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[rstest]
    #[case::default("jobset_agent=info", true, true)]
    #[case::warnings("warn", true, false)]
    #[case::own_errors("jobset_agent=error", true, false)]
    #[case::off("off", false, false)]
    fn line_that_begins_epoch_is_logged_unless_off(#[case] chosen: &str, #[case] begins: bool, #[case] others: bool) {
        let written = Written::default();
        let writer = written.clone();
        let lines = tracing_subscriber::fmt::layer().with_writer(move || writer.clone()).with_ansi(false).compact();
        let log = tracing_subscriber::registry().with(lines.with_filter(filter(chosen.parse().unwrap())));
        tracing::subscriber::with_default(log, || {
            tracing::info!(name: EPOCH_BEGINS, target: "jobset_agent::run", epoch = 3, "barrier lifted");
            tracing::info!(target: "jobset_agent::run", "the worker has ended");
        });
        let text = String::from_utf8(written.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.contains("  INFO jobset_agent::run: barrier lifted epoch=3\n"), begins, "{text}");
        assert_eq!(text.contains("the worker has ended"), others, "{text}");
    }
}
