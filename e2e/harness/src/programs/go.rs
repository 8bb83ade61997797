//! Builds the Go modules of `e2e/cluster`, once for each state of their sources, into `target/cluster-programs`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use super::kubernetes::{Kubernetes, Versions};
use super::{filled, go, locked, short};
use crate::paths;
use crate::progress::progress;

/// Where the programs lie, below the target folder.
const FOLDER: &str = "cluster-programs";

/// How often a running build says how far it is.
const PROGRESS_PERIOD: Duration = Duration::from_secs(15);

/// One Go module below `e2e/cluster`.
pub(super) struct Module {
    name: &'static str,
    packages: &'static [&'static str],
    cgo: bool,
    tags: &'static str,
    /// The version that the components of Kubernetes say they have.
    release: Option<Kubernetes>,
    /// Another module of `e2e/cluster` that has the sources.
    sources: Option<&'static str>,
    /// Names beside the built program [`COMPONENTS`] by which it is called, too.
    links: &'static [&'static str],
}

impl Module {
    /// A module without C code, build tags and further names.
    pub(super) const fn new(name: &'static str, packages: &'static [&'static str]) -> Self {
        Self { name, packages, cgo: false, tags: "", release: None, sources: None, links: &[] }
    }

    const fn kubernetes(version: Kubernetes) -> Self {
        let links = &[
            "etcd",
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
            "kubelet",
            "kube-proxy",
            "kubectl",
        ];
        let module = match version {
            Kubernetes::V1_36 => Self::new(COMPONENTS, &["."]),
            Kubernetes::V1_37 => {
                let module = Self::new("kubernetes-1.37", &["jobset-e2e-cluster/kubernetes"]);
                Self { sources: Some(COMPONENTS), ..module }
            }
        };
        Self { release: Some(version), links, ..module }
    }
}

/// The program of `e2e/cluster/kubernetes/main.go`, which is every component.
const COMPONENTS: &str = "kubernetes";

/// The components of a node; they may have an older version than the control plane.
const NODE_COMPONENTS: [&str; 2] = ["kubelet", "kube-proxy"];

const NODE_MODULES: [Module; 5] = [
    Module {
        tags: "no_btrfs no_devmapper no_zfs",
        ..Module::new(
            "containerd",
            &[
                "github.com/containerd/containerd/v2/cmd/containerd",
                "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
                "github.com/containerd/containerd/v2/cmd/ctr",
            ],
        )
    },
    // runc enters namespaces from C before the Go runtime starts.
    Module { cgo: true, tags: "seccomp", ..Module::new("runc", &["github.com/opencontainers/runc"]) },
    Module::new(
        "cni",
        &[
            "github.com/containernetworking/plugins/plugins/ipam/host-local",
            "github.com/containernetworking/plugins/plugins/main/loopback",
            "github.com/containernetworking/plugins/plugins/main/ptp",
        ],
    ),
    Module::new("coredns", &["."]),
    Module::new("pause", &["."]),
];

const HELM_3: Module = Module::new("helm3", &["helm.sh/helm/v3/cmd/helm"]);
const HELM_4: Module = Module::new("helm", &["helm.sh/helm/v4/cmd/helm"]);

const KUBE_STATE_METRICS: Module = Module::new("kube-state-metrics", &["k8s.io/kube-state-metrics/v2"]);

const CERT_MANAGER: Module = Module::new("cert-manager", &["."]);

const GO_JOBSET: Module =
    Module::new("jobset", &["sigs.k8s.io/jobset", "sigs.k8s.io/jobset/cmd/in-place-restart-agent"]);

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Set {
    /// etcd and the components of Kubernetes, `kubectl` among them.
    ControlPlane,
    /// All of the control plane, and what a node runs.
    Cluster,
}

/// A major version of Helm. The third merges what it installs on its own side, the fourth has the API server apply it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Helm {
    V3,
    V4,
}

#[derive(Clone, Debug)]
pub struct GoPrograms {
    dirs: Vec<PathBuf>,
    /// Where [`NODE_COMPONENTS`] are.
    kubelets: PathBuf,
}

impl GoPrograms {
    pub fn path(&self, name: &str) -> Result<PathBuf> {
        let kubelets = NODE_COMPONENTS.contains(&name).then_some(&self.kubelets);
        kubelets
            .into_iter()
            .chain(&self.dirs)
            .map(|dir| dir.join(name))
            .find(|path| path.exists())
            .with_context(|| format!("no program {name} among the built Go programs"))
    }

