//! Volume claim policies: claims that the Pods of a JobSet share, and that go with it or stay.

use anyhow::{Context, Result};
use jobset_harness::wait::{self, Check};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::DeleteParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::fixture::{LIMIT, Space};
use crate::jobsets::feature;

fn claims(space: &Space) -> Api<PersistentVolumeClaim> {
    Api::default_namespaced(space.client.clone())
}

/// The volumes of a Pod by name, each with the claim that it is.
fn volumes(pod: &Pod) -> Value {
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let claims =
        volumes.filter_map(|it| Some((it.name.clone(), json!(it.persistent_volume_claim.as_ref()?.claim_name))));
    claims.collect()
}

/// Deletes the JobSet, and waits until it is gone.
async fn delete(space: &Space, jobset: &str) -> Result<()> {
    space.jobsets().delete(jobset, &DeleteParams::foreground()).await?;
    wait::until(LIMIT, format!("{jobset} to be gone"), || async {
        Ok(space.jobsets().get_opt(jobset).await?.is_none().then_some(()))
    })
    .await
}

#[tokio::test]
async fn claim_to_delete_is_mounted_and_goes_with_jobset() -> Result<()> {
    let space = Space::new("claims-delete").await?;
    let uid = space.create(feature("volume-claims-delete")?).await?.uid();
    for job in ["volume-claims-delete-workers-0", "volume-claims-delete-workers-1"] {
        let pods = space.pods_of(job, 1).await?;
        assert_eq!(volumes(&pods[0]), json!({"data": "data-volume-claims-delete"}), "{job}");
    }
    let claim = claims(&space).get("data-volume-claims-delete").await?;
    assert_eq!(claim.labels()["jobset.sigs.k8s.io/jobset-name"], "volume-claims-delete");
    let owners = claim.owner_references();
    assert_eq!((owners.len(), owners[0].uid.clone(), owners[0].controller), (1, uid.context("no UID")?, Some(true)));
    let spec = serde_json::to_value(claim.spec)?;
    assert_eq!(spec["resources"]["requests"]["storage"], "1Gi");
    assert_eq!(spec["accessModes"], json!(["ReadWriteMany"]));

    delete(&space, "volume-claims-delete").await?;
    wait::until_met(LIMIT, "the claim to be gone", || async {
        let found = claims(&space).get_opt("data-volume-claims-delete").await?;
        Ok(found.map_or(Check::Met(()), |claim| Check::Unmet(format!("{:?}", claim.metadata))))
    })
    .await
}

#[tokio::test]
async fn retained_claim_outlives_jobset_and_serves_next_one() -> Result<()> {
    let space = Space::new("claims-retain").await?;
    let name = "data-volume-claims-retain";
    space.create(feature("volume-claims-retain")?).await?;
    let workers = ["volume-claims-retain-workers-0", "volume-claims-retain-workers-1"];
    for job in workers {
        let pods = space.pods_of(job, 1).await?;
        assert_eq!(volumes(&pods[0]), json!({"data": name}), "{job}");
    }
    let monitor = space.pods_of("volume-claims-retain-monitor-0", 1).await?;
    assert_eq!(volumes(&monitor[0]), json!({}), "one that does not mount it has no volume");
    let before = claims(&space).get(name).await?;
    assert!(before.owner_references().is_empty(), "{:?}", before.owner_references());

    delete(&space, "volume-claims-retain").await?;
    space.create(feature("volume-claims-retain")?).await?;
    for job in workers {
        let pods = space.pods_of(job, 1).await?;
        assert_eq!(volumes(&pods[0]), json!({"data": name}), "{job}");
    }
    let after = claims(&space).get(name).await?;
    assert_eq!((after.uid(), after.metadata.generation), (before.uid(), before.metadata.generation), "left as it was");
    space.settle().await?;
    assert_eq!(space.warnings().await?, Vec::<String>::new());
    Ok(())
}
