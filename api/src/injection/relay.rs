//! What an agent needs to speak with the relays: their address, and a projected volume with a token for them and the CA of
//! their certificates.
//!
//! Only the agent's container mounts the volume. The API server does not accept the token, and the relays accept no other.
//! The CA comes from a ConfigMap that the controller keeps, so that it can change while the Pod runs. A Pod starts without
//! the ConfigMap.

use k8s_openapi::api::core::v1::{
    ConfigMapProjection, Container, KeyToPath, PodSpec, ProjectedVolumeSource, ServiceAccountTokenProjection, Volume,
    VolumeMount, VolumeProjection,
};

use super::environment;
use crate::agent::{RELAY, RELAY_AUDIENCE, RELAY_CA, RELAY_CONFIG_MAP, RELAY_FOLDER, RELAY_TOKEN};
use crate::field::{Errors, Path};

const NAME_TAKEN: &str = "must not be the name of a volume that is not projected: the agent finds its token for the \
                          relays in one of this name. Give the volume another name";

/// Name of the volume.
const VOLUME: &str = "jobset-relay";
/// Lifetime of the token. The API server uses the same value for the tokens that it mounts.
const EXPIRATION_SECONDS: i64 = 3607;

/// Gives the agent's container the address, unless it has one, and mounts the volume, unless the path has a mount. Returns
/// whether the container needs the volume.
pub(super) fn connect(agent: &mut Container, address: &str) -> bool {
    environment::add(agent, environment::with_value(RELAY, address.to_owned()));
    let mounts = agent.volume_mounts.get_or_insert_default();
    let there = mounts.iter().find(|mount| mount.mount_path.trim_end_matches('/') == RELAY_FOLDER);
    if let Some(mount) = there {
        return mount.name == VOLUME;
    }
    mounts.push(VolumeMount {
        name: VOLUME.to_owned(),
        mount_path: RELAY_FOLDER.to_owned(),
        read_only: Some(true),
        ..VolumeMount::default()
    });
    true
}

/// Index of a volume with the name of the injected one that is not projected. An agent of such a Pod gets no relay.
pub(crate) fn other_volume(pod: &PodSpec) -> Option<usize> {
    pod.volumes.iter().flatten().position(|volume| volume.name == VOLUME && volume.projected.is_none())
}

/// Rejects a volume with this name that is not projected.
pub(super) fn check(pod: &PodSpec, path: &Path<'_>, errors: &mut Errors) {
    if let Some(index) = other_volume(pod) {
        errors.invalid(&path.child("volumes").index(index).child("name"), VOLUME, NAME_TAKEN);
    }
}

/// Adds the volume to the Pod.
pub(super) fn add_volume(pod: &mut PodSpec) {
    let volumes = pod.volumes.get_or_insert_default();
    if volumes.iter().any(|volume| volume.name == VOLUME) {
        return;
    }
    let token = ServiceAccountTokenProjection {
        audience: Some(RELAY_AUDIENCE.to_owned()),
        expiration_seconds: Some(EXPIRATION_SECONDS),
        path: RELAY_TOKEN.to_owned(),
    };
    let ca = ConfigMapProjection {
        name: RELAY_CONFIG_MAP.to_owned(),
        items: Some(vec![KeyToPath { key: RELAY_CA.to_owned(), path: RELAY_CA.to_owned(), mode: None }]),
        optional: Some(true),
    };
    let sources = vec![
        VolumeProjection { service_account_token: Some(token), ..VolumeProjection::default() },
        VolumeProjection { config_map: Some(ca), ..VolumeProjection::default() },
    ];
    volumes.push(Volume {
        name: VOLUME.to_owned(),
        projected: Some(ProjectedVolumeSource { sources: Some(sources), default_mode: None }),
        ..Volume::default()
    });
}