    pub fn cni(&self) -> Result<PathBuf> {
        Ok(self.path("host-local")?.parent().map(Path::to_path_buf).unwrap_or_default())
    }

    /// A `PATH` with the programs' folders in front of the caller's.
    pub fn search_path(&self) -> String {
        let own = self.dirs.iter().map(|dir| dir.display().to_string());
        let rest = std::env::var("PATH").unwrap_or_default();
        own.chain(["/usr/sbin:/sbin:/usr/bin:/bin".to_owned(), rest]).collect::<Vec<_>>().join(":")
    }
}

/// Builds what is missing of `set`, telling how far it is on standard error, and returns where the programs lie. The
/// environment names the versions of Kubernetes.
///
/// A second caller waits for the first. A cold build takes about ten minutes on two cores.
pub fn ensure(set: Set) -> Result<GoPrograms> {
    ensure_versions(set, Versions::from_environment()?)
}

/// As [`ensure`], with these versions of Kubernetes.
pub fn ensure_versions(set: Set, versions: Versions) -> Result<GoPrograms> {
    let (root, _lock) = locked(FOLDER)?;
    let control_plane = ensure_module(&root, &Module::kubernetes(versions.control_plane))?;
    if set == Set::ControlPlane {
        return Ok(GoPrograms { kubelets: control_plane.clone(), dirs: vec![control_plane] });
    }
    let kubelets = ensure_module(&root, &Module::kubernetes(versions.kubelets))?;
    let mut dirs = vec![control_plane];
    for module in &NODE_MODULES {
        dirs.push(ensure_module(&root, module)?);
    }
    Ok(GoPrograms { dirs, kubelets })
}

/// Builds Helm if it is missing, as [`ensure`] does, and returns the path of the program.
pub fn ensure_helm(version: Helm) -> Result<PathBuf> {
    let module = match version {
        Helm::V3 => &HELM_3,
        Helm::V4 => &HELM_4,
    };
    Ok(ensure_one(module)?.join("helm"))
}

/// Builds kube-state-metrics if it is missing, as [`ensure`] does, and returns the path of the program.
pub fn ensure_kube_state_metrics() -> Result<PathBuf> {
    Ok(ensure_one(&KUBE_STATE_METRICS)?.join("kube-state-metrics"))
}

/// Builds cert-manager if it is missing, as [`ensure`] does, and returns the path of its program: call it `controller`, `cainjector`
/// or `webhook`.
pub fn ensure_cert_manager() -> Result<PathBuf> {
    Ok(ensure_one(&CERT_MANAGER)?.join("cert-manager"))
}

#[derive(Clone, Debug)]
pub struct GoJobSetPrograms {
    /// The manager: controller and webhook in one.
    pub manager: PathBuf,
    /// The agent of in-place restarts.
    pub agent: PathBuf,
}

/// Builds the Go JobSet if it is missing, as [`ensure`] does, and returns the paths of its programs.
pub fn ensure_go_jobset() -> Result<GoJobSetPrograms> {
    let dir = ensure_one(&GO_JOBSET)?;
    Ok(GoJobSetPrograms { manager: dir.join("jobset"), agent: dir.join("in-place-restart-agent") })
}

/// Builds a module if it is missing, as [`ensure`] does, and returns the folder of its programs.
pub(super) fn ensure_one(module: &Module) -> Result<PathBuf> {
    let (root, _lock) = locked(FOLDER)?;
    ensure_module(&root, module)
}

fn ensure_module(root: &Path, module: &Module) -> Result<PathBuf> {
    let modules = paths::workspace().join("e2e/cluster");
    let source = modules.join(module.name);
    let folders: Vec<PathBuf> =
        std::iter::once(source.clone()).chain(module.sources.map(|name| modules.join(name))).collect();
    filled(root, module.name, &source_hash(&folders, module)?, |building| {
        build(&source, module, building)?;
        module.links.iter().try_for_each(|link| Ok(symlink(COMPONENTS, building.join(link))?))
    })
}

/// What each Go build of the harness shares: the programs are stripped, so the compiler writes no debug information.
///
/// The Go JobSet's suites are built with the same arguments: the build cache then has the packages of both.
pub const GO_BUILD_ARGS: [&str; 4] = ["-trimpath", "-buildvcs=false", "-mod=readonly", "-gcflags=all=-dwarf=false"];

