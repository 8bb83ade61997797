//! The CustomResourceDefinition of JobSet.
//!
//! It has two sources. The fields of JobSet come from the Rust types of this crate, and their docstrings become the
//! descriptions that `kubectl explain` shows. What Kubernetes defines (Job template, conditions, claims) comes from the
//! OpenAPI v3 documents that Kubernetes publishes. These documents say which lists merge by key; a schema derived from
//! Rust types does not. Without these markers, two appliers of one JobSet, such as a user and a queueing system,
//! overwrite each other's containers and variables.

use schemars::{JsonSchema, generate::SchemaSettings, transform::RecursiveTransform};
use serde_json::{Value, json};

use crate::{GROUP, JobSetSpec, JobSetStatus, VERSION};

mod fields;
pub(crate) mod markers;
mod openapi;

pub use fields::Fields;
use markers::KUBERNETES_SCHEMA;
pub use openapi::{OpenApi, UnknownSchema};

/// The CustomResourceDefinition. The schemas of Kubernetes types come from `openapi`.
///
/// # Errors
/// [`UnknownSchema`] if `openapi` lacks a schema: a document is missing or is of another version of Kubernetes.
pub fn custom_resource_definition(openapi: &OpenApi) -> Result<Value, UnknownSchema> {
    let mut spec = own::<JobSetSpec>(openapi)?;
    spec["x-kubernetes-validations"] = json!([{
        "rule": "!(has(self.startupPolicy) && self.startupPolicy.startupPolicyOrder == 'InOrder' && \
                 has(self.replicatedJobs) && self.replicatedJobs.exists(group, has(group.dependsOn) && \
                 size(group.dependsOn) > 0))",
        "message": "startupPolicy InOrder and dependsOn are mutually exclusive",
    }]);
    let mut status = own::<JobSetStatus>(openapi)?;
    status["x-kubernetes-validations"] = json!([
        {
            "rule": "!has(self.deprecatedEpoch) || self.deprecatedEpoch <= (has(self.syncedEpoch) ? self.syncedEpoch : 0)",
            "message": "deprecatedEpoch must not exceed syncedEpoch",
        },
    ]);
    Ok(json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("jobsets.{GROUP}")},
        "spec": {
            "group": GROUP,
            "names": {"kind": "JobSet", "listKind": "JobSetList", "plural": "jobsets", "singular": "jobset"},
            "scope": "Namespaced",
            "versions": [{
                "name": VERSION,
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": printer_columns(),
                "schema": {"openAPIV3Schema": {
                    "description": "A JobSet runs groups of Jobs that start, fail, restart and succeed together.",
                    "type": "object",
                    "properties": {
                        "apiVersion": {"type": "string", "description": "Version of the schema of this object."},
                        "kind": {"type": "string", "description": "Kind of this object."},
                        "metadata": {"type": "object"},
                        "spec": spec,
                        "status": status,
                    },
                }},
            }],
        },
    }))
}

fn printer_columns() -> Value {
    let column = |name: &str, kind: &str, path: &str, priority: i32, description: &str| json!({"name": name, "type": kind, "jsonPath": path, "priority": priority, "description": description});
    json!([
        column("Ready", "string", ".status.jobsReady", 0, "Jobs that are ready or have succeeded, of all"),
        column(
            "TerminalState",
            "string",
            ".status.terminalState",
            0,
            "Completed or Failed, once the JobSet has finished"
        ),
        column(
            "Restarts",
            "integer",
            ".status.groupRestarts",
            0,
            "Restarts of the whole group, in place or by recreation"
        ),
        column("Epoch", "integer", ".status.syncedEpoch", 0, "In place: the epoch whose workers may run"),
        column("Suspended", "string", ".spec.suspend", 0, "Whether it is suspended"),
        column("Age", "date", ".metadata.creationTimestamp", 0, "Time since it was created"),
        column("Strategy", "string", ".spec.failurePolicy.restartStrategy", 1, "How it restarts"),
        column("StartTime", "date", ".status.startTime", 1, "Time since it became active"),
        column("Deprecated", "integer", ".status.deprecatedEpoch", 1, "Epoch whose Pods must restart in place"),
        column("Counted", "integer", ".status.restartsCountTowardsMax", 1, "Restarts that count towards maxRestarts"),
        column("Max", "integer", ".spec.failurePolicy.maxRestarts", 1, "Restarts that may be counted before it fails"),
        column("Completed", "string", ".status.conditions[?(@.type==\"Completed\")].status", 1, "Whether it succeeded"),
        column(
            "Restarting",
            "string",
            ".status.conditions[?(@.type==\"RestartingJobSet\")].message",
            1,
            "Why it restarts, while it does"
        ),
    ])
}

