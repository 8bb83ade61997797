//! Event reasons of the Go JobSet. Other programs watch for them.

/// A Job could not be created: the API server refuses it, or another object has its name.
pub const JOB_CREATION_FAILED: &str = "JobCreationFailed";
/// The headless Service could not be created.
pub const HEADLESS_SERVICE_CREATION_FAILED: &str = "HeadlessServiceCreationFailed";
/// A PersistentVolumeClaim could not be created.
pub const PVC_CREATION_FAILED: &str = "PVCCreationFailed";
