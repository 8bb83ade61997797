//! How often the agents of a Pod say hello. Each hello costs the leader a part of a read of the JobSet.

use std::collections::HashMap;

use jobset_stream::rate::TokenBucket;
use tokio::time::Instant;

use crate::limits::{HELLO_BURST, HELLO_RATE};

/// Least number of Pods at which those that have been quiet are looked for.
const LEAST_SWEEP: usize = 1024;

/// The Pods that have said hello lately.
#[derive(Debug, Default)]
pub(crate) struct Hellos {
    pods: HashMap<String, TokenBucket>,
    /// Number of Pods at which quiet ones are forgotten next.
    sweep: usize,
}

impl Hellos {
    /// Whether the Pod with this UID may say hello now.
    pub(crate) fn permit(&mut self, pod_uid: &str, now: Instant) -> bool {
        if self.pods.len() >= self.sweep.max(LEAST_SWEEP) {
            self.pods.retain(|_, bucket| !bucket.is_full(HELLO_RATE, HELLO_BURST, now));
            self.sweep = 2 * self.pods.len();
        }
        let bucket = self.pods.entry(pod_uid.to_owned()).or_insert_with(|| TokenBucket::full(HELLO_BURST, now));
        bucket.take(HELLO_RATE, HELLO_BURST, now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn pod_with_too_many_hellos_waits_alone() {
        let (mut hellos, now) = (Hellos::default(), Instant::now());
        let permitted = (0..100).filter(|_| hellos.permit("a", now)).count();
        assert_eq!(permitted, 10);
        assert!(hellos.permit("b", now));
        assert!(hellos.permit("a", now + Duration::from_secs(1)));
        assert!(!hellos.permit("a", now + Duration::from_secs(1)));
    }

    #[test]
    fn quiet_pods_are_forgotten() {
        let (mut hellos, now) = (Hellos::default(), Instant::now());
        for second in 0..100 {
            for pod in 0..100 {
                assert!(hellos.permit(&format!("{second}-{pod}"), now + Duration::from_secs(second)));
            }
        }
        assert!(hellos.pods.len() < 2 * LEAST_SWEEP, "{}", hellos.pods.len());
    }
}
