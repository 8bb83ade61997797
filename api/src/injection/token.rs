//! The agent's credentials: a projected token that is bound to its Pod, where a client looks for one.
//!
//! It is there whether or not the Pod's ServiceAccount has tokens mounted: Kubernetes mounts none into a container that
//! has something mounted at this path.

use k8s_openapi::api::core::v1::{
    ConfigMapProjection, Container, DownwardAPIProjection, DownwardAPIVolumeFile, KeyToPath, ObjectFieldSelector,
    PodSpec, ProjectedVolumeSource, ServiceAccountTokenProjection, Volume, VolumeMount, VolumeProjection,
};

use crate::field::{Errors, Path};

const NAME_TAKEN: &str = "must not be the name of a volume that is not projected: the agent finds its token in one of \
                          this name. Give the volume another name";

/// Name of the volume. One that began with `kube-api-access-` would be taken for Kubernetes' own and mounted by all.
const VOLUME: &str = "jobset-agent-token";
/// Where a client in a Pod looks for its credentials.
const FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The API server's own choice for the tokens that it mounts.
const EXPIRATION_SECONDS: i64 = 3607;
/// ConfigMap with the CA of the API server; Kubernetes puts one into each namespace.
const ROOT_CA: &str = "kube-root-ca.crt";

/// Mounts the credentials, unless something is mounted there. Whether the volume is needed.
pub(super) fn mount(container: &mut Container) -> bool {
    let mounts = container.volume_mounts.get_or_insert_default();
    let there = mounts.iter().find(|mount| mount.mount_path.trim_end_matches('/') == FOLDER);
    if let Some(mount) = there {
        return mount.name == VOLUME;
    }
    mounts.push(VolumeMount {
        name: VOLUME.to_owned(),
        mount_path: FOLDER.to_owned(),
        read_only: Some(true),
        ..VolumeMount::default()
    });
    true
}

/// Refuses a volume of that name which holds no credentials.
pub(super) fn check(pod: &PodSpec, path: &Path<'_>, errors: &mut Errors) {
    let list = path.child("volumes");
    for (index, volume) in pod.volumes.iter().flatten().enumerate() {
        if volume.name == VOLUME && volume.projected.is_none() {
            errors.invalid(&list.index(index).child("name"), VOLUME, NAME_TAKEN);
        }
    }
}

/// Adds the volume.
pub(super) fn add_volume(pod: &mut PodSpec) {
    let volumes = pod.volumes.get_or_insert_default();
    if volumes.iter().any(|volume| volume.name == VOLUME) {
        return;
    }
    let token = ServiceAccountTokenProjection {
        expiration_seconds: Some(EXPIRATION_SECONDS),
        path: "token".to_owned(),
        ..ServiceAccountTokenProjection::default()
    };
    let ca = ConfigMapProjection {
        name: ROOT_CA.to_owned(),
        items: Some(vec![KeyToPath { key: "ca.crt".to_owned(), path: "ca.crt".to_owned(), mode: None }]),
        optional: None,
    };
    let namespace = DownwardAPIVolumeFile {
        path: "namespace".to_owned(),
        field_ref: Some(ObjectFieldSelector { api_version: None, field_path: "metadata.namespace".to_owned() }),
        ..DownwardAPIVolumeFile::default()
    };
    let sources = vec![
        VolumeProjection { service_account_token: Some(token), ..VolumeProjection::default() },
        VolumeProjection { config_map: Some(ca), ..VolumeProjection::default() },
        VolumeProjection {
            downward_api: Some(DownwardAPIProjection { items: Some(vec![namespace]) }),
            ..VolumeProjection::default()
        },
    ];
    volumes.push(Volume {
        name: VOLUME.to_owned(),
        projected: Some(ProjectedVolumeSource { sources: Some(sources), default_mode: None }),
        ..Volume::default()
    });
}
