//! How much memory a review may take.
//!
//! What is read may be anything: the API server compares an object with its schema after the webhooks.

use crate::limits::LARGE;

/// Most bytes that the objects of a review may take. An object of ordinary size takes a hundredth of it.
pub(crate) const BUDGET: usize = 16 << 20;
/// The same of a large one, of which there is one at a time ([`crate::limits`]). An object of the 1.5 MiB that etcd stores
/// takes less than half of it even if it is made of nothing but short variables of the environment; an update has two.
const LARGE_BUDGET: usize = 48 << 20;

pub(crate) fn budget(length: usize) -> usize {
    if length > LARGE { LARGE_BUDGET } else { BUDGET }
}
