//! Boards are told what happens to a JobSet and asked what a page has to show.

use jobset_objects::PartialPod;
use kube::runtime::watcher::Event;
use rstest::rstest;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::cell::CellKind;
use super::grid::CELLS;
use super::{Board, Boards, Revision};
use crate::mirror::{JobSetKey, Mirror, WatchEvent};
use crate::status::{Epochs, PodNode};

fn read<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

/// A cluster with the JobSet `ml/train`, and the pages that show it.
#[derive(Default)]
struct Cluster {
    mirror: Mirror,
    boards: Boards,
}

impl Cluster {
    /// A JobSet with a driver and four workers in two Jobs, in epoch 1.
    fn running() -> Self {
        let mut cluster = Self::default();
        cluster.open("train");
        cluster.jobset("train", &json!({"syncedEpoch": 1}));
        for (job, pods) in [("driver-0", 1), ("workers-0", 2), ("workers-1", 2)] {
            cluster.job(job, pods);
            (0..pods).for_each(|index| cluster.pod(job, index, 1));
        }
        assert!(cluster.update());
        cluster
    }

    /// A browser opens the page of a JobSet.
    fn open(&mut self, name: &str) {
        self.boards.open(&JobSetKey::new("ml", name), &self.mirror);
    }

    fn jobset(&mut self, name: &str, status: &Value) {
        let jobset = json!({
            "metadata": {"name": name, "namespace": "ml", "uid": "u1"},
            "spec": {"failurePolicy": {"maxRestarts": 5, "restartStrategy": "InPlaceRestart"}, "replicatedJobs": [
                {"name": "driver", "replicas": 1, "template": {"spec": {"parallelism": 1, "completions": 1}}},
                {"name": "workers", "replicas": 2, "template": {"spec": {"parallelism": 2, "completions": 2}}}]},
            "status": status,
        });
        self.mirror.apply(WatchEvent::JobSet(Event::Apply(read(jobset))));
    }

    fn job(&mut self, name: &str, pods: i32) {
        let (group, index) = name.split_once('-').unwrap();
        let job = json!({
            "metadata": {"name": format!("train-{name}"), "namespace": "ml", "labels": {
                "jobset.sigs.k8s.io/jobset-name": "train", "jobset.sigs.k8s.io/replicatedjob-name": group,
                "jobset.sigs.k8s.io/job-index": index}},
            "spec": {"parallelism": pods, "completions": pods},
        });
        self.mirror.apply(WatchEvent::Job(Event::Apply(read(job))));
    }

    /// The Pod of a Job with this completion index runs and has reported this epoch.
    fn pod(&mut self, job: &str, index: i32, epoch: i32) {
        self.mirror.apply(WatchEvent::Pod(Event::Apply(pod(job, index, epoch))));
    }

    fn update(&mut self) -> bool {
        self.boards.update(&mut self.mirror, None, Instant::now())
    }

    /// What the page of `ml/train` gets that shows this revision.
    fn page(&self, since: Revision) -> Option<Value> {
        let update = self.boards.jobset_since(&JobSetKey::new("ml", "train"), since);
        update.map(|update| serde_json::to_value(update).unwrap())
    }

    /// What the list of JobSets gets that shows this revision.
    fn list(&self, since: Revision) -> Option<Value> {
        self.boards.list_since(Some("ml"), since).map(|update| serde_json::to_value(update).unwrap())
    }
}

