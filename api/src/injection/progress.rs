//! The file by which workers tell their agent of progress. It is in an in-memory volume that both mount, so that it needs no
//! writable root and no user of its own.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, EmptyDirVolumeSource, PodSpec, Volume, VolumeMount};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use super::environment;
use crate::agent::{DEFAULT_PROGRESS_FILE, PROGRESS_FILE, STALL_AFTER, STALL_FIRST};
use crate::field::{Errors, Path};
use crate::{JobSet, StallAfter};

const NAME_TAKEN: &str = "must not be the name of a volume that is no emptyDir: the worker tells its agent of progress in one of \
                          this name. Give the volume another name";

const VOLUME: &str = "jobset-progress";
const FOLDER: &str = "/var/run/jobset-progress";
/// Room for a file of one line.
const SIZE: &str = "1Mi";

/// For how long workers may make no progress, as agents are told. Without a time, agents report steps and no stall.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StallSettings {
    after: Option<String>,
    first: Option<String>,
}

impl StallSettings {
    /// What the annotations of the JobSet ask for. `None` if nobody asks for progress.
    pub(super) fn of(jobset: &JobSet) -> Option<Self> {
        let after = jobset.stall_after().map(|after| match after {
            StallAfter::Auto => "auto".to_owned(),
            StallAfter::After(after) => seconds(after),
        });
        let first = jobset.stall_first().filter(|_| after.is_some()).map(seconds);
        (after.is_some() || jobset.max_restarts_without_progress().is_some()).then_some(Self { after, first })
    }

    /// Any values: those of a Pod that is stored are restored.
    pub(crate) fn any() -> Self {
        Self { after: Some(String::new()), first: Some(String::new()) }
    }

    /// Tells the agent what it has to look at.
    pub(super) fn tell(&self, agent: &mut Container) {
        let_tell(agent);
        for (name, value) in [(STALL_AFTER, &self.after), (STALL_FIRST, &self.first)] {
            if let Some(value) = value {
                environment::add(agent, environment::with_value(name, value.clone()));
            }
        }
    }
}

/// A duration, as agents read it.
fn seconds(duration: Duration) -> String {
    format!("{}s", duration.as_millis().div_ceil(1000))
}

/// Gives a container the file, unless it names another one.
pub(super) fn let_tell(container: &mut Container) {
    environment::add(container, environment::with_value(PROGRESS_FILE, DEFAULT_PROGRESS_FILE.to_owned()));
    let mounts = container.volume_mounts.get_or_insert_default();
    let is_taken = |mount: &VolumeMount| mount.name == VOLUME || mount.mount_path.trim_end_matches('/') == FOLDER;
    if !mounts.iter().any(is_taken) {
        mounts.push(VolumeMount { name: VOLUME.to_owned(), mount_path: FOLDER.to_owned(), ..VolumeMount::default() });
    }
}

/// Index of a volume with this name that is not an emptyDir.
pub(crate) fn other_volume(pod: &PodSpec) -> Option<usize> {
    pod.volumes.iter().flatten().position(|volume| volume.name == VOLUME && volume.empty_dir.is_none())
}

/// Rejects a volume with this name that is not an emptyDir.
pub(super) fn check(pod: &PodSpec, path: &Path<'_>, errors: &mut Errors) {
    if let Some(index) = other_volume(pod) {
        errors.invalid(&path.child("volumes").index(index).child("name"), VOLUME, NAME_TAKEN);
    }
}

pub(super) fn add_volume(pod: &mut PodSpec) {
    let volumes = pod.volumes.get_or_insert_default();
    if volumes.iter().all(|volume| volume.name != VOLUME) {
        let empty_dir = Some(EmptyDirVolumeSource {
            medium: Some("Memory".to_owned()),
            size_limit: Some(Quantity(SIZE.to_owned())),
            ..EmptyDirVolumeSource::default()
        });
        volumes.push(Volume { name: VOLUME.to_owned(), empty_dir, ..Volume::default() });
    }
}
