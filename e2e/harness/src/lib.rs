//! A real Kubernetes on one machine, for the tests, the demo and the benchmarks that run on it.
//!
//! A test says what it needs, and gets it in seconds once the programs are built (`e2e-cluster programs`, or the first
//! start, builds them):
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use jobset_harness::{Cluster, ControlPlane, images};
//!
//! // etcd, API server, controller manager. Any number of them run side by side.
//! let plane = ControlPlane::start().await?;
//! let client = plane.client();
//! plane.stop().await?;
//!
//! // Two nodes with kubelet, containerd, runc, CNI, kube-proxy, CoreDNS.
//! let cluster = Cluster::start(2).await?;
//! let programs = jobset_harness::programs::rust_binaries().await?;
//! let image = images::build(&images::ImageSpec::new("localhost/worker:test", &programs.worker))?;
//! cluster.load_image(&image).await?;
//! let pods = cluster.kubectl(["get", "pods", "--all-namespaces"]).await?;
//! cluster.stop().await?;
//! # Ok(())
//! # }
//! ```
//!
//! It is Kubernetes 1.36. `KUBERNETES_VERSION=1.37` in the environment, or [`cluster::Options::kubernetes`], chooses 1.37;
//! `KUBELET_VERSION=1.36` beside it, or [`cluster::Options::kubelets`], keeps the kubelets at 1.36.
//!
//! Each cluster has PID, mount and network namespaces of its own. The host reaches the API server and the Pods, and they
//! reach the host at `ready().host_address`. Whatever ends the holder of a cluster ends the cluster, too: nothing stays
//! but the logs below `target/clusters`, unless `stop` was called, which removes them.

pub mod admission;
pub mod chart;
pub mod cluster;
pub mod deps;
pub mod group;
mod http_client;
pub mod images;
pub mod install;
pub mod interrupt;
pub mod journal;
pub mod markdown;
pub mod median;
pub mod order;
pub mod paths;
pub mod process;
pub mod programs;
pub mod progress;
pub mod prometheus;
pub mod relays;
pub mod training;
pub mod wait;
pub mod workload;

pub use cluster::{Cluster, ControlPlane};
