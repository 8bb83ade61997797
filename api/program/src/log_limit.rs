//! Limits how many messages one client can cause in the log, so that a flood of bad requests fills no disk. The next message
//! says how many were suppressed.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Of one source, so many messages are logged in each span of time.
const BURST: u32 = 10;
const SPAN: Duration = Duration::from_secs(10);
/// Number of sources with a limit of their own. All others share one limit.
const SOURCES: usize = 256;
/// The source that they share.
const OTHERS: &str = "others";
/// Longest name of a source with a limit of its own, in bytes: that of a namespace (RFC 1123). A name may come from a request.
const SOURCE_LENGTH: usize = 63;
/// Longest text of a request in a message, in bytes: as in an Event.
const TEXT_LENGTH: usize = 1024;

/// Messages by the source that caused them.
#[derive(Debug, Default)]
struct LogLimit(Mutex<HashMap<String, Messages>>);

/// The messages of one source since the beginning of a span.
#[derive(Clone, Copy, Debug)]
struct Messages {
    since: Instant,
    logged: u32,
    suppressed: u64,
}

static LOG: LazyLock<LogLimit> = LazyLock::new(LogLimit::default);

/// Permits one more message that this source has caused, with the number of messages suppressed since the last one.
pub fn permit(source: &str) -> Option<u64> {
    LOG.permit(source, Instant::now())
}

/// As much of a text that comes from a request as is logged.
pub fn beginning(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_LENGTH)]
}

impl LogLimit {
    fn permit(&self, source: &str, now: Instant) -> Option<u64> {
        let mut sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sources.len() >= SOURCES && !sources.contains_key(source) {
            sources.retain(|_, it| now < it.since + SPAN);
        }
        let is_one_of_many = sources.len() >= SOURCES && !sources.contains_key(source);
        let source = if source.len() > SOURCE_LENGTH || is_one_of_many { OTHERS } else { source };
        let it = sources.entry(source.to_owned()).or_insert(Messages { since: now, logged: 0, suppressed: 0 });
        if now >= it.since + SPAN {
            (it.since, it.logged) = (now, 0);
        }
        if it.logged == BURST {
            it.suppressed += 1;
            return None;
        }
        it.logged += 1;
        Some(std::mem::take(&mut it.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flood_is_suppressed_and_then_counted() {
        let (log, now) = (LogLimit::default(), Instant::now());
        let permitted = (0..1000).filter(|_| log.permit("ml", now).is_some()).count();
        assert_eq!(permitted, BURST as usize);
        assert_eq!(log.permit("other", now), Some(0), "each source has messages of its own");
        assert_eq!(log.permit("ml", now + SPAN), Some(1000 - u64::from(BURST)));
        assert_eq!(log.permit("ml", now + SPAN), Some(0));
    }

    #[test]
    fn invented_sources_share_one_limit() {
        let (log, now) = (LogLimit::default(), Instant::now());
        let permitted = (0..100_000).filter(|number| log.permit(&number.to_string(), now).is_some()).count();
        assert_eq!(permitted, SOURCES + BURST as usize);
        assert!(log.0.lock().unwrap().len() <= SOURCES + 1);
        assert_eq!(log.permit("new", now + SPAN), Some(0), "silent sources are forgotten");
    }

    #[test]
    fn sources_of_no_possible_namespace_share_one_limit() {
        let (log, now) = (LogLimit::default(), Instant::now());
        let permitted = (0..100).filter(|number| log.permit(&format!("{number:64}"), now).is_some()).count();
        assert_eq!(permitted, BURST as usize);
        assert_eq!(log.0.lock().unwrap().keys().collect::<Vec<_>>(), [OTHERS]);
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(beginning("train"), "train");
        assert_eq!(beginning(&format!("a{}", "é".repeat(1000))), format!("a{}", "é".repeat(511)));
    }
}
