//! The example manifests of the Go JobSet, as its Go module and the proxy for such modules have them.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::Value;

use jobset_harness::programs::sources;

/// The last release whose module has the examples of its site.
const WITH_EXAMPLES: &str = "v0.8.0";
/// A release whose KEPs have what came later.
const WITH_KEPS: &str = "v0.12.0";

/// A file of the examples.
pub(crate) fn example(name: &str) -> Result<Value> {
    let file = release(WITH_EXAMPLES)?.join("site/static/examples").join(name);
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    Ok(serde_yaml_ng::from_str(&text)?)
}

/// The JobSets of a KEP, in the order of its text.
pub(crate) fn of_kep(name: &str) -> Result<Vec<Value>> {
    let file = release(WITH_KEPS)?.join("keps").join(name).join("README.md");
    let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", file.display()))?;
    let blocks = text.split("```yaml\n").skip(1).filter_map(|block| block.split("```").next());
    let objects = blocks.filter_map(|block| serde_yaml_ng::from_str::<Value>(block).ok());
    Ok(objects.filter(|object| object["kind"] == "JobSet").collect())
}

fn release(version: &str) -> Result<PathBuf> {
    sources("sigs.k8s.io/jobset", version)
}
