//! The metrics of JobSets. By default, only the three counters that the Go JobSet has as well carry the name of an object in a
//! label. Their series begin when their JobSet finishes, and end with it. [`ObjectMetrics`] are optional.

mod clock;
mod labels;
mod ledger;
mod nodes;
mod objects;
mod reconciliations;
mod restarts;
#[cfg(test)]
mod scrape;
mod stalls;
#[cfg(test)]
mod tests;

use prometheus::Registry;
use prometheus::core::Collector;

pub(super) use ledger::Ledger;
pub(super) use nodes::NodeMetrics;
pub(super) use objects::ObjectMetrics;
pub(super) use reconciliations::Reconciliations;

pub(super) fn registered<M>(registry: &Registry, metric: prometheus::Result<M>) -> prometheus::Result<M>
where
    M: Collector + Clone + 'static,
{
    let metric = metric?;
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}
