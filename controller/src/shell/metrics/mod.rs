//! What is measured of JobSets. Unless it is asked for ([`ObjectMetrics`]), nothing here has an object's name in a label but the
//! two counters that the Go JobSet has: their series come when their JobSet finishes, and go with it.

mod clock;
mod labels;
mod ledger;
mod objects;
mod reconciliations;
mod restarts;
#[cfg(test)]
mod scrape;
#[cfg(test)]
mod tests;

pub(super) use ledger::Ledger;
pub(super) use objects::ObjectMetrics;
pub(super) use reconciliations::Reconciliations;
