//! The manifests of `e2e/manifests/features`: each is taken as it is written, and makes what it says.

use std::collections::BTreeSet;

use anyhow::Result;
use jobset_harness::paths;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams};

use crate::fixture::Space;
use crate::jobsets::feature;

/// Each manifest with the Jobs that it has at first, in order of their names, and the number of Pods of each.
const MANIFESTS: [(&str, &[(&str, usize)]); 16] = [
    ("coordinator", &[("driver-0", 1), ("workers-0", 2), ("workers-1", 2)]),
    ("depends-on-complete", &[("fetch-0", 1), ("fetch-1", 1)]),
    ("depends-on-ready", &[("server-0", 1)]),
    ("exclusive-placement", &[("driver-0", 1), ("workers-0", 2), ("workers-1", 2)]),
    ("exclusive-placement-node-selector", &[("workers-0", 2), ("workers-1", 2)]),
    ("exclusive-placement-template", &[("driver-0", 1), ("workers-0", 2), ("workers-1", 2)]),
    (
        "group-names",
        &[
            ("driver-0", 1),
            ("workers-large-0", 2),
            ("workers-small-0", 2),
            ("workers-small-1", 2),
            ("workers-small-2", 2),
        ],
    ),
    ("managed-by", &[]),
    ("network-off", &[("workers-0", 2), ("workers-1", 2)]),
    ("network-options", &[("workers-0", 2), ("workers-1", 2)]),
    ("startup-policy-in-order", &[("server-0", 1)]),
    ("success-policy-any", &[("monitor-0", 1), ("search-0", 1), ("search-1", 1)]),
    ("suspended", &[("driver-0", 0), ("workers-0", 0), ("workers-1", 0)]),
    ("ttl", &[("workers-0", 1)]),
    ("volume-claims-delete", &[("workers-0", 1), ("workers-1", 1)]),
    ("volume-claims-retain", &[("monitor-0", 1), ("workers-0", 1), ("workers-1", 1)]),
];

#[test]
fn every_manifest_is_in_the_table() -> Result<()> {
    let folder = std::fs::read_dir(paths::workspace().join("e2e/manifests/features"))?;
    let files: BTreeSet<String> =
        folder.map(|file| Ok(file?.file_name().to_string_lossy().into_owned())).collect::<Result<_>>()?;
    let known: BTreeSet<String> = MANIFESTS.iter().map(|(name, _)| format!("{name}.yaml")).collect();
    assert_eq!(files, known);
    Ok(())
}

#[tokio::test]
async fn every_manifest_creates_its_jobs_and_applies_idempotently() -> Result<()> {
    let space = Space::new("manifests").await?;
    let apply = PatchParams::apply("kubectl");
    let mut generations = Vec::new();
    for (name, _) in MANIFESTS {
        let applied = space.jobsets().patch(name, &apply, &Patch::Apply(feature(name)?)).await?;
        generations.push((applied.uid(), applied.metadata.generation));
    }
    for (name, jobs) in MANIFESTS {
        let names: Vec<String> = jobs.iter().map(|(job, _)| format!("{name}-{job}")).collect();
        space.jobs_of(name, &names.iter().map(String::as_str).collect::<Vec<_>>()).await?;
        for (job, (_, pods)) in names.iter().zip(jobs) {
            space.pods_of(job, *pods).await?;
        }
    }
    // No Job comes late that should not come at all.
    space.settle().await?;
    for ((name, jobs), before) in MANIFESTS.iter().zip(generations) {
        let names: Vec<String> = jobs.iter().map(|(job, _)| format!("{name}-{job}")).collect();
        space.jobs_of(name, &names.iter().map(String::as_str).collect::<Vec<_>>()).await?;
        let again = space.jobsets().patch(name, &apply, &Patch::Apply(feature(name)?)).await?;
        assert_eq!((again.uid(), again.metadata.generation), before, "{name}");
    }
    assert_eq!(space.warnings().await?, Vec::<String>::new());
    Ok(())
}
