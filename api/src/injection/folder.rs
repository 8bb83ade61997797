//! The volume that the containers of a Pod share with the agent, for its binary or for the epoch file.

use k8s_openapi::api::core::v1::{Container, EmptyDirVolumeSource, PodSpec, Volume, VolumeMount};

use crate::field::{Errors, Path};

const NAME_TAKEN: &str = "must not be the name of a volume that is no emptyDir: the agent shares one of this name with the \
                          worker. Give the volume another name";

pub(super) const VOLUME: &str = "jobset-agent";
pub(super) const PATH: &str = "/var/run/jobset-agent";

/// Name of the init container that copies the agent's binary into the volume.
pub(super) const INSTALLER: &str = "jobset-agent-install";

/// Mounts the volume, unless the container already mounts it.
pub(super) fn mount(container: &mut Container, read_only: bool) {
    let mounts = container.volume_mounts.get_or_insert_default();
    if mounts.iter().all(|mount| mount.name != VOLUME) {
        mounts.push(VolumeMount {
            name: VOLUME.to_owned(),
            mount_path: PATH.to_owned(),
            read_only: read_only.then_some(true),
            ..VolumeMount::default()
        });
    }
}

/// Rejects a volume with this name that is not an emptyDir.
pub(super) fn check(pod: &PodSpec, path: &Path<'_>, errors: &mut Errors) {
    let list = path.child("volumes");
    for (index, volume) in pod.volumes.iter().flatten().enumerate() {
        if volume.name == VOLUME && volume.empty_dir.is_none() {
            errors.invalid(&list.index(index).child("name"), VOLUME, NAME_TAKEN);
        }
    }
}

pub(super) fn add_volume(pod: &mut PodSpec) {
    let volumes = pod.volumes.get_or_insert_default();
    if volumes.iter().all(|volume| volume.name != VOLUME) {
        let empty_dir = Some(EmptyDirVolumeSource::default());
        volumes.push(Volume { name: VOLUME.to_owned(), empty_dir, ..Volume::default() });
    }
}
