//! Projected volumes of the agent's container: its credentials for the API server, and those for the relays.
//!
//! The credentials for the API server are at the path where clients expect them. They do not depend on
//! automountServiceAccountToken: Kubernetes does not mount its own token into a container that has a mount at this path.
//!
//! Only the agent's container mounts the volume for the relays. The API server does not accept its token, and the relays accept
//! no other. The CA of the relays comes from a ConfigMap that the controller keeps, so that it can change while the Pod runs. A Pod
//! starts without the ConfigMap.

use k8s_openapi::api::core::v1::{
    ConfigMapProjection, Container, DownwardAPIProjection, DownwardAPIVolumeFile, KeyToPath, ObjectFieldSelector,
    PodSpec, ProjectedVolumeSource, ServiceAccountTokenProjection, Volume, VolumeMount, VolumeProjection,
};

use super::environment;
use crate::agent::{RELAY, RELAY_AUDIENCE, RELAY_CA, RELAY_CONFIG_MAP, RELAY_FOLDER, RELAY_TOKEN};
use crate::field::{Errors, Path};

/// Lifetime of the tokens. The API server uses the same value for those that it mounts.
const EXPIRATION_SECONDS: i64 = 3607;
/// ConfigMap with the CA of the API server. Kubernetes creates it in each namespace.
const ROOT_CA: &str = "kube-root-ca.crt";

pub(crate) struct AgentVolume {
    name: &'static str,
    /// Where the agent's container mounts it.
    folder: &'static str,
    /// What another volume must not be.
    taken: &'static str,
    sources: fn() -> Vec<VolumeProjection>,
}

/// The credentials for the API server. With the prefix `kube-api-access-`, Kubernetes would take the volume for its own and mount
/// it everywhere.
pub(super) static TOKEN: AgentVolume = AgentVolume {
    name: "jobset-agent-token",
    folder: "/var/run/secrets/kubernetes.io/serviceaccount",
    taken: "must not be the name of a volume that is not projected: the agent finds its token in one of this name. Give the \
            volume another name",
    sources: || {
        let namespace = DownwardAPIVolumeFile {
            path: "namespace".to_owned(),
            field_ref: Some(ObjectFieldSelector { api_version: None, field_path: "metadata.namespace".to_owned() }),
            ..DownwardAPIVolumeFile::default()
        };
        let downward_api = Some(DownwardAPIProjection { items: Some(vec![namespace]) });
        vec![
            token("token", None),
            ca(ROOT_CA, "ca.crt", None),
            VolumeProjection { downward_api, ..VolumeProjection::default() },
        ]
    },
};

pub(crate) static RELAY_CREDENTIALS: AgentVolume = AgentVolume {
    name: "jobset-relay",
    folder: RELAY_FOLDER,
    taken: "must not be the name of a volume that is not projected: the agent finds its token for the relays in one of this \
            name. Give the volume another name",
    sources: || vec![token(RELAY_TOKEN, Some(RELAY_AUDIENCE)), ca(RELAY_CONFIG_MAP, RELAY_CA, Some(true))],
};

fn token(path: &str, audience: Option<&str>) -> VolumeProjection {
    let audience = audience.map(str::to_owned);
    let token = ServiceAccountTokenProjection {
        audience,
        expiration_seconds: Some(EXPIRATION_SECONDS),
        path: path.to_owned(),
        user: None,
    };
    VolumeProjection { service_account_token: Some(token), ..VolumeProjection::default() }
}

fn ca(config_map: &str, key: &str, optional: Option<bool>) -> VolumeProjection {
    let items = Some(vec![KeyToPath { key: key.to_owned(), path: key.to_owned(), mode: None, user: None }]);
    let config_map = Some(ConfigMapProjection { name: config_map.to_owned(), items, optional });
    VolumeProjection { config_map, ..VolumeProjection::default() }
}

/// Mounts the credentials of an agent: for the API server; and for the relay at this address, if there is one, which the agent is
/// told unless it has an address. Returns the volumes that the container needs.
pub(super) fn mount(agent: &mut Container, relay: Option<&str>) -> Vec<&'static AgentVolume> {
    let mut volumes = vec![&TOKEN];
    if let Some(address) = relay {
        environment::add(agent, environment::with_value(RELAY, address.to_owned()));
        volumes.push(&RELAY_CREDENTIALS);
    }
    volumes.retain(|volume| volume.mount(agent));
    volumes
}

impl AgentVolume {
    /// Mounts the volume, unless the path has a mount. Returns whether the container needs the volume.
    fn mount(&self, container: &mut Container) -> bool {
        let mounts = container.volume_mounts.get_or_insert_default();
        if let Some(mount) = mounts.iter().find(|mount| mount.mount_path.trim_end_matches('/') == self.folder) {
            return mount.name == self.name;
        }
        mounts.push(VolumeMount {
            name: self.name.to_owned(),
            mount_path: self.folder.to_owned(),
            read_only: Some(true),
            ..VolumeMount::default()
        });
        true
    }

    /// Index of another volume of this name: one that is not projected.
    pub(crate) fn other(&self, pod: &PodSpec) -> Option<usize> {
        pod.volumes.iter().flatten().position(|volume| volume.name == self.name && volume.projected.is_none())
    }

    /// Rejects another volume of this name.
    pub(super) fn check(&self, pod: &PodSpec, path: &Path<'_>, errors: &mut Errors) {
        if let Some(index) = self.other(pod) {
            errors.invalid(&path.child("volumes").index(index).child("name"), self.name, self.taken);
        }
    }

    /// Adds the volume to the Pod, unless it has one of this name.
    pub(super) fn add(&self, pod: &mut PodSpec) {
        let volumes = pod.volumes.get_or_insert_default();
        if volumes.iter().all(|volume| volume.name != self.name) {
            let projected =
                Some(ProjectedVolumeSource { sources: Some((self.sources)()), default_mode: None, default_user: None });
            volumes.push(Volume { name: self.name.to_owned(), projected, ..Volume::default() });
        }
    }
}
