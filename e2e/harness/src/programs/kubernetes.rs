//! Which Kubernetes the test clusters run: the releases that `e2e/cluster` pins, and the variables that choose among them.

use std::env::VarError;

use anyhow::{Context, Result, bail, ensure};

/// Names the minor version of the control plane, and of the kubelets unless [`KUBELETS`] names another. Default: 1.36.
const CONTROL_PLANE: &str = "KUBERNETES_VERSION";
/// Names the minor version of kubelets and kube-proxy.
const KUBELETS: &str = "KUBELET_VERSION";

/// A minor version of Kubernetes that the harness builds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kubernetes {
    #[default]
    V1_36,
    V1_37,
}

impl Kubernetes {
    pub(super) const ALL: [Self; 2] = [Self::V1_36, Self::V1_37];

    /// The release, which the folder's `go.mod` names. The components reject each other without it.
    pub fn release(self) -> &'static str {
        match self {
            Self::V1_36 => "v1.36.3",
            Self::V1_37 => "v1.37.2",
        }
    }

    /// The minor version in the words of [`CONTROL_PLANE`].
    pub fn minor(self) -> &'static str {
        match self {
            Self::V1_36 => "1.36",
            Self::V1_37 => "1.37",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// Version of API server, controller manager, scheduler and `kubectl`, and the release's etcd.
    pub control_plane: Kubernetes,
    /// Version of kubelets and kube-proxy: at most the control plane's.
    pub kubelets: Kubernetes,
}

impl Versions {
    /// The versions that the environment names: `KUBERNETES_VERSION` and `KUBELET_VERSION`.
    ///
    /// # Errors
    /// When a variable names no version that the harness builds, or kubelets that are newer than the API server.
    pub fn from_environment() -> Result<Self> {
        Self::new(named(CONTROL_PLANE)?.unwrap_or_default(), named(KUBELETS)?)
    }

    /// A control plane, with kubelets of its version or of an older one.
    fn new(control_plane: Kubernetes, kubelets: Option<Kubernetes>) -> Result<Self> {
        let kubelets = kubelets.unwrap_or(control_plane);
        ensure!(
            kubelets <= control_plane,
            "kubelets of Kubernetes {} are newer than the API server's {}, which no release of Kubernetes supports: choose \
             older kubelets with {KUBELETS}, or a newer API server with {CONTROL_PLANE}",
            kubelets.minor(),
            control_plane.minor()
        );
        Ok(Self { control_plane, kubelets })
    }
}

fn named(variable: &str) -> Result<Option<Kubernetes>> {
    match std::env::var(variable) {
        Ok(value) => parsed(variable, &value),
        Err(VarError::NotPresent) => Ok(None),
        Err(error) => Err(error).with_context(|| format!("cannot read {variable}")),
    }
}

/// A variable's value; an empty one is as good as none.
fn parsed(variable: &str, value: &str) -> Result<Option<Kubernetes>> {
    if value.is_empty() {
        return Ok(None);
    }
    let found = Kubernetes::ALL.into_iter().find(|version| version.minor() == value);
    let Some(version) = found else {
        bail!("{variable} is {value:?}: it can be {}, or absent", Kubernetes::ALL.map(Kubernetes::minor).join(" or "));
    };
    Ok(Some(version))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::Kubernetes::{V1_36, V1_37};
    use super::*;

    #[rstest]
    #[case::absent("", Ok(None))]
    #[case::older("1.36", Ok(Some(V1_36)))]
    #[case::newer("1.37", Ok(Some(V1_37)))]
    #[case::unknown("1.35", Err("KUBERNETES_VERSION is \"1.35\": it can be 1.36 or 1.37, or absent"))]
    #[case::release("v1.37.2", Err("KUBERNETES_VERSION is \"v1.37.2\": it can be 1.36 or 1.37, or absent"))]
    fn variable_names_a_minor_version(#[case] value: &str, #[case] expected: Result<Option<Kubernetes>, &str>) {
        let found = parsed(CONTROL_PLANE, value).map_err(|error| error.to_string());
        assert_eq!(found, expected.map_err(str::to_owned));
    }

    #[rstest]
    #[case::same(V1_37, None, Some(V1_37))]
    #[case::older(V1_37, Some(V1_36), Some(V1_36))]
    #[case::newer(V1_36, Some(V1_37), None)]
    fn kubelets_are_at_most_as_new_as_the_api_server(
        #[case] control_plane: Kubernetes,
        #[case] kubelets: Option<Kubernetes>,
        #[case] expected: Option<Kubernetes>,
    ) {
        assert_eq!(Versions::new(control_plane, kubelets).ok().map(|versions| versions.kubelets), expected);
    }
}
