//! The agent's credentials: a projected token that is bound to the Pod, at the path where clients expect it.
//!
//! The token does not depend on automountServiceAccountToken. Kubernetes does not mount its own token into a container
//! that has a mount at this path.

use k8s_openapi::api::core::v1::{
    ConfigMapProjection, Container, DownwardAPIProjection, DownwardAPIVolumeFile, KeyToPath, ObjectFieldSelector,
    PodSpec, ProjectedVolumeSource, ServiceAccountTokenProjection, Volume, VolumeMount, VolumeProjection,
};

use crate::field::{Errors, Path};

const NAME_TAKEN: &str = "must not be the name of a volume that is not projected: the agent finds its token in one of \
                          this name. Give the volume another name";

/// Name of the volume. With the prefix `kube-api-access-`, Kubernetes would take it for its own and mount it
/// everywhere.
const VOLUME: &str = "jobset-agent-token";
/// Path where a client in a Pod expects its credentials.
const FOLDER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Lifetime of the token. The API server uses the same value for the tokens that it mounts.
const EXPIRATION_SECONDS: i64 = 3607;
/// ConfigMap with the CA of the API server. Kubernetes creates it in each namespace.
const ROOT_CA: &str = "kube-root-ca.crt";

/// Mounts the credentials, unless the path has a mount. Returns whether the container needs the volume.
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

/// Rejects a volume with this name that is not projected.
pub(super) fn check(pod: &PodSpec, path: &Path<'_>, errors: &mut Errors) {
    let list = path.child("volumes");
    for (index, volume) in pod.volumes.iter().flatten().enumerate() {
        if volume.name == VOLUME && volume.projected.is_none() {
            errors.invalid(&list.index(index).child("name"), VOLUME, NAME_TAKEN);
        }
    }
}

/// Adds the volume to the Pod.
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
