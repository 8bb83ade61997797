//! The manifests of the KEPs, and one of each feature of the API: a real API server takes and keeps them as written.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use jobset_harness::workload::{STORY_1, STORY_2};
use jobset_harness::{ControlPlane, install, paths};
use serde_json::Value;

use crate::objects::create_strict;
use crate::seat::take_seat;

/// Every story of KEP-262 and KEP-467 that has a manifest.
const SEEDS: [&str; 9] = [
    "001-exit-code",
    "001-restart-replicated-job",
    "001-story-1",
    "001-story-2",
    "001-story-3",
    "001-story-4",
    "002-story-5",
    "003-story-1",
    "003-story-2",
];

fn manifests(folder: &str) -> Result<BTreeMap<String, Value>> {
    let folder = paths::workspace().join("e2e/manifests").join(folder);
    let mut manifests = BTreeMap::new();
    for entry in folder.read_dir().with_context(|| format!("no folder {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(&path).with_context(|| name.clone())?;
        manifests.insert(name.clone(), serde_yaml_ng::from_str(&text).with_context(|| format!("{name} is not YAML"))?);
    }
    Ok(manifests)
}

/// Paths of what was written and is not in what was stored. Fields that the API server added are no loss.
fn lost(path: &str, written: &Value, stored: Option<&Value>) -> Vec<String> {
    match (written, stored) {
        (Value::Object(written), Some(Value::Object(stored))) => {
            written.iter().flat_map(|(key, value)| lost(&format!("{path}.{key}"), value, stored.get(key))).collect()
        }
        (Value::Array(written), Some(Value::Array(stored))) if written.len() == stored.len() => {
            let items = written.iter().zip(stored).enumerate();
            items.flat_map(|(index, (value, stored))| lost(&format!("{path}[{index}]"), value, Some(stored))).collect()
        }
        (written, Some(stored)) if written == stored => Vec::new(),
        _ => vec![path.to_owned()],
    }
}

#[tokio::test]
async fn manifest_applied_is_stored_as_written() -> Result<()> {
    let seeds = manifests("seeds")?;
    assert_eq!(seeds.keys().collect::<Vec<_>>(), SEEDS);
    let features = manifests("features")?;
    assert_eq!(features.len(), 16);
    let examples = manifests("examples")?;
    assert_eq!(examples.len(), 13);

    take_seat().await?;
    let plane = ControlPlane::start().await?;
    install::crd(&plane).await?;
    for (name, manifest) in seeds.into_iter().chain(features).chain(examples) {
        let stored = create_strict(&plane.client(), &manifest).await.with_context(|| format!("{name} was rejected"))?;
        assert_eq!(lost("", &manifest, Some(&stored)), [""; 0], "of {name}");
    }
    plane.stop().await
}

/// What runs on a cluster without node pools is the KEPs' but for its name and its topology.
#[test]
fn stories_run_are_those_of_the_seed() -> Result<()> {
    let seeds = manifests("seeds")?;
    for (run, seed) in [(STORY_1, "003-story-1"), (STORY_2, "003-story-2")] {
        let run: Value = serde_yaml_ng::from_str(run)?;
        assert_eq!(run["spec"], seeds[seed]["spec"], "{seed}");
    }
    Ok(())
}
