//! Exclusive placement, as far as it is the controller's: Pods that follow a leader into its topology domain, and those
//! that were sent elsewhere (`users.md`, item 12). Admission, which sends them, is not here: the tests do that.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use jobset_harness::wait;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::fixture::{LIMIT, Space};
use crate::jobsets::{feature, group, jobset, with};

/// When the Job controller replaces a Pod that was deleted: at once, or when it has ended.
const AT_ONCE: &str = "TerminatingOrFailed";
const ENDED: &str = "Failed";

/// Label of nodes that names their rack. Nodes are everybody's: each test has its own.
fn rack(space: &Space) -> String {
    format!("example.com/rack-of-{}", space.namespace)
}

/// A Job that is placed exclusively, of a leader and followers, each held back by a gate until it is told where to go.
async fn train(space: &Space, pods: usize, replacement: &str) -> Result<Vec<Pod>> {
    let exclusive = json!({"metadata": {"annotations": {"alpha.jobset.sigs.k8s.io/exclusive-topology": rack(space)}}});
    // A Pod that is deleted counts as failed.
    let held_back = json!({"template": {"spec": {"backoffLimit": 6, "podReplacementPolicy": replacement,
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
async fn only_followers_that_were_sent_to_another_rack_than_their_leaders_go() -> Result<()> {
    let space = Space::new("only-mismatched").await?;
    let pods = train(&space, 4, AT_ONCE).await?;
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

#[tokio::test]
async fn a_leader_that_is_terminating_decides_nothing_and_its_successor_does() -> Result<()> {
    let space = Space::new("leader-terminates").await?;
    let pods = train(&space, 2, ENDED).await?;
    let [leader, follower] = &pods[..] else { unreachable!() };
    space.send(follower, "r1").await?;
    space.place(leader, "terminates-1").await?;
    // Bound, it stays until a kubelet has ended it.
    space.all_pods().delete(&leader.name_any(), &DeleteParams::default()).await?;
    space.in_rack("terminates-1", "r2").await?;
    space.settle().await?;
    assert!(space.all_pods().get_opt(&leader.name_any()).await?.is_some(), "the old leader is still there");
    assert!(space.stays(follower).await?);

    space.fail(leader, 143).await?;
    let successor = space.successor("train", leader).await?;
    space.settle().await?;
    assert!(space.stays(follower).await?, "neither of the leaders decides");
    space.place(&successor, "terminates-2").await?;
    space.in_rack("terminates-2", "r3").await?;
    space.is_repaired(follower).await
}

#[tokio::test]
async fn a_leader_that_has_ended_decides_nothing() -> Result<()> {
    let space = Space::new("leader-ended").await?;
    let pods = train(&space, 2, AT_ONCE).await?;
    let [leader, follower] = &pods[..] else { unreachable!() };
    space.send(follower, "r1").await?;
    space.place(leader, "ended-1").await?;
    space.succeed(leader).await?;
    space.in_rack("ended-1", "r2").await?;
    space.settle().await?;
    assert!(space.stays(follower).await?);
    // The follower ends as well, and the JobSet with it: nothing waits for a leader.
    space.succeed(follower).await?;
    space.condition("train", "Completed", "True").await?;
    Ok(())
}

#[tokio::test]
async fn a_leader_whose_node_is_unknown_decides_nothing_until_it_is_known() -> Result<()> {
    let space = Space::new("leaders-node").await?;
    let pods = train(&space, 2, AT_ONCE).await?;
    let [leader, follower] = &pods[..] else { unreachable!() };
    space.send(follower, "r1").await?;
    space.place(leader, "unknown-1").await?;
    let nodes: Api<Node> = Api::all(space.client.clone());
    nodes.delete("unknown-1", &DeleteParams::default()).await?;
    space.settle().await?;
    assert!(space.stays(follower).await?, "without a node");
    let node = json!({"metadata": {"name": "unknown-1", "labels": {rack(&space): "r1"}}});
    nodes.create(&PostParams::default(), &serde_json::from_value(node)?).await?;
    space.settle().await?;
    assert!(space.stays(follower).await?, "in the rack that it was sent to");
    space.in_rack("unknown-1", "r2").await?;
    space.is_repaired(follower).await
}

#[tokio::test]
async fn by_node_selector_the_pods_of_each_job_ask_for_the_nodes_that_were_labelled_for_it() -> Result<()> {
    let space = Space::new("by-selector").await?;
    let name = "exclusive-placement-node-selector";
    space.create(feature(name)?).await?;
    for index in ["0", "1"] {
        let job = format!("{name}-workers-{index}");
        for pod in space.pods_of(&job, 2).await? {
            let spec = pod.spec.as_ref().context("no spec")?;
            let wanted = ("alpha.jobset.sigs.k8s.io/namespaced-job".to_owned(), format!("by-selector_{job}"));
            assert_eq!(spec.node_selector, Some(BTreeMap::from([wanted])));
            let tolerated = spec
                .tolerations
                .iter()
                .flatten()
                .find(|toleration| toleration.key.as_deref() == Some("alpha.jobset.sigs.k8s.io/no-schedule"));
            let tolerated = tolerated.context("the taint is not tolerated")?;
            assert_eq!(
                (tolerated.operator.as_deref(), tolerated.effect.as_deref()),
                (Some("Exists"), Some("NoSchedule"))
            );
            assert!(!pod.labels().contains_key("jobset.sigs.k8s.io/priority"), "admission has nothing to do");
            let strategy = pod.annotations().get("alpha.jobset.sigs.k8s.io/node-selector");
            assert_eq!(strategy.map(String::as_str), Some("true"));
        }
    }
    Ok(())
}

#[tokio::test]
async fn annotated_at_the_jobset_all_pods_are_placed_and_at_a_template_those_of_it() -> Result<()> {
    let space = Space::new("annotated").await?;
    space.create(feature("exclusive-placement")?).await?;
    space.create(feature("exclusive-placement-template")?).await?;
    for (job, pods, wanted) in [
        ("exclusive-placement-driver-0", 1, Some("cloud.provider.com/rack")),
        ("exclusive-placement-workers-1", 2, Some("cloud.provider.com/rack")),
        ("exclusive-placement-template-driver-0", 1, None),
        ("exclusive-placement-template-workers-1", 2, Some("cloud.provider.com/rack")),
    ] {
        for pod in space.pods_of(job, pods).await? {
            let topology = pod.annotations().get("alpha.jobset.sigs.k8s.io/exclusive-topology");
            assert_eq!(topology.map(String::as_str), wanted, "{job}");
            // Also where the Pod is not placed: another one that is keeps away from it.
            assert_eq!(pod.labels()["jobset.sigs.k8s.io/priority"], "0", "{job}");
        }
        let on_job = space.jobs().get(job).await?;
        let topology = on_job.annotations().get("alpha.jobset.sigs.k8s.io/exclusive-topology");
        assert_eq!(topology.map(String::as_str), wanted, "{job}");
    }
    Ok(())
}
