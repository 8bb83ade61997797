//! The fields of a JobSet that this build knows, and which of them the API server drops.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde_json::Value;

use crate::{JobSetSpec, JobSetStatus};

/// A schema, reduced to the names of its fields.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Fields {
    properties: BTreeMap<String, Fields>,
    items: Option<Box<Fields>>,
    /// Schema of other names, as in a map. Absent or `false`: no other names are allowed.
    #[serde(rename = "additionalProperties")]
    additional: Option<Value>,
}

impl Fields {
    /// Paths of the fields that this build reads or writes and that the installed schema of JobSet lacks. The API
    /// server drops such fields silently. Types of Kubernetes, such as the Job template, are not compared.
    pub fn missing_in(live: &Self) -> Vec<String> {
        let mut missing = BTreeSet::new();
        for (name, known) in [("spec", of::<JobSetSpec>()), ("status", of::<JobSetStatus>())] {
            match live.properties.get(name) {
                Some(live) => known.compare(live, name, &mut missing),
                None => drop(missing.insert(name.to_owned())),
            }
        }
        missing.into_iter().collect()
    }

    fn compare(&self, live: &Self, path: &str, missing: &mut BTreeSet<String>) {
        for (name, known) in &self.properties {
            let path = format!("{path}.{name}");
            match live.properties.get(name) {
                Some(live) => known.compare(live, &path, missing),
                None if live.additional.as_ref().is_some_and(|allowed| *allowed != Value::Bool(false)) => {}
                None => drop(missing.insert(path)),
            }
        }
        if let (Some(known), Some(live)) = (&self.items, &live.items) {
            known.compare(live, &format!("{path}[]"), missing);
        }
    }
}

fn of<T: JsonSchema>() -> Fields {
    let settings = SchemaSettings::openapi3().with(|settings| settings.inline_subschemas = true);
    let schema: Value = settings.into_generator().into_root_schema_for::<T>().to_value();
    Fields::deserialize(schema).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn crd() -> Value {
        let crd = std::fs::read_to_string(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../deploy/crds/jobset.x-k8s.io_jobsets.yaml"
        ));
        let crd: Value = serde_yaml_ng::from_str(&crd.unwrap()).unwrap();
        crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone()
    }

    fn missing(schema: Value) -> Vec<String> {
        Fields::missing_in(&serde_json::from_value(schema).unwrap())
    }

    #[test]
    fn missing_fields_of_own_crd_are_none() {
        assert_eq!(missing(crd()), Vec::<String>::new());
    }

    #[test]
    fn missing_field_at_any_depth_is_listed_by_path() {
        let mut schema = crd();
        let mut forget = |pointer: &str, name: &str| {
            let fields = schema.pointer_mut(pointer).unwrap().as_object_mut().unwrap();
            fields.remove(name).unwrap();
        };
        forget("/properties/status/properties", "freeEpoch");
        forget("/properties/spec/properties/replicatedJobs/items/properties", "dependsOn");
        forget("/properties/spec/properties/failurePolicy/properties/rules/items/properties", "name");
        let wanted = ["spec.failurePolicy.rules[].name", "spec.replicatedJobs[].dependsOn", "status.freeEpoch"];
        assert_eq!(missing(schema), wanted);
    }

    /// Adds what the descriptions of these fields lack. Types of Kubernetes are described by Kubernetes.
    fn check_descriptions(schema: &Value, path: &str, lacking: &mut Vec<String>) {
        let fields = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
        for (name, field) in fields {
            let path = format!("{path}.{name}");
            let description = field["description"].as_str().unwrap_or_default();
            if !description.starts_with(&format!("{name} ")) {
                lacking.push(format!("{path} does not begin with its name: {description}"));
            }
            let mut paragraphs = description.split("\n\n");
            if paragraphs.any(|paragraph| paragraph.lines().skip(1).any(|line| !line.starts_with("- "))) {
                lacking.push(format!("{path} is wrapped: {description}"));
            }
            for value in field["enum"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                if !description.contains(&format!("\n- {value}: ")) {
                    lacking.push(format!("{path} does not explain {value}: {description}"));
                }
            }
            if !["template", "templates", "conditions"].contains(&name.as_str()) {
                check_descriptions(field, &path, lacking);
                check_descriptions(&field["items"], &path, lacking);
            }
        }
    }

    #[test]
    fn descriptions_explain_every_field_and_every_value() {
        let mut lacking = Vec::new();
        for root in ["spec", "status"] {
            check_descriptions(&crd()["properties"][root], root, &mut lacking);
        }
        assert_eq!(lacking, Vec::<String>::new());
    }

    #[test]
    fn missing_status_is_listed_as_status() {
        assert_eq!(missing(json!({"properties": {"spec": crd()["properties"]["spec"]}})), ["status"]);
    }
}
