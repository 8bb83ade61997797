//! `--check-admission`: whether the webhooks of a cluster work, asked of its API server. Only dry runs are sent.

use jobset_api::JobSet;
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tracing::info;

use crate::Error;

/// Name of the JobSet in the dry runs.
const NAME: &str = "jobset-admission-check";
/// What an API server says of a request that a webhook has denied.
const DENIED: &str = "denied the request";
/// A field that the mutating webhook sets, and its value.
const DEFAULTED: (&str, &str) = ("/spec/replicatedJobs/0/template/spec/completionMode", "Indexed");

/// Creates a valid JobSet and an invalid one in the namespace, both as dry runs.
///
/// # Errors
/// [`Error`] unless the valid one gets defaults and a webhook denies the invalid one.
pub async fn admission(client: Client, namespace: &str) -> Result<(), Error> {
    let resource = ApiResource::erase::<JobSet>(&());
    let jobsets: Api<DynamicObject> = Api::namespaced_with(client, namespace, &resource);
    let dry_run = PostParams { dry_run: true, ..PostParams::default() };
    let create = async |spec| jobsets.create(&dry_run, &DynamicObject::new(NAME, &resource).data(spec)).await;
    let admitted = create(valid()).await.map_err(|error| Error::ValidRejected(Box::new(error)))?;
    let (field, value) = DEFAULTED;
    if admitted.data.pointer(field).and_then(Value::as_str) != Some(value) {
        return Err(Error::NoDefaults { namespace: namespace.to_owned() });
    }
    match create(invalid()).await {
        Err(kube::Error::Api(status)) if status.message.contains(DENIED) => {
            info!(namespace, "admission works: a JobSet gets defaults, and an invalid one is denied");
            Ok(())
        }
        Err(error) => Err(Error::NotDenied(Box::new(error))),
        Ok(_) => Err(Error::InvalidAdmitted { namespace: namespace.to_owned() }),
    }
}

fn valid() -> Value {
    let pod = json!({ "containers": [{ "name": "worker", "image": "worker" }] });
    json!({ "spec": { "replicatedJobs": [{ "name": "workers", "template": { "spec": { "template": { "spec": pod } } } }] } })
}

/// No schema knows that the replicatedJob of the coordinator must exist.
fn invalid() -> Value {
    let mut object = valid();
    object["spec"]["coordinator"] = json!({ "replicatedJob": "absent" });
    object
}
