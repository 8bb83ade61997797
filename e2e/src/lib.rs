//! A real Kubernetes on one machine, and the tests, demo and benchmarks that run on it.
