use jobset_api::{JobSet, RestartStrategy};
use jobset_rules::build::{Attempt, DesiredJob, JobPlace};
use jobset_store::PriorityClasses;
use k8s_openapi::jiff::Timestamp;
use rstest::rstest;
use serde_json::json;

use super::*;

fn delete(name: &str) -> Action {
    Action::DeleteJob { name: name.to_owned(), uid: String::new() }
}

fn create(group: &str, name: &str) -> Action {
    let group = json!({"name": group, "template": {}});
    let jobset: JobSet = serde_json::from_value(json!({"metadata": {}, "spec": {"replicatedJobs": [group]}})).unwrap();
    let (place, attempt) = (JobPlace { group_index: 0, job_index: 0 }, Attempt::default());
    let job = DesiredJob::of(&jobset, place, attempt, RestartStrategy::Recreate, &PriorityClasses::default());
    Action::CreateJob(Box::new(DesiredJob { name: name.to_owned(), ..job }))
}

fn note(message: &str) -> Note {
    Note::warning("Refused", message.to_owned())
}

/// What is left of a plan of two requests, and when the withheld ones are due, in seconds.
fn left(refusals: &mut Refusals, generation: i64, start: Instant, second: u64) -> (usize, Option<u64>) {
    let mut actions = vec![delete("a"), delete("b")];
    let now = start + Duration::from_secs(second);
    let due = refusals.withhold(Some(generation), &mut actions, true, now);
    (actions.len(), due.map(|due| due.duration_since(start).as_secs()))
}

#[test]
fn a_refused_request_waits_ever_longer_while_others_are_made() {
    let (mut refusals, now) = (Refusals::default(), Instant::now());
    assert_eq!(left(&mut refusals, 1, now, 0), (2, None));
    refusals.refused(Some(1), Request::of(&delete("a")), Some(note("refused")), now);
    assert_eq!(left(&mut refusals, 1, now, 0), (1, Some(1)));
    assert_eq!(refusals.notes(), [(note("refused"), 1)]);
    assert_eq!(left(&mut refusals, 1, now, 1), (2, None));
    let later = now + Duration::from_secs(1);
    refusals.refused(Some(1), Request::of(&delete("a")), Some(note("refused")), later);
    assert_eq!(left(&mut refusals, 1, now, 1), (1, Some(3)));
    assert_eq!(refusals.notes(), [(note("refused"), 2)]);
    for minute in 1..40 {
        refusals.refused(Some(1), Request::of(&delete("a")), None, now + Duration::from_mins(minute));
    }
    assert_eq!(left(&mut refusals, 1, now, 39 * 60), (1, Some(40 * 60)));
}

#[test]
fn an_edited_jobset_is_tried_at_once() {
    let (mut refusals, now) = (Refusals::default(), Instant::now());
    for second in [0, 1, 3] {
        let now = now + Duration::from_secs(second);
        refusals.refused(Some(1), Request::of(&delete("a")), Some(note("refused")), now);
    }
    assert_eq!(left(&mut refusals, 1, now, 4), (1, Some(7)));
    assert_eq!(left(&mut refusals, 2, now, 4), (2, None));
    // Nobody knows better before that.
    assert_eq!(refusals.notes(), [(note("refused"), 3)]);
    refusals.refused(Some(2), Request::of(&delete("a")), None, now + Duration::from_secs(4));
    assert_eq!(left(&mut refusals, 2, now, 4), (1, Some(5)));
}

/// Names of the Jobs that are left to create, and when the withheld ones are due, in seconds.
fn created(refusals: &mut Refusals, start: Instant, second: u64) -> (Vec<String>, Option<u64>) {
    let mut actions = vec![create("w", "w-0"), create("w", "w-1"), create("driver", "driver-0")];
    let due = refusals.withhold(Some(1), &mut actions, true, start + Duration::from_secs(second));
    let name = |action: &Action| match action {
        Action::CreateJob(job) => job.name.clone(),
        _ => unreachable!("only Jobs are created"),
    };
    (actions.iter().map(name).collect(), due.map(|due| due.duration_since(start).as_secs()))
}

