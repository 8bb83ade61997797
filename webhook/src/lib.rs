//! The JobSet admission service.
