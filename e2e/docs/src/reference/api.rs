//! The fields of JobSets, from the CustomResourceDefinition.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

/// The CustomResourceDefinition, below the workspace.
const CRD: &str = "deploy/crds/jobset.x-k8s.io_jobsets.yaml";

/// Objects of Kubernetes' own API that are fields of a JobSet, and its type. Their fields are not listed.
const KUBERNETES: [(&str, &str); 3] = [
    ("template", "JobTemplateSpec"),
    ("volumeClaimTemplates", "[]PersistentVolumeClaim"),
    ("conditions", "[]Condition"),
];

/// Fields that users write.
pub(super) fn spec(workspace: &Path) -> Result<String> {
    let intro = "# JobSet: specification\n\nAPI group `jobset.x-k8s.io`, version `v1alpha2`, kind `JobSet`. \
                 `kubectl explain jobset.spec` shows the same text.\n";
    page(workspace, "spec", intro)
}

/// Fields that the controller writes.
pub(super) fn status(workspace: &Path) -> Result<String> {
    page(workspace, "status", "# JobSet: status\n\n`kubectl explain jobset.status` shows the same text.\n")
}

fn page(workspace: &Path, part: &str, intro: &str) -> Result<String> {
    let file = workspace.join(CRD);
    let text = std::fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let crd: Value = serde_yaml_ng::from_str(&text)?;
    let schema = crd
        .pointer(&format!("/spec/versions/0/schema/openAPIV3Schema/properties/{part}"))
        .with_context(|| format!("the CustomResourceDefinition has no {part}"))?;
    let mut page = intro.to_owned();
    object(&mut page, part, schema);
    Ok(page)
}

/// One object: a section with its fields, and then those of its fields that are objects.
fn object(page: &mut String, path: &str, schema: &Value) {
    let _ = writeln!(page, "\n## {path}\n");
    if let Some(text) = schema["description"].as_str() {
        let _ = writeln!(page, "{}\n", description(text, ""));
    }
    let mut objects = Vec::new();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let (kind, fields) = kind(name, field);
        let required = schema["required"].as_array().is_some_and(|names| names.iter().any(|it| it == name));
        let facts = [Some(kind.clone()), required.then(|| "required".to_owned())].into_iter().flatten();
        let facts: Vec<String> = facts.chain(limits(field)).collect();
        let text = description(field["description"].as_str().unwrap_or_default(), "  ");
        let _ = writeln!(page, "- `{name}` ({}): {text}", facts.join(", "));
        if let Some(fields) = fields {
            let list = if kind.starts_with("[]") { "[]" } else { "" };
            objects.push((format!("{path}.{name}{list}"), fields));
        }
    }
    for (path, fields) in objects {
        object(page, &path, fields);
    }
}

/// The type of a field; and the schema of the object that it is or lists, if its fields are to be shown.
fn kind<'a>(name: &str, field: &'a Value) -> (String, Option<&'a Value>) {
    if let Some((_, kind)) = KUBERNETES.iter().find(|(known, _)| *known == name) {
        return ((*kind).to_owned(), None);
    }
    let of = |schema: &Value| match (schema["type"].as_str(), schema["format"].as_str()) {
        (Some("string"), Some("date-time")) => "time".to_owned(),
        (Some("object"), _) if schema["properties"].is_null() => "map".to_owned(),
        (Some(kind), _) => kind.to_owned(),
        (None, _) => "any".to_owned(),
    };
    let items = &field["items"];
    let (prefix, schema) = if items.is_object() { ("[]", items) } else { ("", field) };
    (format!("{prefix}{}", of(schema)), schema["properties"].is_object().then_some(schema))
}

/// What the schema says of the values of a field.
fn limits(field: &Value) -> Vec<String> {
    let mut limits = Vec::new();
    let schema = if field["items"].is_object() { &field["items"] } else { field };
    if let Some(values) = schema["enum"].as_array() {
        let values: Vec<String> =
            values.iter().filter(|value| !value.is_null()).map(|value| format!("`{}`", plain(value))).collect();
        limits.push(format!("one of {}", values.join(", ")));
    }
    for (key, words) in [
        ("minimum", "at least"),
        ("maximum", "at most"),
        ("minLength", "characters at least"),
        ("maxLength", "characters at most"),
        ("minItems", "items at least"),
        ("maxItems", "items at most"),
    ] {
        if let Some(value) = field.get(key) {
            limits.push(format!("{words} {}", plain(value)));
        }
    }
    if let Some(default) = field.get("default") {
        limits.push(format!("default `{}`", plain(default)));
    }
    limits
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// A description on one line for each paragraph and each item of a list, indented below its field.
fn description(text: &str, indent: &str) -> String {
    let mut shown = String::new();
    let mut begins_paragraph = false;
    for line in text.lines().map(str::trim) {
        if line.is_empty() {
            begins_paragraph = true;
            continue;
        }
        let _ = match (shown.is_empty(), begins_paragraph, line.starts_with("- ")) {
            (true, ..) => Ok(()),
            (false, true, _) => write!(shown, "\n\n{indent}"),
            (false, false, true) => write!(shown, "\n{indent}"),
            (false, false, false) => write!(shown, " "),
        };
        shown.push_str(line);
        begins_paragraph = false;
    }
    shown.replace('<', "&lt;")
}
