//! A failed request to the API server, as the agent logs it and retries it.

use std::time::Duration;

use kube::core::Status;

/// Longest cause that is written to the log, in characters.
const MAX_CAUSE: usize = 300;

/// A request that the API server rejected, or that got no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestFailure {
    /// HTTP status; 0 if there was no answer.
    pub code: u16,
    /// The wait that the API server asked for.
    pub retry_after: Option<Duration>,
    /// The cause, in one line.
    pub text: String,
}

impl RequestFailure {
    /// A request that got no answer within this time.
    pub(crate) fn timeout(limit: Duration) -> Self {
        Self { code: 0, retry_after: None, text: format!("no answer within {} s", limit.as_secs()) }
    }

    /// What a person can do about it, where the request is forbidden or its object is not found.
    pub(crate) fn advice(&self, forbidden: &'static str, not_found: &'static str) -> &'static str {
        match self.code {
            401 => "check the Pod's ServiceAccount token",
            403 => forbidden,
            404 => not_found,
            _ => "retrying",
        }
    }
}

/// The text in one line of limited length: a proxy may answer with a page of HTML.
fn one_line(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(MAX_CAUSE).collect()
}

impl From<&Status> for RequestFailure {
    fn from(status: &Status) -> Self {
        let seconds = status.details.as_ref().map_or(0, |details| details.retry_after_seconds);
        Self {
            code: status.code,
            retry_after: (seconds > 0).then(|| Duration::from_secs(seconds.into())),
            text: match status {
                // JSON of another kind decodes to a Status without any field.
                Status { code: 0, reason, message, .. } if reason.is_empty() && message.is_empty() => {
                    "the answer is not a Status".to_owned()
                }
                _ => one_line(&format!("{} {}: {}", status.code, status.reason, status.message)),
            },
        }
    }
}

impl From<kube::Error> for RequestFailure {
    fn from(error: kube::Error) -> Self {
        if let kube::Error::Api(status) = &error {
            return Self::from(&**status);
        }
        // Each error of the chain repeats its source in its own text, so the innermost error is the complete cause.
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
    fn status_without_fields_gets_a_cause() {
        let failure = RequestFailure::from(&Status::default());
        assert_eq!((failure.code, failure.text.as_str()), (0, "the answer is not a Status"));
    }

    #[test]
    fn page_of_a_proxy_is_cut_to_one_line() {
        let page = Status { code: 502, message: format!("<html>\n{}", "ä".repeat(100_000)), ..Status::default() };
        let text = RequestFailure::from(&page).text;
        assert!(
            text.starts_with("502 : <html> ä") && text.chars().count() <= MAX_CAUSE && !text.contains('\n'),
            "{text}"
        );
    }
}
