//! How often a status is written. The status of a JobSet that restarts in place is sent to thousands of agents.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use jobset_api::{JobSetStatus, ReplicatedJobStatus};

use crate::store::Key;

/// Shortest time between two writes of one JobSet's status that nobody waits for.
const PAUSE: Duration = Duration::from_secs(1);

/// Whether somebody waits for the difference: anything but how many Jobs are ready, succeeded, failed, active or
/// suspended.
pub(super) fn urgent(stored: &JobSetStatus, planned: &JobSetStatus) -> bool {
    without_counts(stored) != without_counts(planned)
}

fn without_counts(status: &JobSetStatus) -> JobSetStatus {
    let mut status = JobSetStatus { jobs_ready: String::new(), ..status.clone() };
    for ReplicatedJobStatus { ready, succeeded, failed, active, suspended, .. } in &mut status.replicated_jobs_status {
        for count in [ready, succeeded, failed, active, suspended] {
            *count = 0;
        }
    }
    status
}

/// When each JobSet's status was written last.
#[derive(Debug, Default)]
pub(super) struct Writes(HashMap<Key, Instant>);

impl Writes {
    /// The status was written.
    pub(super) fn written(&mut self, key: &Key, now: Instant) {
        self.0.insert(key.clone(), now);
    }

    /// When a difference that nobody waits for may be written; `None` for at once.
    pub(super) fn pause(&self, key: &Key, now: Instant) -> Option<Instant> {
        self.0.get(key).map(|written| *written + PAUSE).filter(|due| now < *due)
    }

    /// The JobSet is gone.
    pub(super) fn forget(&mut self, key: &Key) {
        self.0.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use jobset_api::conditions;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use k8s_openapi::jiff::Timestamp;
    use rstest::rstest;

    use super::*;

    fn workers() -> ReplicatedJobStatus {
        ReplicatedJobStatus { name: "workers".to_owned(), ready: 2, active: 3, ..ReplicatedJobStatus::default() }
    }

    fn status() -> JobSetStatus {
        JobSetStatus { replicated_jobs_status: vec![workers()], synced_epoch: 3, ..JobSetStatus::default() }
    }

    fn with(workers: ReplicatedJobStatus) -> JobSetStatus {
        JobSetStatus { replicated_jobs_status: vec![workers], ..status() }
    }

    fn suspended() -> JobSetStatus {
        let mut status = status();
        conditions::set(
            &mut status.conditions,
            conditions::SUSPENDED,
            true,
            conditions::SUSPENDED_JOBS,
            "",
            &Time(Timestamp::UNIX_EPOCH),
        );
        status
    }

    #[rstest]
    #[case::nothing(status(), false)]
    #[case::ready(with(ReplicatedJobStatus { ready: 3, ..workers() }), false)]
    #[case::succeeded(with(ReplicatedJobStatus { succeeded: 1, ..workers() }), false)]
    #[case::failed(with(ReplicatedJobStatus { failed: 1, ..workers() }), false)]
    #[case::active(with(ReplicatedJobStatus { active: 0, ..workers() }), false)]
    #[case::suspended(with(ReplicatedJobStatus { suspended: 1, ..workers() }), false)]
    #[case::restarts_of_a_job(with(ReplicatedJobStatus { job_restarts: vec![1], ..workers() }), true)]
    #[case::restarts_of_a_replicated_job(with(ReplicatedJobStatus { restarts: 1, ..workers() }), true)]
    #[case::no_replicated_job(JobSetStatus { replicated_jobs_status: vec![], ..status() }, true)]
    #[case::deprecated_epoch(JobSetStatus { deprecated_epoch: 3, ..status() }, true)]
    #[case::synced_epoch(JobSetStatus { synced_epoch: 4, ..status() }, true)]
    #[case::free_epoch(JobSetStatus { free_epoch: 4, ..status() }, true)]
    #[case::restarts(JobSetStatus { restarts: 1, ..status() }, true)]
    #[case::terminal_state(JobSetStatus { terminal_state: "Failed".to_owned(), ..status() }, true)]
    #[case::condition(suspended(), true)]
    fn only_counts_of_jobs_are_not_urgent(#[case] planned: JobSetStatus, #[case] wanted: bool) {
        assert_eq!(urgent(&status(), &planned), wanted);
    }

    #[test]
    fn what_nobody_waits_for_is_written_once_a_second() {
        let key = |name: &str| Key { namespace: "default".to_owned(), name: name.to_owned() };
        let (mut writes, now) = (Writes::default(), Instant::now());
        assert_eq!(writes.pause(&key("a"), now), None);
        writes.written(&key("a"), now);
        let due = now + Duration::from_secs(1);
        assert_eq!(writes.pause(&key("a"), now + Duration::from_millis(999)), Some(due));
        assert_eq!(writes.pause(&key("a"), due), None);
        assert_eq!(writes.pause(&key("b"), now), None);
        writes.forget(&key("a"));
        assert_eq!(writes.pause(&key("a"), now), None);
    }
}
