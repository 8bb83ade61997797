//! The JobSet in-place restart agent.