/// The structural schema of a type of this crate.
fn own<T: JsonSchema>(openapi: &OpenApi) -> Result<Value, UnknownSchema> {
    let mut schema = unfinished::<T>();
    finish(&mut schema, openapi)?;
    if let Some(root) = schema.as_object_mut() {
        root.remove("title");
    }
    Ok(schema)
}

/// The same with the names of Kubernetes types in place of their schemas.
fn unfinished<T: JsonSchema>() -> Value {
    let generator = SchemaSettings::openapi3()
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .with_transform(RecursiveTransform(markers::describe_by_field))
        .with_transform(kube::core::schema::StructuralSchemaRewriter)
        .with_transform(kube::core::schema::OptionalEnum)
        .into_generator();
    generator.into_root_schema_for::<T>().to_value()
}

/// The text with each paragraph and each entry of a list in one line: `kubectl explain` wraps the lines itself.
fn unwrapped(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines().map(str::trim) {
        match lines.last_mut() {
            Some(last) if !last.is_empty() && !line.is_empty() && !line.starts_with("- ") => {
                last.push(' ');
                last.push_str(line);
            }
            _ => lines.push(line.to_owned()),
        }
    }
    lines.join("\n")
}

/// Inserts the schemas of Kubernetes types, and removes keywords that only the generator needs.
fn finish(schema: &mut Value, openapi: &OpenApi) -> Result<(), UnknownSchema> {
    match schema {
        Value::Object(object) => {
            if let Some(Value::String(text)) = object.get_mut("description") {
                *text = unwrapped(text);
            }
            if let Some(Value::String(name)) = object.remove(KUBERNETES_SCHEMA) {
                let description = object.remove("description");
                *schema = openapi.structural(&name)?;
                if let Some(description) = description {
                    schema["description"] = description;
                }
                return Ok(());
            }
            // Go types marshal no nulls. If a field were nullable, the API server would store the null.
            if object.get("nullable").is_some_and(Value::is_boolean) {
                object.remove("nullable");
                if let Some(Value::Array(values)) = object.get_mut("enum") {
                    values.retain(|value| !value.is_null());
                }
            }
            object.values_mut().try_for_each(|value| finish(value, openapi))
        }
        Value::Array(values) => values.iter_mut().try_for_each(|value| finish(value, openapi)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LATER: &str = "fieldOfLaterRelease";

    /// A value of this schema. Each of its objects has one more field than the schema, whose value is the path of the object.
    fn of_later_release(schema: &Value, path: &str) -> Value {
        if let Some(Value::Array(values)) = schema.get("enum") {
            return values[0].clone();
        }
        match schema["type"].as_str() {
            Some("object") => {
                let fields = schema["properties"].as_object().unwrap().iter();
                let fields =
                    fields.map(|(name, field)| (name.clone(), of_later_release(field, &format!("{path}.{name}"))));
                fields.chain([(LATER.to_owned(), json!(path))]).collect::<serde_json::Map<_, _>>().into()
            }
            Some("array") => json!([of_later_release(&schema["items"], &format!("{path}[]"))]),
            Some("integer") => json!(1),
            Some("boolean") => json!(true),
            Some("string") if schema["format"] == "date-time" => json!("2026-01-01T00:00:00.000000Z"),
            Some("string") => json!("text"),
            other => panic!("{path} has the type {other:?}"),
        }
    }

    /// The fields of the later release in this value.
    fn later_fields(value: &Value) -> Vec<&Value> {
        match value {
            Value::Object(fields) => {
                fields.get(LATER).into_iter().chain(fields.values().flat_map(later_fields)).collect()
            }
            Value::Array(values) => values.iter().flat_map(later_fields).collect(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn status_objects_keep_fields_of_later_release() {
        let mut schema = unfinished::<JobSetStatus>();
        // Kubernetes defines the conditions.
        schema["properties"].as_object_mut().unwrap().remove("conditions").unwrap();
        let status = of_later_release(&schema, "status");
        let read: JobSetStatus = serde_json::from_value(status.clone()).unwrap();
        let written = serde_json::to_value(read).unwrap();
        assert_eq!(later_fields(&written), later_fields(&status));
        assert!(later_fields(&status).len() > 8, "{status}");
    }
}
