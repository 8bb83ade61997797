//! What is measured of JobSets. Nothing here has an object's name in a label but the two counters that the Go JobSet has,
//! and their series go with their JobSet.

mod clock;
mod labels;
mod ledger;
mod passes;
mod restarts;
#[cfg(test)]
mod tests;

pub(super) use ledger::Ledger;
pub(super) use passes::{Passes, Result as PassResult};
