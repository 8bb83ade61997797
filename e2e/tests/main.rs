//! The integration tests of the harness, and of JobSet on a real Kubernetes.
