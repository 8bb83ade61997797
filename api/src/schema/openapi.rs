//! Turns schemas of Kubernetes' OpenAPI v3 documents into structural schemas for a CustomResourceDefinition.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

const QUANTITY: &str = "io.k8s.apimachinery.pkg.api.resource.Quantity";
const INT_OR_STRING: &str = "io.k8s.apimachinery.pkg.util.intstr.IntOrString";
const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const POD_FAILURE_POLICY_RULE: &str = "io.k8s.api.batch.v1.PodFailurePolicyRule";

/// Keywords that are copied into the structural schema. Defaults are not copied: the Job API applies its own when a Job
/// is created, and a default stored in a JobSet would not change with a newer Kubernetes.
const KEPT: [&str; 8] = [
    "type",
    "format",
    "description",
    "required",
    "pattern",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-map-type",
];

/// The schemas of one or more OpenAPI v3 documents, by name.
#[derive(Default)]
pub struct OpenApi {
    schemas: BTreeMap<String, Value>,
}

/// No document has a schema with this name.
#[derive(Debug, thiserror::Error)]
#[error("no OpenAPI document has the schema {0}: pass the documents of batch/v1 and core/v1 of Kubernetes 1.37")]
pub struct UnknownSchema(pub String);

impl OpenApi {
    /// Adds the schemas of a document.
    pub fn add(&mut self, document: Value) {
        let Value::Object(mut document) = document else { return };
        let Some(Value::Object(mut components)) = document.remove("components") else { return };
        let Some(Value::Object(schemas)) = components.remove("schemas") else { return };
        self.schemas.extend(schemas);
    }

    /// The structural schema with this name. All references in it are resolved.
    pub fn structural(&self, name: &str) -> Result<Value, UnknownSchema> {
        self.named(name, &[])
    }

    /// `keys` are the map keys of the list whose item has this schema. The API server requires that each is required or
    /// has a default.
    fn named(&self, name: &str, keys: &[String]) -> Result<Value, UnknownSchema> {
        match name {
            QUANTITY => Ok(json!({
                "x-kubernetes-int-or-string": true,
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
            })),
            INT_OR_STRING => Ok(json!({
                "x-kubernetes-int-or-string": true,
                "anyOf": [{"type": "integer"}, {"type": "string"}],
            })),
            OBJECT_META => Ok(embedded_metadata()),
            _ => {
                let schema = self.schemas.get(name).ok_or_else(|| UnknownSchema(name.to_owned()))?;
                let mut structural = self.inline(schema, keys)?;
                if name == POD_FAILURE_POLICY_RULE {
                    structural["properties"]["setConditionReason"] = json!({
                        "type": "string",
                        "description": "Reason of the Job's failure when this rule caused it (KEP-262). Rules of the \
                                        JobSet's failure policy match it; Kubernetes itself does not know it.",
                    });
                }
                Ok(structural)
            }
        }
    }

    fn inline(&self, schema: &Value, keys: &[String]) -> Result<Value, UnknownSchema> {
        let reference = schema.get("$ref").or_else(|| schema.pointer("/allOf/0/$ref")).and_then(Value::as_str);
        if let Some(reference) = reference {
            let name = reference.rsplit('/').next().unwrap_or(reference);
            let mut target = self.named(name, keys)?;
            if let Some(description) = schema.get("description") {
                target["description"] = description.clone();
            }
            return Ok(target);
        }
        let mut structural = Map::new();
        for keyword in KEPT {
            if let Some(value) = schema.get(keyword) {
                structural.insert(keyword.to_owned(), value.clone());
            }
        }
        if let Some(Value::Object(properties)) = schema.get("properties") {
            let mut inlined = Map::new();
            for (name, property) in properties {
                let mut value = self.inline(property, &[])?;
                if keys.contains(name)
                    && let Some(default) = property.get("default")
                {
                    value["default"] = default.clone();
                }
                inlined.insert(name.clone(), value);
            }
            structural.insert("properties".to_owned(), Value::Object(inlined));
        }
        if let Some(items) = schema.get("items") {
            let keys: Vec<String> = schema
                .get("x-kubernetes-list-map-keys")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(|key| key.as_str().map(str::to_owned))
                .collect();
            structural.insert("items".to_owned(), self.inline(items, &keys)?);
        }
        if let Some(values) = schema.get("additionalProperties") {
            structural.insert("additionalProperties".to_owned(), self.inline(values, &[])?);
        }
        Ok(Value::Object(structural))
    }
}

/// Metadata of a template: only fields that a template can set. `creationTimestamp` is accepted, because Go programs
/// write it as null.
fn embedded_metadata() -> Value {
    let strings = |description: &str| json!({"type": "object", "description": description, "additionalProperties": {"type": "string"}});
    json!({
        "type": "object",
        "description": "Metadata of the objects made from this template.",
        "properties": {
            "annotations": strings("annotations of the objects made from this template."),
            "creationTimestamp": {
                "type": "string",
                "format": "date-time",
                "nullable": true,
                "description": "creationTimestamp has no effect. Clients written in Go set it to null.",
            },
            "finalizers": {
                "type": "array",
                "description": "finalizers of the objects made from this template.",
                "items": {"type": "string"},
                "x-kubernetes-list-type": "set",
            },
            "generateName": {"type": "string", "description": "generateName has no effect: the controller names the objects."},
            "labels": strings("labels of the objects made from this template."),
            "name": {
                "type": "string",
                "description": "name of a persistent volume claim in volumeClaimPolicies. Elsewhere it has no effect: the \
                                controller names the objects.",
            },
            "namespace": {"type": "string", "description": "namespace has no effect: it is that of the JobSet."},
        },
    })
}
