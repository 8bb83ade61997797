//! Builds the RoleBinding of injected agents.

use std::collections::BTreeSet;

use jobset_api::{JobSet, names};
use k8s_openapi::api::rbac::v1::{RoleBinding, RoleRef, Subject};
use kube::ResourceExt;

/// The ServiceAccount of Pods that name none.
const DEFAULT_ACCOUNT: &str = "default";

/// Binds the ServiceAccounts of the JobSet's Pods to this ClusterRole.
pub fn role_binding(jobset: &JobSet, cluster_role: &str) -> RoleBinding {
    let subjects = accounts(jobset).into_iter().map(|name| Subject {
        kind: "ServiceAccount".to_owned(),
        name: name.to_owned(),
        namespace: jobset.namespace(),
        api_group: None,
    });
    RoleBinding {
        metadata: super::metadata(jobset, names::role_binding(&jobset.name_any())),
        role_ref: RoleRef {
            api_group: Some("rbac.authorization.k8s.io".to_owned()),
            kind: "ClusterRole".to_owned(),
            name: cluster_role.to_owned(),
        },
        subjects: Some(subjects.collect()),
    }
}

fn accounts(jobset: &JobSet) -> BTreeSet<&str> {
    let pods = jobset.spec.replicated_jobs.iter().map(|group| group.template.spec.template.spec.as_ref());
    let named = pods.map(|pod| {
        // `serviceAccount` is the deprecated alias of `serviceAccountName`. The API server still reads it.
        let names = pod.into_iter().flat_map(|pod| [&pod.service_account_name, &pod.service_account]);
        names.flatten().find(|name| !name.is_empty()).map_or(DEFAULT_ACCOUNT, String::as_str)
    });
    named.collect()
}
