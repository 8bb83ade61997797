//! What the types of this crate add to their generated schemas.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

/// Keyword of a generated schema that stands for a schema of Kubernetes. Its value is the name of that schema.
pub(super) const KUBERNETES_SCHEMA: &str = "x-kubernetes-schema";

/// Removes the description of the type of an optional field: that of the field says more.
pub(super) fn describe_by_field(schema: &mut Schema) {
    if schema.get("description").is_none() {
        return;
    }
    let types = schema.get_mut("anyOf").and_then(Value::as_array_mut);
    for of_type in types.into_iter().flatten().filter_map(Value::as_object_mut) {
        of_type.remove("description");
    }
}

/// Schema of `replicatedJobs[].template`.
pub(crate) fn job_template(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "x-kubernetes-schema": "io.k8s.api.batch.v1.JobTemplateSpec" })
}

/// Schema of `status.conditions`.
pub(crate) fn conditions(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "items": { "x-kubernetes-schema": "io.k8s.apimachinery.pkg.apis.meta.v1.Condition" },
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
    })
}

pub(crate) fn time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "format": "date-time" })
}

/// Schema of `volumeClaimPolicies[].templates`.
pub(crate) fn claim_templates(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "array",
        "maxItems": 50,
        "items": { "x-kubernetes-schema": "io.k8s.api.core.v1.PersistentVolumeClaim" },
        "x-kubernetes-list-type": "atomic",
    })
}

/// Marks a field that is immutable once it is set. `reason` says how it must stay, and what to do
/// instead of a change.
pub(crate) fn immutable(reason: &str) -> impl FnMut(&mut Schema) {
    let message = format!("field is immutable: must stay {reason}");
    move |schema| {
        let rules = json!([{"rule": "self == oldSelf", "message": message}]);
        schema.insert("x-kubernetes-validations".to_owned(), rules);
    }
}

/// Marks a number that must not decrease. It may be removed: the controller of the Go JobSet does not know the field,
/// writes the status as a whole, and must be able to take over a JobSet.
pub(crate) fn growing(schema: &mut Schema) {
    schema.insert(
        "x-kubernetes-validations".to_owned(),
        json!([{"rule": "self >= oldSelf", "message": "must not fall"}]),
    );
}
