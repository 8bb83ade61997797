//! What the controller sees of the election.

use std::time::Instant;

/// Whether this replica leads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leadership {
    /// Another leads, or nobody. Nothing may be written.
    #[default]
    Standby,
    /// This one leads.
    Leading {
        /// Until when, by the own clock, it may write without having renewed the Lease; `None` without an election. A
        /// replica whose machine stood still finds this in the past before it finds out anything else.
        until: Option<Instant>,
    },
}

impl Leadership {
    /// Whether this replica may write.
    pub fn holds(&self, now: Instant) -> bool {
        match self {
            Self::Standby => false,
            Self::Leading { until } => until.is_none_or(|until| now < until),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn leadership_ends_by_itself_when_it_is_not_renewed() {
        let now = Instant::now();
        let leading = Leadership::Leading { until: Some(now + Duration::from_secs(10)) };
        assert!(leading.holds(now + Duration::from_secs(9)));
        assert!(!leading.holds(now + Duration::from_secs(10)));
        assert!(!Leadership::Standby.holds(now));
        assert!(Leadership::Leading { until: None }.holds(now + Duration::from_hours(1)));
    }
}
