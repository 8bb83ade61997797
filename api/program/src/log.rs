//! The log on standard error.

use anyhow::Context as _;
use clap::ValueEnum;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, fmt};

/// Format of the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One line of text per event.
    #[default]
    Text,
    /// One JSON object per event.
    Json,
}

/// Starts the log. The environment variable `RUST_LOG` sets the filter; if it is absent or empty, `default` does. Events
/// with the target `never` are not logged, whatever the filter says.
pub fn init(format: LogFormat, default: &str, never: Option<&'static str>) -> anyhow::Result<()> {
    let filter = filter(std::env::var(EnvFilter::DEFAULT_ENV).ok().as_deref(), default)?;
    let log = fmt::layer().with_writer(std::io::stderr);
    let log = match format {
        LogFormat::Text => log.boxed(),
        LogFormat::Json => log.json().boxed(),
    };
    let permitted = filter_fn(move |metadata| metadata.is_span() || Some(metadata.target()) != never);
    tracing_subscriber::registry().with(log.with_filter(filter)).with(permitted).init();
    Ok(())
}

fn filter(variable: Option<&str>, default: &str) -> anyhow::Result<EnvFilter> {
    let text = variable.filter(|text| !text.is_empty()).unwrap_or(default);
    text.parse().with_context(|| format!("{} is not a filter", EnvFilter::DEFAULT_ENV))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::absent(None, "info,a=error")]
    #[case::empty(Some(""), "info,a=error")]
    #[case::set(Some("debug"), "debug")]
    fn filter_is_that_of_the_variable_or_the_default(#[case] variable: Option<&str>, #[case] expected: &str) {
        let expected: EnvFilter = expected.parse().unwrap();
        assert_eq!(filter(variable, "info,a=error").unwrap().to_string(), expected.to_string());
    }

    #[test]
    fn filter_that_cannot_be_read_is_an_error() {
        assert!(filter(Some("a=loud"), "info").unwrap_err().to_string().contains("RUST_LOG"));
    }
}
