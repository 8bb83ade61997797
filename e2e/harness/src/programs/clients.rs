//! Programs of projects that make JobSets for others, from their Go modules.

use std::path::PathBuf;

use anyhow::Result;

use super::go::{Module, ensure_one};

/// The manager of Kueue, and the image's program that its suites run in Pods.
const KUEUE: Module = Module::new("kueue", &["sigs.k8s.io/kueue/cmd/kueue", "k8s.io/kubernetes/test/images/agnhost"]);

const TRAINER: Module = Module::new("trainer", &["github.com/kubeflow/trainer/v2/cmd/trainer-controller-manager"]);

#[derive(Clone, Debug)]
pub struct KueuePrograms {
    /// `kueue`, the manager: controllers and webhooks in one.
    pub manager: PathBuf,
    /// `agnhost`, the test program of Kubernetes.
    pub agnhost: PathBuf,
}

/// Builds Kueue if it is missing, as [`super::ensure`] does, and returns the paths of its programs.
pub fn ensure_kueue() -> Result<KueuePrograms> {
    let dir = ensure_one(&KUEUE)?;
    Ok(KueuePrograms { manager: dir.join("kueue"), agnhost: dir.join("agnhost") })
}

/// Builds Trainer if it is missing, as [`super::ensure`] does, and returns the path of its manager.
pub fn ensure_trainer() -> Result<PathBuf> {
    Ok(ensure_one(&TRAINER)?.join("trainer-controller-manager"))
}
