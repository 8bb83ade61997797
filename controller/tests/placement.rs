//! Exclusive placement, as far as it is the controller's: Pods that follow a leader into its topology domain, and those
//! that were sent elsewhere (`users.md`, item 12). Admission, which sends them, is not here: the tests do that.

use anyhow::Result;
use jobset_harness::wait;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::fixture::{LIMIT, Space};
use crate::jobsets::{group, jobset, with};

/// Label of nodes that names their rack. Nodes are everybody's: each test has its own.
fn rack(space: &Space) -> String {
    format!("example.com/rack-of-{}", space.namespace)
}

/// A Job that is placed exclusively, of a leader and followers, each held back by a gate until it is told where to go.
async fn train(space: &Space, pods: usize) -> Result<Vec<Pod>> {
    let exclusive = json!({"metadata": {"annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": rack(space)}}});
    // A Pod that is deleted counts as failed.
    let held_back = json!({"template": {"spec": {"backoffLimit": 6, "podReplacementPolicy": "TerminatingOrFailed",
        "template": {"spec": {"schedulingGates": [{"name": "example.com/gate"}]}}}}});
    space.create(with(jobset("train", &[with(group("w", 1, pods), &held_back)]), &exclusive)).await?;
    space.pods_of("train-w-0", pods).await
}

impl Space {
    async fn patch_pod(&self, pod: &Pod, spec: Value) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.all_pods().patch(&pod.name_any(), &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Sends a follower to a rack, as admission does.
    async fn send(&self, follower: &Pod, to: &str) -> Result<()> {
        self.patch_pod(follower, json!({"nodeSelector": {rack(self): to}, "schedulingGates": null})).await
    }

    /// Binds the leader to a node that says nothing of a rack yet.
    async fn place(&self, leader: &Pod, node: &str) -> Result<()> {
        self.patch_pod(leader, json!({"schedulingGates": null})).await?;
        self.bind(leader, json!({"metadata": {"name": node}})).await
    }

    async fn in_rack(&self, node: &str, name: &str) -> Result<()> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let patch = Patch::Merge(json!({"metadata": {"labels": {rack(self): name}}}));
        nodes.patch(node, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Whether the Pod is still there, and nobody has asked it to go.
    async fn stays(&self, pod: &Pod) -> Result<bool> {
        let found = self.all_pods().get_opt(&pod.name_any()).await?;
        Ok(found.is_some_and(|found| found.uid() == pod.uid() && found.metadata.deletion_timestamp.is_none()))
    }

    /// Waits until the Pod has been deleted as a misplaced one.
    async fn is_repaired(&self, pod: &Pod) -> Result<()> {
        wait::until(LIMIT, format!("{} to be deleted", pod.name_any()), || async {
            Ok((!self.stays(pod).await?).then_some(()))
        })
        .await?;
        let note = self.note("ExclusivePlacementViolation", &pod.name_any()).await?;
        assert!(note.contains("its leader is in"), "{note}");
        Ok(())
    }
}

#[tokio::test]
async fn followers_in_another_rack_than_leader_are_deleted() -> Result<()> {
    let space = Space::new("only-mismatched").await?;
    let pods = train(&space, 4).await?;
    let [leader, right, wrong, waiting] = &pods[..] else { unreachable!() };
    space.send(right, "r2").await?;
    space.send(wrong, "r1").await?;
    space.place(leader, "mismatch-1").await?;
    space.in_rack("mismatch-1", "r2").await?;
    space.is_repaired(wrong).await?;
    space.settle().await?;
    for pod in [leader, right, waiting] {
        assert!(space.stays(pod).await?, "{}", pod.name_any());
    }
    let status = space.status("train").await?;
    assert_eq!((status.restarts, &*status.terminal_state), (0, ""), "it is nobody's failure");
    Ok(())
}
