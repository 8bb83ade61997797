//! What of a status decides something. The rest are counts for people.

use jobset_api::{JobSetStatus, ReplicatedJobStatus};

/// Whether two statuses differ by more than counts of Jobs that only people read.
pub fn differs_in_decisions(one: &JobSetStatus, other: &JobSetStatus) -> bool {
    without_counts(one) != without_counts(other)
}

/// The status without those counts, without the ledger and the numbers of the agent stream, which no rule decides by, and without the
/// steps, by which rules decide when an epoch ends.
pub fn without_counts(status: &JobSetStatus) -> JobSetStatus {
    let jobs_ready = String::new();
    let mut status = JobSetStatus { jobs_ready, ledger: None, agent_stream: None, progress: None, ..status.clone() };
    for ReplicatedJobStatus { ready, succeeded, failed, active, suspended, .. } in &mut status.replicated_jobs_status {
        for count in [ready, succeeded, failed, active, suspended] {
            *count = 0;
        }
    }
    status
}

#[cfg(test)]
mod tests {
    use jobset_api::{AgentStreamStatus, GroupProgress, LaterFields, Ledger, LedgerBucket, LedgerTimes, conditions};
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
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
        let (mut status, now) = (status(), Time(Timestamp::UNIX_EPOCH));
        let (type_, reason) = (conditions::SUSPENDED, conditions::SUSPENDED_JOBS);
        conditions::set(&mut status.conditions, type_, true, reason, "", &now);
        status
    }

    fn ledger() -> Ledger {
        let (bucket, since) = (LedgerBucket::Running, MicroTime(Timestamp::UNIX_EPOCH));
        Ledger {
            bucket,
            since,
            milliseconds: LedgerTimes::default(),
            last_addition: None,
            redone_milliseconds: 0,
            redone_steps: 0,
            later: LaterFields::new(),
        }
    }

    #[rstest]
    #[case::nothing(status(), false)]
    #[case::ready(with(ReplicatedJobStatus { ready: 3, ..workers() }), false)]
    #[case::succeeded(with(ReplicatedJobStatus { succeeded: 1, ..workers() }), false)]
    #[case::failed(with(ReplicatedJobStatus { failed: 1, ..workers() }), false)]
    #[case::active(with(ReplicatedJobStatus { active: 0, ..workers() }), false)]
    #[case::suspended(with(ReplicatedJobStatus { suspended: 1, ..workers() }), false)]
    #[case::ledger(JobSetStatus { ledger: Some(ledger()), ..status() }, false)]
    #[case::agent_stream(JobSetStatus { agent_stream: Some(AgentStreamStatus::default()), ..status() }, false)]
    #[case::progress(JobSetStatus { progress: Some(GroupProgress { step: Some(7), ..GroupProgress::default() }), ..status() }, false)]
    #[case::restarts_of_a_job(with(ReplicatedJobStatus { job_restarts: vec![1], ..workers() }), true)]
    #[case::restarts_of_a_replicated_job(with(ReplicatedJobStatus { restarts: 1, ..workers() }), true)]
    #[case::no_replicated_job(JobSetStatus { replicated_jobs_status: vec![], ..status() }, true)]
    #[case::deprecated_epoch(JobSetStatus { deprecated_epoch: 3, ..status() }, true)]
    #[case::synced_epoch(JobSetStatus { synced_epoch: 4, ..status() }, true)]
    #[case::free_epoch(JobSetStatus { free_epoch: 4, ..status() }, true)]
    #[case::restarts(JobSetStatus { restarts: 1, ..status() }, true)]
    #[case::terminal_state(JobSetStatus { terminal_state: "Failed".to_owned(), ..status() }, true)]
    #[case::execution_attempts(JobSetStatus { execution_attempts: Some(0), ..status() }, true)]
    #[case::execution_ended(JobSetStatus { execution_ended: true, ..status() }, true)]
    #[case::start_time(JobSetStatus { start_time: Some(Time(Timestamp::UNIX_EPOCH)), ..status() }, true)]
    #[case::condition(suspended(), true)]
    fn status_differs_in_all_but_counts(#[case] planned: JobSetStatus, #[case] expected: bool) {
        assert_eq!(differs_in_decisions(&status(), &planned), expected);
    }
}
