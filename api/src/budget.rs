//! What `maxRestarts` limits: all restarts of a JobSet together, or the restarts of each of its parts.
//!
//! The budget of a JobSet never changes. An annotation stores it, not the status: another controller writes the status
//! from its own types and drops fields that it does not know.

use serde::Serialize;

use crate::{JobSet, JobSetStatus, ReplicatedJobStatus, labels, names};

/// Which restarts share one `maxRestarts`. The names are the values of [`labels::RESTART_BUDGET`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub enum RestartBudget {
    /// All counted restarts of the JobSet, its replicatedJobs and its Jobs share one budget, as in the Go JobSet.
    #[default]
    Shared,
    /// The JobSet, each replicatedJob and each Job have their own budget of `maxRestarts`.
    Separate,
}

/// What restarts and uses a budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope<'a> {
    JobSet,
    ReplicatedJob(&'a str),
    Job { replicated_job: &'a str, index: i32 },
}

impl Scope<'_> {
    /// The scope in words, such as `replicatedJob workers`. `jobset` is the name of the JobSet.
    pub fn describe(self, jobset: &str) -> String {
        match self {
            Self::JobSet => "the whole JobSet".to_owned(),
            Self::ReplicatedJob(name) => format!("replicatedJob {name}"),
            Self::Job { replicated_job, index } => format!("Job {}", names::job(jobset, replicated_job, index)),
        }
    }
}

impl RestartBudget {
    pub const ALL: [Self; 2] = [Self::Shared, Self::Separate];