fn pod(job: &str, index: i32, epoch: i32) -> PartialPod {
    read(json!({
        "metadata": {"name": format!("train-{job}-{index}"), "namespace": "ml", "labels": {
            "jobset.sigs.k8s.io/jobset-name": "train", "jobset.sigs.k8s.io/jobset-uid": "u1",
            "batch.kubernetes.io/job-name": format!("train-{job}")},
            "annotations": {"batch.kubernetes.io/job-completion-index": index.to_string(), "jobset.sigs.k8s.io/epoch": epoch.to_string()}},
        "spec": {"containers": [{"name": "worker"}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }))
}

#[test]
fn first_update_has_all_pods_in_order() {
    let cluster = Cluster::running();
    let page = cluster.page(0).unwrap();
    assert_eq!(
        page["grid"],
        json!({
            "groups": [
                {"name": "driver", "jobs": [{"name": "train-driver-0", "pods": 1}], "more": 0},
                {"name": "workers", "jobs": [{"name": "train-workers-0", "pods": 2}, {"name": "train-workers-1", "pods": 2}],
                 "more": 0},
            ],
            "pods": ["train-driver-0-0", "train-workers-0-0", "train-workers-0-1", "train-workers-1-0", "train-workers-1-1"],
            "kinds": "RRRRR",
            "epochs": [1, 1, 1, 1, 1],
        })
    );
    let head = &page["head"];
    assert_eq!(
        (&head["state"], &head["jobs"], &head["workers"]["expected"]),
        (&json!("Starting"), &json!(3), &json!(5))
    );
    assert_eq!(head["replicatedJobs"][0]["jobs"], json!([]), "the Pods are in the grid alone");
    assert_eq!((&page["exists"], page.get("cells"), &page["problems"]), (&json!(true), None, &json!([])));
    assert_eq!(page["restarts"]["groupRestarts"], 0);
}

#[test]
fn changed_pod_travels_alone() {
    let mut cluster = Cluster::running();
    let shown = cluster.boards.revision();
    assert_eq!(cluster.page(shown), None);
    cluster.pod("workers-1", 0, 2);
    assert!(cluster.update());
    let page = cluster.page(shown).unwrap();
    assert_eq!(page["cells"], json!([[3, "W", 2, "train-workers-1-0"]]));
    assert_eq!((page.get("grid"), page.get("restarts")), (None, None));
    assert_eq!(page["revision"], json!(shown + 1));
    assert_eq!(cluster.page(shown + 1), None);
}

#[test]
fn slow_page_gets_changes_of_several_revisions_at_once() {
    let mut cluster = Cluster::running();
    let shown = cluster.boards.revision();
    for (epoch, kind) in [(2, "W"), (1, "R"), (2, "W")] {
        cluster.pod("workers-0", 1, epoch);
        cluster.update();
        cluster.pod("workers-1", 1, 2);
        cluster.update();
        let page = cluster.page(shown).unwrap();
        let cell = &page["cells"][0];
        assert_eq!((&cell[0], &cell[1]), (&json!(2), &json!(kind)));
    }
    let page = cluster.page(shown).unwrap();
    assert_eq!(page["cells"], json!([[2, "W", 2, "train-workers-0-1"], [4, "W", 2, "train-workers-1-1"]]));
}

#[test]
fn unchanged_objects_are_no_update() {
    let mut cluster = Cluster::running();
    let shown = cluster.boards.revision();
    cluster.jobset("train", &json!({"syncedEpoch": 1}));
    cluster.pod("workers-0", 1, 1);
    assert!(!cluster.update());
    assert_eq!((cluster.boards.revision(), cluster.page(shown), cluster.list(shown)), (shown, None, None));
}

#[test]
fn new_epochs_of_the_jobset_change_all_cells() {
    let mut cluster = Cluster::running();
    let shown = cluster.boards.revision();
    cluster.jobset("train", &json!({"syncedEpoch": 1, "deprecatedEpoch": 1, "groupRestarts": 1}));
    cluster.update();
    let page = cluster.page(shown).unwrap();
    let kinds: Vec<_> = page["cells"].as_array().unwrap().iter().map(|cell| &cell[1]).collect();
    assert_eq!(kinds, [&json!("O"); 5]);
    let barrier = json!({"lifted": false, "epoch": 2, "reported": 0, "expected": 5});
    assert_eq!((&page["head"]["barrier"], &page["restarts"]["groupRestarts"]), (&barrier, &json!(1)));
}

#[test]
fn job_of_another_size_is_a_new_grid() {
    let mut cluster = Cluster::running();
    let shown = cluster.boards.revision();
    cluster.job("workers-1", 3);
    cluster.update();
    let page = cluster.page(shown).unwrap();
    assert_eq!((&page["grid"]["kinds"], page.get("cells")), (&json!("RRRRR-"), None));
    assert_eq!(page["grid"]["pods"][5], "");
}

#[test]
fn newest_of_pods_with_the_same_index_is_shown() {
    let mut cluster = Cluster::running();
    let shown = cluster.boards.revision();
    let mut replacement = pod("workers-0", 1, 2);
    replacement.metadata.name = Some("train-workers-0-1-b".to_owned());
    replacement.metadata.creation_timestamp = read(json!("2026-11-22T10:00:00Z"));
    cluster.mirror.apply(WatchEvent::Pod(Event::Apply(replacement)));
    cluster.update();
    assert_eq!(cluster.page(shown).unwrap()["cells"], json!([[2, "W", 2, "train-workers-0-1-b"]]));
}

#[test]
fn pod_without_valid_index_has_a_free_cell() {
    let mut cluster = Cluster::running();
    let shown = cluster.boards.revision();
    let mut hostile = pod("workers-0", 0, 1);
    let annotations = hostile.metadata.annotations.as_mut().unwrap();
    annotations.insert("batch.kubernetes.io/job-completion-index".to_owned(), i32::MAX.to_string());
    cluster.mirror.apply(WatchEvent::Pod(Event::Apply(hostile)));
    assert!(!cluster.update(), "the cell of index 0 is the free one: {:?}", cluster.page(shown));
}

#[test]
fn more_pods_than_expected_have_cells_of_their_own() {
    let mut cluster = Cluster::running();
    let shown = cluster.boards.revision();
    cluster.pod("driver-0", 7, 1);
    cluster.update();
    let grid = &cluster.page(shown).unwrap()["grid"];
    assert_eq!((&grid["pods"][1], &grid["kinds"]), (&json!("train-driver-0-7"), &json!("RRRRRR")));
}

#[test]
fn jobset_of_billions_of_pods_has_bounded_grid() {
    let mut cluster = Cluster::running();
    let shown = cluster.boards.revision();
    cluster.job("driver-0", i32::MAX);
    cluster.job("workers-0", i32::MAX);
    cluster.job("workers-1", i32::MAX);
    cluster.update();
    let grid = &cluster.page(shown).unwrap()["grid"];
    let cells = grid["kinds"].as_str().unwrap();
    // A Pod that exists has a cell, also where the bound leaves none for Pods that do not.
    assert_eq!((cells.len(), cells.matches('R').count()), (CELLS + 4, 5));
    let more = |group: usize| grid["groups"][group]["more"].as_u64();
    let wanted = i32::MAX.unsigned_abs() as usize;
    assert_eq!([more(0), more(1)], [wanted - CELLS, 2 * wanted - 4].map(|count| u64::try_from(count).ok()));
}

#[test]
fn jobset_has_a_board_only_while_its_page_is_open() {
    let mut cluster = Cluster::running();
    let key = JobSetKey::new("ml", "train");
    cluster.boards.close(&key);
    cluster.pod("workers-1", 0, 2);
    cluster.update();
    assert!(cluster.boards.board(&key).is_none());
    assert_eq!(cluster.page(0).unwrap()["exists"], true);
    cluster.open("train");
    let page = cluster.page(0).unwrap();
    assert_eq!((&page["grid"]["kinds"], &page["head"]["state"]), (&json!("RRRWR"), &json!("Starting")));
}

#[test]
fn board_changes_with_its_jobset_alone() {
    let mut cluster = Cluster::running();
    let key = JobSetKey::new("ml", "train");
    let changed = |cluster: &Cluster| cluster.boards.board(&key).map(Board::changed);
    let before = changed(&cluster);
    cluster.jobset("other", &json!({}));
    assert!(cluster.update());
    assert_eq!(changed(&cluster), before);
    // Of the second change, the grid alone knows: the worker has not run before.
    for reason in ["ContainerCreating", "ImagePullBackOff"] {
        let mut pod = pod("workers-1", 0, 1);
        pod.status = read(json!({"phase": "Pending", "containerStatuses": [
            {"name": "worker", "state": {"waiting": {"reason": reason}}}]}));
        cluster.mirror.apply(WatchEvent::Pod(Event::Apply(pod)));
        assert!(cluster.update());
        assert_eq!(changed(&cluster), Some(cluster.boards.revision()));
    }
}

#[test]
fn page_opened_before_its_jobset_is_created_shows_it() {
    let mut cluster = Cluster::default();
    cluster.open("train");
    assert_eq!(cluster.page(0).unwrap()["exists"], false);
    cluster.jobset("train", &json!({}));
    assert!(cluster.update());
    assert_eq!(cluster.page(0).unwrap()["head"]["name"], "train");
}

#[test]
fn deleted_jobset_is_shown_on_page_and_leaves_list() {
    let mut cluster = Cluster::running();
    let shown = cluster.boards.revision();
    cluster.mirror.apply(WatchEvent::JobSet(Event::Delete(read(json!({
        "metadata": {"name": "train", "namespace": "ml"}, "spec": {"replicatedJobs": []}})))));
    cluster.update();
    assert_eq!(cluster.page(shown).unwrap()["exists"], false);
    let list = cluster.list(shown).unwrap();
    assert_eq!((&list["removed"], &list["whole"]), (&json!([["ml", "train"]]), &json!(false)));
    let shown = cluster.boards.revision();
    cluster.jobset("train", &json!({}));
    cluster.update();
    assert_eq!(cluster.page(shown).unwrap()["exists"], true);
}

#[test]
fn list_has_changed_jobsets_alone() {
    let mut cluster = Cluster::running();
    cluster.jobset("other", &json!({}));
    cluster.update();
    let names =
        |list: &Value| list["jobsets"].as_array().unwrap().iter().map(|it| it["name"].clone()).collect::<Vec<_>>();
    let whole = cluster.list(0).unwrap();
    assert_eq!(
        (names(&whole), &whole["whole"], &whole["namespace"]),
        (vec![json!("other"), json!("train")], &json!(true), &json!("ml"))
    );
    let shown = cluster.boards.revision();
    cluster.jobset("other", &json!({"groupRestarts": 1}));
    cluster.update();
    let changed = cluster.list(shown).unwrap();
    assert_eq!((names(&changed), &changed["whole"]), (vec![json!("other")], &json!(false)));
}

#[test]
fn list_page_older_than_what_is_remembered_gets_whole_list() {
    let mut cluster = Cluster::running();
    let shown = cluster.boards.revision();
    for number in 0..=1000 {
        let name = format!("short-{number}");
        cluster.jobset(&name, &json!({}));
        cluster.update();
        let metadata = json!({"name": name, "namespace": "ml"});
        let deleted = json!({"metadata": metadata, "spec": {"replicatedJobs": []}});
        cluster.mirror.apply(WatchEvent::JobSet(Event::Delete(read(deleted))));
        cluster.update();
    }
    let list = cluster.list(shown).unwrap();
    assert_eq!(
        (&list["whole"], list["jobsets"].as_array().unwrap().len(), &list["removed"]),
        (&json!(true), 1, &json!([]))
    );
    assert_eq!(cluster.list(cluster.boards.revision()), None);
}

#[test]
fn problem_is_told_once_and_its_end_as_well() {
    let mut cluster = Cluster::running();
    let shown = cluster.boards.revision();
    assert!(cluster.boards.update(&mut cluster.mirror, Some("No controller leads."), Instant::now()));
    assert!(!cluster.boards.update(&mut cluster.mirror, Some("No controller leads."), Instant::now()));
    assert_eq!(cluster.page(shown).unwrap()["problems"], json!(["No controller leads."]));
    assert!(cluster.update());
    assert_eq!(cluster.list(shown + 1).unwrap()["problems"], json!([]));
}

#[rstest]
#[case::runs(json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}), Some("2"), CellKind::Running)]
#[case::ready_in_old_epoch(json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}), Some("1"), CellKind::Restarting)]
#[case::at_barrier(json!({"phase": "Pending"}), Some("3"), CellKind::Waiting)]
#[case::not_reported(json!({"phase": "Pending"}), None, CellKind::Starting)]
#[case::lifted_but_not_ready(json!({"phase": "Running"}), Some("2"), CellKind::Starting)]
#[case::invalid_epoch(json!({"phase": "Running"}), Some("many"), CellKind::Failed)]
#[case::worker_failed(json!({"phase": "Running", "containerStatuses": [
    {"name": "worker", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]}), Some("2"), CellKind::Failed)]
