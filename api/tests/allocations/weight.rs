//! The weight of a specification is near to the memory that it takes.

use jobset_api::{JobSetSpec, weight};

use crate::jobsets::ALL;
use jobset_allocations::counted;

#[test]
fn weight_is_near_the_memory_that_is_taken() {
    for (what, make) in ALL {
        let json = make(3000)["spec"].to_string();
        let (read, allocations) = counted(|| weight::read::<JobSetSpec>(&json, usize::MAX).unwrap());
        let (weight, held) = (read.weight, allocations.held.unsigned_abs());
        let is_near = weight * 4 / 3 + 4096 >= held && held * 3 / 2 + 4096 >= weight;
        assert!(is_near, "{what}: weight {weight}, memory {held}");
    }
}
