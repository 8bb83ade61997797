//! A failed request to the API server, as the agent logs it and retries it.

use std::time::Duration;

use kube::core::Status;

/// Most characters of a cause that are written to the log.
const TEXT: usize = 300;

/// A request that the API server refused or that did not reach it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestFailure {
    /// HTTP status; 0 if there was no answer.
    pub code: u16,
    /// How long the API server asked to wait.
    pub retry_after: Option<Duration>,
    /// The cause, in one line.
    pub text: String,
}

impl RequestFailure {
    /// A request that got no answer in this time.
    pub(crate) fn timeout(limit: Duration) -> Self {
        Self { code: 0, retry_after: None, text: format!("no answer within {} s", limit.as_secs()) }
    }
}

/// In one line of limited length: a proxy may answer with a page.
fn line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(TEXT).collect()
}

impl From<&Status> for RequestFailure {
    fn from(status: &Status) -> Self {
        let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        Self {
            code: status.code,
            retry_after: (seconds > 0).then(|| Duration::from_secs(seconds.into())),
            text: match status {
                // What is JSON and nothing else that is expected passes for a Status of which every field is missing.
                Status { code: 0, reason, message, .. } if reason.is_empty() && message.is_empty() => {
                    "an answer that cannot be read".to_owned()
                }
                _ => line(&format!("{} {}: {}", status.code, status.reason, status.message)),
            },
        }
    }
}

impl From<kube::Error> for RequestFailure {
    fn from(error: kube::Error) -> Self {
        if let kube::Error::Api(status) = &error {
            return Self::from(&**status);
        }
        // Each level of the chain repeats the one below, so the innermost says it all.
        let mut cause: &dyn std::error::Error = &error;
        while let Some(source) = cause.source() {
            cause = source;
        }
        Self { code: 0, retry_after: None, text: cause.to_string() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_nothing_of_itself_is_named_all_the_same() {
        let failure = RequestFailure::from(&Status::default());
        assert_eq!((failure.code, failure.text.as_str()), (0, "an answer that cannot be read"));
    }

    #[test]
    fn the_page_of_a_proxy_is_cut_to_a_line() {
        let page = Status { code: 502, message: format!("<html>\n{}", "ä".repeat(100_000)), ..Status::default() };
        let text = RequestFailure::from(&page).text;
        assert!(text.starts_with("502 : <html> ä") && text.chars().count() <= TEXT && !text.contains('\n'), "{text}");
    }
}