#[case::worker_ended_after_it_was_told(json!({"phase": "Running", "containerStatuses": [
    {"name": "worker", "state": {"terminated": {"exitCode": 1, "reason": "Error"}}}]}), Some("1"), CellKind::Restarting)]
#[case::image(json!({"phase": "Pending", "containerStatuses": [
    {"name": "worker", "state": {"waiting": {"reason": "ImagePullBackOff"}}}]}), None, CellKind::Failed)]
#[case::failed(json!({"phase": "Failed", "reason": "Evicted"}), Some("2"), CellKind::Failed)]
#[case::completed(json!({"phase": "Succeeded"}), Some("2"), CellKind::Completed)]
fn cell_kind_follows_from_pod(#[case] status: Value, #[case] epoch: Option<&str>, #[case] expected: CellKind) {
    let annotations = epoch.map(|epoch| json!({"jobset.sigs.k8s.io/epoch": epoch}));
    let pod: PartialPod = read(json!({
        "metadata": {"name": "a", "annotations": annotations}, "spec": {"containers": [{"name": "worker"}]}, "status": status}));
    let epochs = Epochs { synced: 2, deprecated: 1, ..Epochs::default() };
    assert_eq!(CellKind::of(&PodNode::of(&pod, Some(epochs))), expected);
}

#[test]
fn cell_of_pod_being_deleted_says_so() {
    let mut pod = pod("workers-0", 0, 2);
    pod.metadata.deletion_timestamp = read(json!("2026-11-22T10:00:00Z"));
    let epochs = Epochs { synced: 2, deprecated: 1, ..Epochs::default() };
    assert_eq!(CellKind::of(&PodNode::of(&pod, Some(epochs))), CellKind::Deleting);
}
