//! The admission service outside of its cluster: permissions and registration as they are deployed, at the URL of a service
//! that runs on the host.

use std::net::SocketAddr;

use anyhow::{Context, Result};
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde::{Deserialize as _, Serialize};
use serde_json::{Value, json};

use crate::cluster::Handle;
use crate::{http_client, install, paths};

/// Where the service is deployed.
pub const NAMESPACE: &str = "jobset-system";
/// Its ServiceAccount.
pub const WEBHOOK: &str = "jobset-webhook";
/// The ServiceAccount of the program that issues its certificate.
pub const CERTS: &str = "jobset-certs";
/// Kinds of the manifests that give permissions.
const ACCESS: [&str; 5] = ["ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"];
/// Kinds of the manifests that register webhooks.
const REGISTRATION: [&str; 2] = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

/// Creates the namespace of the service, its identity and that of the program that issues its certificate, with their
/// permissions.
pub async fn permit(handle: &Handle) -> Result<()> {
    install::kubectl(handle, &["create", "namespace", NAMESPACE]).await?;
    allow(handle, &deployed(&ACCESS)?).await
}

/// Gives the permissions that are among these manifests.
pub async fn allow(handle: &Handle, manifests: &[Value]) -> Result<()> {
    let access: Vec<_> = manifests.iter().filter(|it| is_one_of(it, &ACCESS)).cloned().collect();
    apply(handle, "access.yaml", &access).await
}

pub async fn register(handle: &Handle, address: SocketAddr) -> Result<()> {
    register_all(handle, &[address]).await
}

/// Registers the service at each of these addresses: each of them is asked about everything.
pub async fn register_all(handle: &Handle, addresses: &[SocketAddr]) -> Result<()> {
    let mut manifests = deployed(&REGISTRATION)?;
    for webhooks in manifests.iter_mut().filter_map(|it| it["webhooks"].as_array_mut()) {
        let deployed = std::mem::take(webhooks);
        for (number, address) in addresses.iter().enumerate() {
            for webhook in &deployed {
                let path = webhook["clientConfig"]["service"]["path"].as_str().context("a webhook without a path")?;
                let name = webhook["name"].as_str().context("a webhook without a name")?;
                let mut webhook = webhook.clone();
                webhook["clientConfig"] = json!({ "url": format!("https://{address}{path}") });
                if number > 0 {
                    webhook["name"] = json!(format!("replica-{number}.{name}"));
                }
                webhooks.push(webhook);
            }
        }
    }
    apply(handle, "registration.yaml", &manifests).await
}

/// Takes a namespace out of the registration of the admission service. JobSets are stored there as they are created.
pub async fn exempt(client: &Client, namespace: &str) -> Result<()> {
    exempt_from::<MutatingWebhookConfiguration>(client, namespace).await?;
    exempt_from::<ValidatingWebhookConfiguration>(client, namespace).await
}

async fn exempt_from<K>(client: &Client, namespace: &str) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + std::fmt::Debug + Serialize + DeserializeOwned,
{
    let configurations: Api<K> = Api::all(client.clone());
    for found in configurations.list(&ListParams::default()).await? {
        let mut configuration = serde_json::to_value(&found)?;
        for webhook in configuration["webhooks"].as_array_mut().into_iter().flatten() {
            let label = "kubernetes.io/metadata.name";
            let other = json!({"key": label, "operator": "NotIn", "values": [namespace]});
            match webhook["namespaceSelector"]["matchExpressions"].as_array_mut() {
                Some(expressions) => expressions.push(other),
                None => webhook["namespaceSelector"]["matchExpressions"] = json!([other]),
            }
        }
        let changed = serde_json::from_value(configuration)?;
        configurations.replace(&found.name_any(), &PostParams::default(), &changed).await?;
    }
    Ok(())
}

/// A token of one of these ServiceAccounts: it may what that program may, and no more.
pub async fn token(handle: &Handle, account: &str) -> Result<String> {
    let accounts: Api<ServiceAccount> = Api::namespaced(handle.client(), NAMESPACE);
    let request = TokenRequest { spec: Some(TokenRequestSpec::default()), ..TokenRequest::default() };
    let issued = accounts.create_token_request(account, &PostParams::default(), &request).await?;
    issued.status.and_then(|status| status.token).context("no token was issued")
}

/// Answer of `/readyz` of the service whose health port this is: head and body.
pub async fn readyz(health: SocketAddr) -> Result<String> {
    http_client::get(health, "/readyz").await
}

pub async fn apply(handle: &Handle, name: &str, manifests: &[Value]) -> Result<()> {
    let file = write(handle, name, manifests)?;
    install::kubectl(handle, &["apply", "--server-side", "-f", &file]).await.map(drop)
}

/// What a folder of `deploy` installs.
pub async fn kustomize(handle: &Handle, folder: &str) -> Result<Vec<Value>> {
    let folder = paths::workspace().join("deploy").join(folder);
    let rendered = install::kubectl(handle, &["kustomize", &folder.to_string_lossy()]).await?;
    documents(std::str::from_utf8(&rendered.stdout)?)
}

/// The manifests of these kinds, as they are deployed: what is missing there is missing here.
fn deployed(kinds: &[&str]) -> Result<Vec<Value>> {
    let mut deployed = Vec::new();
    for file in ["common/webhook-rbac", "common/webhook", "common/webhook-configurations", "certs"] {
        let file = paths::workspace().join(format!("deploy/kustomize/{file}.yaml"));
        deployed.extend(documents(&std::fs::read_to_string(file)?)?.into_iter().filter(|it| is_one_of(it, kinds)));
    }
    Ok(deployed)
}

pub fn documents(yaml: &str) -> Result<Vec<Value>> {
    Ok(serde_yaml_ng::Deserializer::from_str(yaml).map(Value::deserialize).collect::<Result<_, _>>()?)
}

/// Writes a manifest of these documents into the folder of the cluster, and gives its path. It is no List: for one, `kubectl apply`
/// asks the API server for all that OpenAPI 2 says of it, which takes longer than `kubectl` waits where the machine is busy.
pub fn write(handle: &Handle, name: &str, documents: &[Value]) -> Result<String> {
    let file = handle.dir().join(name);
    std::fs::write(&file, documents.iter().map(Value::to_string).collect::<Vec<_>>().join("\n---\n"))?;
    Ok(file.to_string_lossy().into_owned())
}

fn is_one_of(manifest: &Value, kinds: &[&str]) -> bool {
    kinds.contains(&manifest["kind"].as_str().unwrap_or_default())
}
