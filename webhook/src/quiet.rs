//! What the log tells of clients, and of how many it does not: whoever asks for nonsense without end fills no disk.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Of one source, so many messages are logged in each span of time.
const BURST: u32 = 10;
const SPAN: Duration = Duration::from_secs(10);
/// Sources that are told apart. Any more share the messages of one.
const SOURCES: usize = 256;
/// The one that they share.
const OTHERS: &str = "others";

/// Messages by the source that caused them.
#[derive(Debug, Default)]
pub(crate) struct Quiet(Mutex<HashMap<String, Told>>);

/// What was told of one source.
#[derive(Clone, Copy, Debug)]
struct Told {
    since: Instant,
    logged: u32,
    untold: u64,
}

static LOG: LazyLock<Quiet> = LazyLock::new(Quiet::default);

/// Whether one more message that this source has caused is logged; and if so, how many were not since the last one.
pub(crate) fn tells(source: &str) -> Option<u64> {
    LOG.tells(source, Instant::now())
}

impl Quiet {
    fn tells(&self, source: &str, now: Instant) -> Option<u64> {
        let mut sources = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sources.len() >= SOURCES && !sources.contains_key(source) {
            sources.retain(|_, it| now < it.since + SPAN);
        }
        let source = if sources.len() >= SOURCES && !sources.contains_key(source) { OTHERS } else { source };
        let it = sources.entry(source.to_owned()).or_insert(Told { since: now, logged: 0, untold: 0 });
        if now >= it.since + SPAN {
            (it.since, it.logged) = (now, 0);
        }
        if it.logged == BURST {
            it.untold += 1;
            return None;
        }
        it.logged += 1;
        Some(std::mem::take(&mut it.untold))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_flood_the_first_are_told_and_later_how_many_there_were() {
        let (log, now) = (Quiet::default(), Instant::now());
        let told = (0..1000).filter(|_| log.tells("ml", now).is_some()).count();
        assert_eq!(told, BURST as usize);
        assert_eq!(log.tells("other", now), Some(0), "each source has messages of its own");
        assert_eq!(log.tells("ml", now + SPAN), Some(1000 - u64::from(BURST)));
        assert_eq!(log.tells("ml", now + SPAN), Some(0));
    }

    #[test]
    fn invented_sources_share_the_messages_of_one() {
        let (log, now) = (Quiet::default(), Instant::now());
        let told = (0..100_000).filter(|number| log.tells(&number.to_string(), now).is_some()).count();
        assert_eq!(told, SOURCES + BURST as usize);
        assert!(log.0.lock().unwrap().len() <= SOURCES + 1);
        assert_eq!(log.tells("new", now + SPAN), Some(0), "those that have fallen silent are forgotten");
    }
}
