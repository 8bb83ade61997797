//! What a release has beside its programs: their images, and the notices of what is linked into them.
//!
//! Tests, demo and benchmarks build the images that they run by the same code.

mod architecture;
mod archive;
pub mod image;
pub mod notices;
pub mod paths;
mod repository;

pub use architecture::Architecture;
pub use repository::Repository;
