//! How often something may happen: a message on a connection, a token review.

use tokio::time::Instant;

/// Permits a rate, and a number at once.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    tokens: f64,
    at: Instant,
}

impl TokenBucket {
    pub fn full(burst: f64, now: Instant) -> Self {
        Self { tokens: burst, at: now }
    }

    pub fn take(&mut self, rate: f64, burst: f64, now: Instant) -> bool {
        self.fill(rate, burst, now);
        let has_one = self.tokens >= 1.0;
        if has_one {
            self.tokens -= 1.0;
        }
        has_one
    }

    /// Whether nothing was taken for long.
    pub fn is_full(&mut self, rate: f64, burst: f64, now: Instant) -> bool {
        self.fill(rate, burst, now);
        self.tokens >= burst
    }

    fn fill(&mut self, rate: f64, burst: f64, now: Instant) {
        let elapsed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + elapsed * rate).min(burst);
        self.at = now;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn bucket_permits_burst_then_rate() {
        let now = Instant::now();
        let mut bucket = TokenBucket::full(20.0, now);
        let mut taken = |at| (0..100).filter(|_| bucket.take(10.0, 20.0, at)).count();
        assert_eq!(taken(now), 20);
        assert_eq!(taken(now + Duration::from_millis(510)), 5);
        assert_eq!(taken(now + Duration::from_mins(1)), 20);
    }
}
