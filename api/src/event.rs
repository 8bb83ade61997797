//! Reasons of Events that the Go JobSet gives, too: others watch for them.

/// A Job could not be created: the API server refuses it, or its name is taken.
pub const JOB_CREATION_FAILED: &str = "JobCreationFailed";
/// The headless Service could not be created.
pub const HEADLESS_SERVICE_CREATION_FAILED: &str = "HeadlessServiceCreationFailed";
/// A PersistentVolumeClaim could not be created.
pub const PVC_CREATION_FAILED: &str = "PVCCreationFailed";