    /// The name, as in the annotation.
    pub fn word(self) -> &'static str {
        match self {
            Self::Shared => "Shared",
            Self::Separate => "Separate",
        }
    }

    /// The budget with this name. `None` if the name is unknown.
    pub fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|budget| budget.word() == word)
    }

    /// The budget that the annotation of the JobSet names. `None` if the annotation is absent or its value is unknown.
    pub fn annotated(jobset: &JobSet) -> Option<Self> {
        Self::named(jobset.annotation(labels::RESTART_BUDGET)?)
    }

    /// The budget of the JobSet. Without the annotation, it is the budget by which restarts were counted until now.
    /// Releases of this controller before the annotation counted separately and wrote `status.jobsReady`, which the Go
    /// JobSet does not write.
    pub fn of(jobset: &JobSet) -> Self {
        let is_ours = || jobset.status.as_ref().is_some_and(|status| !status.jobs_ready.is_empty());
        Self::annotated(jobset).unwrap_or_else(|| if is_ours() { Self::Separate } else { Self::Shared })
    }

    /// Number of restarts that have used the budget of `scope`.
    pub fn spent(self, status: &JobSetStatus, scope: Scope<'_>) -> i32 {
        match (self, scope) {
            (Self::Shared, _) => {
                let groups = status.replicated_jobs_status.iter();
                let of_group = |group: &ReplicatedJobStatus| {
                    let jobs = group.job_restarts_count_towards_max.iter();
                    jobs.fold(group.restarts_count_towards_max, |sum, job| sum.saturating_add(*job))
                };
                groups.map(of_group).fold(status.restarts_count_towards_max, i32::saturating_add)
            }
            (Self::Separate, Scope::JobSet) => status.restarts_count_towards_max,
            (Self::Separate, Scope::ReplicatedJob(name)) => {
                status.replicated_job(name).map_or(0, |group| group.restarts_count_towards_max)
            }
            (Self::Separate, Scope::Job { replicated_job, index }) => {
                let counters = status.replicated_job(replicated_job).map(|it| &it.job_restarts_count_towards_max);
                let counter = counters.zip(usize::try_from(index).ok()).and_then(|(it, index)| it.get(index));
                counter.copied().unwrap_or(0)
            }
        }
    }

    /// The scope whose budget has the most used restarts, and their number. If several are equal, the largest scope.
    pub fn most_spent(self, status: &JobSetStatus) -> (Scope<'_>, i32) {
        let whole = (Scope::JobSet, self.spent(status, Scope::JobSet));
        if self == Self::Shared {
            return whole;
        }
        let groups = status.replicated_jobs_status.iter();
        let of_groups = groups.clone().map(|it| (Scope::ReplicatedJob(&it.name), it.restarts_count_towards_max));
        let of_jobs = groups.flat_map(|group| {
            let scope = |index| Scope::Job { replicated_job: &group.name, index };
            (0..).zip(&group.job_restarts_count_towards_max).map(move |(index, spent)| (scope(index), *spent))
        });
        of_groups.chain(of_jobs).fold(whole, |most, next| if next.1 > most.1 { next } else { most })
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::RestartBudget::{Separate, Shared};
    use super::*;

    fn jobset(annotation: &Value, status: &Value) -> JobSet {
        let metadata = json!({"name": "train", "annotations": {"jobset.sigs.k8s.io/restart-budget": annotation}});
        let metadata = if annotation.is_null() { json!({"name": "train"}) } else { metadata };
        serde_json::from_value(json!({"metadata": metadata, "spec": {}, "status": status})).unwrap()
    }

    #[rstest]
    #[case::shared(json!("Shared"), json!({"jobsReady": "0/1"}), Shared)]
    #[case::separate(json!("Separate"), json!(null), Separate)]
    #[case::new(json!(null), json!(null), Shared)]
    #[case::of_the_go_jobset(json!(null), json!({"restarts": 1, "replicatedJobsStatus": [{"name": "w"}]}), Shared)]
    #[case::of_an_earlier_release(json!(null), json!({"jobsReady": "0/1"}), Separate)]
    #[case::unknown(json!("shared"), json!(null), Shared)]
    #[case::unknown_of_an_earlier_release(json!(""), json!({"jobsReady": "0/1"}), Separate)]
    fn budget_of_jobset_is_annotated_or_as_counted_before(
        #[case] annotation: Value,
        #[case] status: Value,
        #[case] expected: RestartBudget,
    ) {
        assert_eq!(RestartBudget::of(&jobset(&annotation, &status)), expected);
    }

    const W: Scope<'_> = Scope::ReplicatedJob("w");

    fn job(index: i32) -> Scope<'static> {
        Scope::Job { replicated_job: "w", index }
    }

    #[rstest]
    #[case::jobset(Scope::JobSet, 1)]
    #[case::replicated_job(W, 2)]
    #[case::job(job(1), 4)]
    #[case::job_without_counter(job(2), 0)]
    #[case::job_without_index(job(-1), 0)]
    #[case::unknown_replicated_job(Scope::ReplicatedJob("y"), 0)]
    fn spent_separate_counts_scope_shared_counts_all(#[case] scope: Scope<'_>, #[case] separate: i32) {
        let status = json!({"restartsCountTowardsMax": 1, "replicatedJobsStatus": [
            {"name": "w", "restartsCountTowardsMax": 2, "jobRestarts": [9, 9], "jobRestartsCountTowardsMax": [3, 4]},
            {"name": "x", "restarts": 9}]});
        let status: JobSetStatus = serde_json::from_value(status).unwrap();
        assert_eq!((Separate.spent(&status, scope), Shared.spent(&status, scope)), (separate, 10));
        assert_eq!(Separate.most_spent(&status), (job(1), 4));
        assert_eq!(Shared.most_spent(&status), (Scope::JobSet, 10));
    }

    #[test]
    fn most_spent_tie_names_larger_scope() {
        let counters = json!([{"name": "w", "restartsCountTowardsMax": 1, "jobRestartsCountTowardsMax": [1, 1]}]);
        let status: JobSetStatus = serde_json::from_value(json!({"replicatedJobsStatus": counters})).unwrap();
        assert_eq!(Separate.most_spent(&status), (W, 1));
    }
}
