//! A cluster that allows some topology keys alone.

use anyhow::Result;
use serde_json::{Value, json};

use crate::api_server::{good, refusal};
use crate::cluster::Plane;

/// A JobSet whose Jobs each want a domain of this key for themselves.
fn exclusive(key: &str) -> Value {
    let mut jobset = good("exclusive");
    jobset["metadata"]["annotations"] = json!({ "alpha.jobset.sigs.k8s.io/exclusive-topology": key });
    jobset["spec"]["failurePolicy"] = Value::Null;
    jobset["spec"]["replicatedJobs"][0]["template"]["spec"] = json!({ "completionMode": "Indexed", "template": { "spec": {
        "restartPolicy": "Never", "containers": [{ "name": "worker", "image": "worker" }],
    } } });
    jobset
}

#[tokio::test]
async fn topology_key_that_the_cluster_does_not_allow_is_refused() -> Result<()> {
    let plane = Plane::start().await?;
    let replica = plane.admission_with(&["--exclusive-topology-keys=example.com/rack,example.com/room"]).await?;
    for allowed in ["example.com/rack", "example.com/room"] {
        plane.dry_run(&exclusive(allowed)).await?;
    }
    let status = refusal(plane.dry_run(&exclusive("topology.kubernetes.io/zone")).await);
    let cause = &status.details.as_ref().map(|it| it.causes.clone()).unwrap_or_default()[0];
    assert_eq!(cause.field, "metadata.annotations[alpha.jobset.sigs.k8s.io/exclusive-topology]");
    let required = "must be one of the topology keys of this cluster: example.com/rack, example.com/room";
    assert!(status.code == 422 && cause.message.ends_with(required), "{status:?}");
    replica.stop().await?;

    let replica = plane.admission().await?;
    plane.dry_run(&exclusive("topology.kubernetes.io/zone")).await?;
    plane.end(replica).await
}
