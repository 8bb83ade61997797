//! What is measured. Labels are enums: nothing that an agent sends becomes one.

use jobset_stream::message::{FromAgent, Kind};
use prometheus::core::{AtomicU64, GenericCounterVec};
use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts, Registry};

use crate::auth::Rejection;
use crate::counted::ByteCounters;
use crate::limits::Limit;

/// Between whom messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    FromAgent,
    ToAgent,
    FromController,
    ToController,
}

impl Direction {
    const ALL: [Self; 4] = [Self::FromAgent, Self::ToAgent, Self::FromController, Self::ToController];

    fn label(self) -> &'static str {
        match self {
            Self::FromAgent => "from_agent",
            Self::ToAgent => "to_agent",
            Self::FromController => "from_controller",
            Self::ToController => "to_controller",
        }
    }

    fn kinds(self) -> Vec<&'static str> {
        match self {
            Self::FromAgent => FromAgent::KINDS.into(),
            Self::ToAgent | Self::FromController => Kind::ALL.map(Kind::label).into(),
            Self::ToController => vec![EVENTS],
        }
    }
}

/// The kind of the messages to controllers.
pub(crate) const EVENTS: &str = "events";

#[derive(Clone, Debug)]
pub struct Metrics {
    pub(crate) agents: IntGauge,
    pub(crate) controllers: IntGauge,
    pub(crate) fallbacks: IntCounter,
    messages: IntCounterVec,
    failed_authentications: IntCounterVec,
    refused_connections: IntCounterVec,
    bytes: IntCounterVec,
}

impl Metrics {
    /// Registers them, each counter with 0: one that appears with its first event shows no increase.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let counters = |name, help, labels: &[&str]| {
            let counters = IntCounterVec::new(Opts::new(name, help), labels)?;
            registry.register(Box::new(counters.clone()))?;
            prometheus::Result::Ok(counters)
        };
        let gauge = |name, help| {
            let gauge = IntGauge::new(name, help)?;
            registry.register(Box::new(gauge.clone()))?;
            prometheus::Result::Ok(gauge)
        };
        let fallbacks = IntCounter::new(
            "jobset_relay_fallbacks_total",
            "Hellos of agents that had lost an earlier connection and relied on the API server since.",
        )?;
        registry.register(Box::new(fallbacks.clone()))?;
        let metrics = Self {
            agents: gauge("jobset_relay_connected_agents", "Agents that are connected and have shown who they are.")?,
            controllers: gauge("jobset_relay_controllers", "Controllers that are connected.")?,
            fallbacks,
            messages: counters(
                "jobset_relay_messages_total",
                "Messages by direction and kind. events: a batch of what agents did.",
                &["direction", "kind"],
            )?,
            failed_authentications: counters(
                "jobset_relay_failed_authentications_total",
                "Agents whose token was rejected, by reason.",
                &["reason"],
            )?,
            refused_connections: counters(
                "jobset_relay_refused_connections_total",
                "Connections that were rejected or closed, by the limit that they met.",
                &["limit"],
            )?,
            bytes: counters(
                "jobset_relay_bytes_total",
                "Bytes of connections, encrypted, by direction.",
                &["direction"],
            )?,
        };
        metrics.begin();
        Ok(metrics)
    }

    fn begin(&self) {
        for direction in Direction::ALL {
            self.bytes.with_label_values(&[direction.label()]);
            for kind in direction.kinds() {
                self.messages.with_label_values(&[direction.label(), kind]);
            }
        }
        for rejection in Rejection::ALL {
            counter(&self.failed_authentications, rejection.label());
        }
        for limit in Limit::ALL {
            counter(&self.refused_connections, limit.label());
        }
    }

    pub(crate) fn message(&self, direction: Direction, kind: &str) {
        self.messages.with_label_values(&[direction.label(), kind]).inc();
    }

    pub(crate) fn rejected(&self, rejection: Rejection) {
        counter(&self.failed_authentications, rejection.label()).inc();
    }

    pub(crate) fn refused(&self, limit: Limit) {
        counter(&self.refused_connections, limit.label()).inc();
    }

    pub(crate) fn bytes(&self, read: Direction, written: Direction) -> ByteCounters {
        ByteCounters { read: counter(&self.bytes, read.label()), written: counter(&self.bytes, written.label()) }
    }
}

fn counter(counters: &GenericCounterVec<AtomicU64>, label: &str) -> IntCounter {
    counters.with_label_values(&[label])
}

#[cfg(test)]
mod tests {
    use prometheus::TextEncoder;

    use super::*;

    #[test]
    fn series_exist_before_their_first_event() {
        let registry = Registry::new();
        let metrics = Metrics::register(&registry).unwrap();
        metrics.message(Direction::FromAgent, "hello");
        metrics.rejected(Rejection::Audience);
        let text = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        for line in [
            "jobset_relay_connected_agents 0",
            "jobset_relay_controllers 0",
            "jobset_relay_fallbacks_total 0",
            r#"jobset_relay_messages_total{direction="from_agent",kind="hello"} 1"#,
            r#"jobset_relay_messages_total{direction="to_agent",kind="beat"} 0"#,
            r#"jobset_relay_failed_authentications_total{reason="audience"} 1"#,
            r#"jobset_relay_refused_connections_total{limit="queue"} 0"#,
            r#"jobset_relay_bytes_total{direction="to_controller"} 0"#,
        ] {
            assert!(text.lines().any(|it| it == line), "{line} in {text}");
        }
    }
}