fn build_args(module: &Module) -> Vec<String> {
    let mut flags = "-s -w".to_owned();
    if let Some(version) = module.release {
        let (major, minor) = version.minor().split_once('.').unwrap_or_default();
        for (variable, value) in [("gitVersion", version.release()), ("gitMajor", major), ("gitMinor", minor)] {
            flags.extend([" -X k8s.io/component-base/version.", variable, "=", value]);
        }
    }
    let mut args: Vec<String> = ["build", "-v"].into_iter().chain(GO_BUILD_ARGS).map(Into::into).collect();
    if !module.tags.is_empty() {
        args.extend(["-tags".to_owned(), module.tags.to_owned()]);
    }
    args.extend(["-ldflags".to_owned(), flags]);
    args
}

fn build(source: &Path, module: &Module, out: &Path) -> Result<()> {
    progress(&format!("building {} (only when its sources changed)", module.name));
    let start = Instant::now();
    let mut child = go(module.cgo)
        .args(build_args(module))
        .arg("-o")
        .arg(format!("{}/", out.display()))
        .args(module.packages)
        .current_dir(source)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("cannot run go: install Go 1.26 or newer (https://go.dev/dl) and put it on the PATH")?;
    let stderr = child.stderr.take().context("the compiler's output is not captured")?;
    let mut said = Instant::now();
    let (mut downloads, mut packages) = (0, 0);
    let mut last = std::collections::VecDeque::new();
    for line in BufReader::new(stderr).lines() {
        let line = line.unwrap_or_default();
        if line.starts_with("go: downloading") {
            downloads += 1;
        } else {
            packages += 1;
        }
        last.push_back(line);
        if last.len() > 20 {
            last.pop_front();
        }
        if said.elapsed() >= PROGRESS_PERIOD {
            said = Instant::now();
            let seconds = start.elapsed().as_secs();
            progress(&format!(
                "{}: {downloads} modules downloaded, {packages} packages compiled, {seconds} s",
                module.name
            ));
        }
    }
    let status = child.wait().context("cannot wait for go")?;
    if !status.success() {
        let tail = Vec::from(last).join("\n");
        bail!("go build of e2e/cluster/{} ended with {status}; its last lines:\n{tail}", module.name);
    }
    progress(&format!("built {} in {:.0} s", module.name, start.elapsed().as_secs_f64()));
    Ok(())
}

/// A hash over all that decides the outcome of a build: the folders of the sources and dependencies, the flags.
fn source_hash(folders: &[PathBuf], module: &Module) -> Result<String> {
    let mut files = Vec::new();
    for folder in folders {
        let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
        files.extend(entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).filter(|path| path.is_file()));
    }
    files.sort();
    let mut hash = Sha256::new();
    for file in files {
        hash.update(file.file_name().unwrap_or_default().as_encoded_bytes());
        hash.update([0]);
        hash.update(fs::read(&file).with_context(|| format!("cannot read {}", file.display()))?);
    }
    for word in build_args(module).iter().map(String::as_str).chain(module.packages.iter().copied()) {
        hash.update(word);
        hash.update([0]);
    }
    hash.update(module.links.join(" "));
    Ok(short(hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A component says the version that its module has.
    #[test]
    fn releases_are_those_of_the_modules() {
        for version in Kubernetes::ALL {
            let path = paths::workspace().join("e2e/cluster").join(Module::kubernetes(version).name).join("go.mod");
            let module = fs::read_to_string(&path).unwrap();
            let wanted = format!("k8s.io/kubernetes {}", version.release());
            assert!(module.lines().any(|line| line.trim().starts_with(&wanted)), "{}: no {wanted}", path.display());
        }
    }

    #[test]
    fn node_components_come_from_the_folder_of_the_kubelets() {
        let root = tempfile::tempdir().unwrap();
        let [control_plane, kubelets] = ["control-plane", "kubelets"].map(|name| root.path().join(name));
        for folder in [&control_plane, &kubelets] {
            fs::create_dir(folder).unwrap();
            for program in ["kubelet", "kube-proxy", "kube-apiserver", "kubectl"] {
                fs::write(folder.join(program), "").unwrap();
            }
        }
        let programs = GoPrograms { dirs: vec![control_plane.clone()], kubelets: kubelets.clone() };
        let folder = |name| programs.path(name).unwrap().parent().unwrap().to_path_buf();
        assert_eq!(["kubelet", "kube-proxy"].map(folder), [kubelets.clone(), kubelets]);
        assert_eq!(["kube-apiserver", "kubectl"].map(folder), [control_plane.clone(), control_plane]);
    }
}
