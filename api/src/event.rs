//! Event reasons of the Go JobSet. Other programs watch for them.

/// A Job could not be created: the API server refuses it, or another object has its name.
pub const JOB_CREATION_FAILED: &str = "JobCreationFailed";
/// The headless Service could not be created.
pub const HEADLESS_SERVICE_CREATION_FAILED: &str = "HeadlessServiceCreationFailed";
/// A PersistentVolumeClaim could not be created.
pub const PVC_CREATION_FAILED: &str = "PVCCreationFailed";
/// The API server refuses to resume a Job with the resources that the JobSet's template has now (KEP-1150).
pub const FAILED_RESOURCE_PROPAGATION: &str = "FailedResourcePropagation";
