//! Metrics of the stream: `jobset_stream_relays`, `jobset_stream_agents`, `jobset_stream_reports_total`,
//! `jobset_stream_answers_total`, `jobset_stream_broadcasts_total` and `jobset_stream_reads_total`.

use jobset_engine::StreamCounts;
use prometheus::{IntCounter, IntGauge, Registry};

use crate::shell::metrics::registered;

pub(super) struct StreamMetrics {
    relays: IntGauge,
    agents: IntGauge,
    reports: IntCounter,
    answers: IntCounter,
    broadcasts: IntCounter,
    reads: IntCounter,
}

impl StreamMetrics {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<Self> {
        let gauge = |name, help| registered(registry, IntGauge::new(name, help));
        let counter = |name, help| registered(registry, IntCounter::new(name, help));
        Ok(Self {
            relays: gauge(
                "jobset_stream_relays",
                "Relays that this replica is connected to; only the leader connects.",
            )?,
            agents: gauge("jobset_stream_agents", "Agents that are connected to these relays.")?,
            reports: counter("jobset_stream_reports_total", "Reports of agents that came over the stream.")?,
            answers: counter("jobset_stream_answers_total", "Answers to agents that have connected.")?,
            broadcasts: counter(
                "jobset_stream_broadcasts_total",
                "States of JobSets that were sent to relays, once for each relay with agents of the JobSet.",
            )?,
            reads: counter(
                "jobset_stream_reads_total",
                "Reads of JobSets for agents that have connected; one read answers all that wait for it.",
            )?,
        })
    }

    pub(super) fn set(&self, counts: StreamCounts) {
        let StreamCounts { relays, agents, reports, answers, broadcasts, reads } = counts;
        self.relays.set(relays.try_into().unwrap_or(i64::MAX));
        self.agents.set(agents.try_into().unwrap_or(i64::MAX));
        let totals =
            [(&self.reports, reports), (&self.answers, answers), (&self.broadcasts, broadcasts), (&self.reads, reads)];
        for (counter, total) in totals {
            counter.inc_by(total.saturating_sub(counter.get()));
        }
    }
}
