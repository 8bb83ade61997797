//! The published examples of the Go JobSet run to the ends that they are made for, with nothing replaced but their images:
//! by one in which `sleep` is twenty times as fast.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::join_all;
use jobset_api::{JobSet, JobSetStatus, conditions};
use jobset_harness::cluster::Cluster;
use jobset_harness::install::{self, kubectl};
use jobset_harness::wait::{self, Check};
use jobset_harness::{admission, images};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::{Mutex, OnceCell};

use super::go_examples;
use super::shared::{binaries, installed, with_admission};

/// Four restarts of containers that do not listen to SIGTERM take three minutes, and twice as long on a busy machine.
const LIMIT: Duration = Duration::from_mins(10);

/// The examples are created one after the other: the API server waits 5 s for admission, which has a part of two cores here.
static TURN: Mutex<()> = Mutex::const_new(());

#[derive(Clone, Copy, Debug)]
enum End {
    Completed,
    /// With this reason, after so many restarts.
    Failed(&'static str, i32),
    /// Never: it restarts again and again, uncounted.
    RestartsForEver,
}

const EXAMPLES: [(&str, End); 13] = [
    ("startup-policy/startup-driver-ready", End::Completed),
    ("depends-on/depends-on", End::Completed),
    ("simple/success-policy", End::Completed),
    ("simple/paralleljobs", End::Completed),
    ("simple/coordinator", End::Completed),
    ("simple/ttl-after-finished", End::Completed),
    ("simple/failure-policy", End::Failed(conditions::REACHED_MAX_RESTARTS, 3)),
    ("failure-policy/restartjobset-action", End::Failed(conditions::REACHED_MAX_RESTARTS, 3)),
    ("failure-policy/failjobset-action", End::Failed(conditions::FAIL_JOB_SET_ACTION, 0)),
    ("failure-policy/host-maintenance-event-model", End::Failed(conditions::REACHED_MAX_RESTARTS, 0)),
    ("failure-policy/restartjobsetandignoremaxrestarts-action", End::RestartsForEver),
    ("failure-policy/onjobfailurereasons-present", End::RestartsForEver),
    ("failure-policy/onjobfailurereasons-present-podfailurepolicy", End::RestartsForEver),
];

/// All side by side: they mostly sleep.
#[tokio::test]
async fn go_examples_end_as_expected() -> Result<()> {
    let run = EXAMPLES.iter().zip(0..).map(|((name, end), number)| async move {
        let manifest = go_examples::example(&format!("{name}.yaml"))?;
        ends(manifest, &format!("example-{number}"), *end).await.with_context(|| format!("{name} in example-{number}"))
    });
    let failures: Vec<String> =
        join_all(run).await.into_iter().filter_map(|ended| Some(format!("{:#}", ended.err()?))).collect();
    ensure!(failures.is_empty(), "{}", failures.join("\n"));
    Ok(())
}

/// KEP-572: a claim that all share, and Jobs that wait for those who fill it. The class and the accelerators are made up.
#[tokio::test]
async fn volume_claims_shared_jobset_completes() -> Result<()> {
    let cluster = prepared().await?;
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "up-claims"},
        "spec": {
            "accessModes": ["ReadWriteMany"], "capacity": {"storage": "50Gi"}, "storageClassName": "nfs-storage",
            "hostPath": {"path": cluster.shared_dir().join("up-claims"), "type": "DirectoryOrCreate"},
        },
    });
    admission::apply(cluster, "up-claims.yaml", &[volume]).await?;
    for node in cluster.nodes() {
        let patch = r#"{"status":{"capacity":{"nvidia.com/gpu":"4"},"allocatable":{"nvidia.com/gpu":"4"}}}"#;
        kubectl(cluster, &["patch", "node", node, "--subresource=status", "--type=merge", "-p", patch]).await?;
    }
    let stories = go_examples::of_kep("572-stateful-jobset")?;
    let mut story = stories.into_iter().next().context("the KEP has no JobSet")?;
    // As it is published, it has a dot, which the name of its Service must not have.
    story["metadata"]["name"] = json!("trainjob-qwen2");
    ends(story, "up-claims", End::Completed).await
}

async fn ends(mut manifest: Value, namespace: &str, end: End) -> Result<()> {
    let cluster = prepared().await?;
    install::create_namespace(&cluster.client(), namespace).await?;
    replace_images(&mut manifest);
    let jobset: JobSet = serde_json::from_value(manifest)?;
    let (jobsets, name): (Api<JobSet>, _) = (Api::namespaced(cluster.client(), namespace), jobset.name_any());
    {
        let _turn = TURN.lock().await;
        let _admission = with_admission().await;
        jobsets.create(&PostParams::default(), &jobset).await.context("the JobSet was refused")?;
    }
    let status = wait::until_met(LIMIT, format!("{name} to end as {end:?}"), || async {
        let status = jobsets.get(&name).await?.status.unwrap_or_default();
        let ended = match end {
            End::RestartsForEver => status.restarts > 3,
            End::Completed | End::Failed(..) => !status.terminal_state.is_empty(),
        };
        Ok(if ended { Check::Met(status) } else { Check::Unmet(format!("{status:?}")) })
    })
    .await?;
    jobsets.delete(&name, &DeleteParams::background()).await?;
    check(&status, end)
}

fn check(status: &JobSetStatus, end: End) -> Result<()> {
    let reason = |condition: &str| {
        let found = status.conditions.iter().find(|it| it.type_ == condition && it.status == "True");
        found.map(|it| it.reason.clone()).unwrap_or_default()
    };
    let counted = status.restarts_count_towards_max;
    match end {
        End::Completed => ensure!(status.terminal_state == "Completed", "{status:?}"),
        End::Failed(wanted, restarts) => {
            ensure!(reason(conditions::FAILED) == wanted && counted == restarts, "{status:?}");
        }
        End::RestartsForEver => ensure!(counted == 0 && status.terminal_state.is_empty(), "{status:?}"),
    }
    Ok(())
}

fn replace_images(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                if name == "image" { *value = json!(images::EXAMPLES) } else { replace_images(value) }
            }
        }
        Value::Array(values) => values.iter_mut().for_each(replace_images),
        _ => {}
    }
}

async fn prepared() -> Result<&'static Cluster> {
    static LOADED: OnceCell<()> = OnceCell::const_new();
    let cluster = installed().await?;
    let load = || async { cluster.load_image(&images::examples(&binaries().await?.worker)?).await };
    LOADED.get_or_try_init(load).await?;
    Ok(cluster)
}
