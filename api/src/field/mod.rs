//! Field errors, as `field.Error` of `k8s.io/apimachinery` has them: the path of a field, what is wrong with its value,
//! and the list of all errors about one object.
//!
//! A rule gets the [`Path`] of a field and the list of [`Errors`]:
//!
//! ```
//! use jobset_api::validation::{Errors, Path};
//!
//! let spec = Path::root("spec");
//! let jobs = spec.child("replicatedJobs");
//! let mut errors = Errors::default();
//! errors.invalid(&jobs.index(0).child("replicas"), -1, "must not be negative");
//! assert_eq!(errors.to_string(), "spec.replicatedJobs[0].replicas: Invalid value: -1: must not be negative");
//! ```
//!
//! A rule does not stop at the first error, so that a user can correct a manifest in one step.

mod bounds;
mod error;
mod errors;
mod path;
mod previous;

pub(crate) use bounds::{Bounds, Number};
pub use error::{Error, Reason};
pub use errors::Errors;
pub(crate) use errors::shown;
pub use path::Path;
