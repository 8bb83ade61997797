//! The JobSet controller.
