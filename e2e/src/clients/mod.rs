//! Those who make JobSets for others, in a test cluster: their own managers, installed by their own manifests.

pub mod kueue;
pub mod trainer;
