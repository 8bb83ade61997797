//! The proofs of the controller: [`simulation`] draws long lives of large JobSets at random, [`model`] walks through every life
//! of a small one. Both check the same properties, and both show with the same mutations that a broken rule is caught.

mod model;
mod mutation;
mod property;
mod simulation;

use mutation::RuleMutation;
use property::{CheckResult, Property, Violation, ensure};
