//! Many notes of one reason are one Event.

use jobset_api::event;
use jobset_store::{ControllerRef, JobView};
use rstest::rstest;
use serde_json::json;

use super::fixture::{job, jobset, reconcile};
use super::world::World;

/// More than fit into an Event.
const JOBS: i32 = 5_000;

#[rstest]
#[case::no_attempt(JobView { attempt: None, ..job(0, None) }, event::JOB_MISLABELLED)]
#[case::wrong_index(JobView { index: Some(0), ..job(0, None) }, event::JOB_MISLABELLED)]
#[case::another_owner(
    JobView {
        controller: Some(ControllerRef { kind: "Job".to_owned(), name: "other".to_owned(), uid: "o".to_owned() }),
        ..job(0, None)
    },
    event::JOB_CREATION_FAILED
)]
fn thousands_of_jobs_are_one_note(#[case] each: JobView, #[case] reason: &str) {
    let spec = json!({"replicatedJobs": [{"name": "w", "replicas": JOBS, "template": {"spec": {}}}]});
    let world = World::new(jobset(&spec, &json!(null)));
    let world = (1..JOBS).fold(world, |world, index| world.job(&format!("train-w-{index}"), each.clone()));
    let notes = reconcile(&world).notes;
    let [note] = &notes[..] else { unreachable!("{} notes", notes.len()) };
    assert_eq!(note.reason, reason);
    assert!(note.message.starts_with("Job train-w-1") && note.message.len() < 1_024, "{}", note.message);
    let more = note.message.rsplit_once("; and ").unwrap().1.strip_suffix(" more").unwrap();
    let listed = note.message.matches("Job train-w-").count();
    assert_eq!(more.parse::<usize>().unwrap() + listed, 4_999);
}