#[test]
fn the_jobs_of_a_replicated_job_are_refused_as_one() {
    let (mut refusals, now) = (Refusals::default(), Instant::now());
    let jobs = Request::shared(&create("w", "w-0")).unwrap();
    assert_eq!(Request::shared(&create("w", "w-1")).as_ref(), Some(&jobs));
    assert_eq!(Request::shared(&delete("w-0")), None);
    for (times, second, until, next) in [(1, 0, 1, "w-0"), (2, 1, 3, "w-1"), (3, 3, 7, "w-0")] {
        let at = now + Duration::from_secs(second);
        for message in ["w-0", "w-1", "w-2"] {
            let due = refusals.refused(Some(1), jobs.clone(), Some(note(message)), at);
            assert_eq!(due.duration_since(now).as_secs(), until, "{message}");
        }
        assert_eq!(refusals.notes(), [(note("w-0"), times)]);
        assert_eq!(created(&mut refusals, now, until - 1), (vec!["driver-0".to_owned()], Some(until)));
        let tried = [next, "driver-0"].map(ToOwned::to_owned).to_vec();
        assert_eq!(created(&mut refusals, now, until), (tried, None), "one is enough to see");
    }
    refusals.accepted(&jobs, now + Duration::from_secs(7));
    assert_eq!(created(&mut refusals, now, 7).0.len(), 3);
}

#[test]
fn a_job_whose_name_is_taken_holds_up_no_other() {
    let (mut refusals, now) = (Refusals::default(), Instant::now());
    refusals.refused(Some(1), Request::of(&create("w", "w-0")), None, now);
    assert_eq!(created(&mut refusals, now, 0), (vec!["w-1".to_owned(), "driver-0".to_owned()], Some(1)));
}

#[test]
fn accepted_request_clears_refusal_of_earlier_reconciliation() {
    let (mut refusals, now) = (Refusals::default(), Instant::now());
    let jobs = Request::Jobs("w".to_owned());
    refusals.refused(Some(1), jobs.clone(), Some(note("refused")), now);
    refusals.accepted(&jobs, now);
    assert_eq!(refusals.notes(), [(note("refused"), 1)]);
    refusals.accepted(&jobs, now + Duration::from_secs(1));
    assert_eq!(refusals.notes(), []);
}

#[rstest]
#[case::the_same("Job w-0: no containers", "Job w-0: no containers", true)]
#[case::another_use_of_the_quota("Job w-0: quota: used: 3, limited: 3", "Job w-0: quota: used: 12, limited: 3", true)]
#[case::another_job_of_those_refused_as_one("Job w-0: quota", "Job w-1: quota", true)]
#[case::another_replicated_job("Job w-0: quota", "Job x-0: quota", false)]
#[case::another_reason("Job w-0: quota", "Job w-0: forbidden", false)]
fn only_a_new_reason_changes_the_note(#[case] before: &str, #[case] now: &str, #[case] same: bool) {
    let wanted = if same { (note(before), 4) } else { (note(now), 1) };
    assert_eq!(still_true(Some((note(before), 3)), Some(note(now))), Some(wanted));
}

#[test]
fn the_notes_are_in_a_stable_order() {
    let (mut refusals, now) = (Refusals::default(), Instant::now());
    for name in ["c", "a", "d", "b"] {
        refusals.refused(Some(1), Request::of(&delete(name)), Some(note(name)), now);
    }
    assert_eq!(refusals.notes(), ["a", "b", "c", "d"].map(|text| (note(text), 1)));
}

#[test]
fn what_somebody_else_provides_is_looked_for_once_a_minute() {
    let (mut refusals, now) = (Refusals::default(), Instant::now());
    refusals.provided(Some(1), Request::of(&delete("b")), now);
    assert_eq!(left(&mut refusals, 1, now, 59), (1, Some(60)));
    assert_eq!(left(&mut refusals, 1, now, 60), (2, None));
}

#[test]
fn one_late_pod_a_minute_is_asked_about() {
    let (mut refusals, now) = (Refusals::default(), Instant::now());
    let ask = |pod: &str| Action::FindWarning { pod: pod.into(), uid: pod.into(), since: Timestamp::UNIX_EPOCH };
    refusals.provided(Some(1), Request::of(&ask("a")), now);
    for (second, asked) in [(59, 0), (60, 1)] {
        let mut actions = vec![ask("b")];
        refusals.withhold(Some(1), &mut actions, true, now + Duration::from_secs(second));
        assert_eq!(actions.len(), asked);
    }
}

#[test]
fn what_is_not_planned_any_more_begins_anew() {
    let (mut refusals, now) = (Refusals::default(), Instant::now());
    refusals.refused(Some(1), Request::of(&delete("a")), None, now);
    // A restart may have to be written first.
    assert_eq!(refusals.withhold(Some(1), &mut vec![delete("b")], false, now), None);
    assert_eq!(left(&mut refusals, 1, now, 0), (1, Some(1)));
    refusals.withhold(Some(1), &mut vec![delete("b")], true, now);
    assert_eq!(left(&mut refusals, 1, now, 0), (2, None));
    assert!(refusals.entries.is_empty());
}
