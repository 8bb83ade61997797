//! The metrics of restarts.

use prometheus::{
    CounterVec, Histogram, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry, exponential_buckets,
};

use super::registered;

/// The metrics of restarts, and of starts and ends of JobSets.
pub(super) struct Restarts {
    pub(super) failed: IntCounterVec,
    pub(super) completed: IntCounterVec,
    pub(super) deadline_exceeded: IntCounterVec,
    pub(super) finished: IntCounterVec,
    pub(super) begun: IntCounterVec,
    pub(super) triggers: IntCounterVec,
    pub(super) backoffs: IntCounterVec,
    pub(super) released: IntCounterVec,
    pub(super) duration: HistogramVec,
    pub(super) phase: HistogramVec,
    pub(super) undisturbed: Histogram,
    pub(super) policy_actions: IntCounterVec,
    pub(super) budget_exhausted: IntCounterVec,
    pub(super) startup: Histogram,
    pub(super) downtime: CounterVec,
}

impl Restarts {
    pub(super) fn register(registry: &Registry) -> prometheus::Result<Self> {
        let counter =
            |name, help, labels: &[&str]| registered(registry, IntCounterVec::new(Opts::new(name, help), labels));
        let options = |name, help, buckets| HistogramOpts::new(name, help).buckets(buckets);
        let histogram = |name, help, buckets| registered(registry, Histogram::with_opts(options(name, help, buckets)));
        let histograms = |name, help, labels: &[&str], buckets| {
            registered(registry, HistogramVec::new(options(name, help, buckets), labels))
        };
        let downtime = Opts::new(
            "jobset_downtime_seconds_total",
            "Sum of the durations of restarts of whole groups: time in which JobSets did not run.",
        );
        Ok(Self {
            failed: counter(
                "jobset_failed_total",
                "1 once the JobSet has failed. The series begins then, and ends with the JobSet.",
                &["jobset_name", "namespace"],
            )?,
            completed: counter(
                "jobset_completed_total",
                "1 once the JobSet has completed. The series begins then, and ends with the JobSet.",
                &["jobset_name", "namespace"],
            )?,
            deadline_exceeded: counter(
                "jobset_active_deadline_exceeded_total",
                "1 once the JobSet has failed because it was active for longer than its activeDeadlineSeconds. The series begins then, and ends with the JobSet.",
                &["jobset_name", "namespace"],
            )?,
            finished: counter(
                "jobset_finished_total",
                "JobSets that have finished, by how: completed or failed.",
                &["namespace", "result"],
            )?,
            begun: counter(
                "jobset_restarts_total",
                "Restarts that began, by how they are carried out, what they restart, and whether they count towards maxRestarts.",
                &["namespace", "strategy", "action", "counted"],
            )?,
            triggers: counter(
                "jobset_restart_triggers_total",
                "What caused restarts; exit_class is 0, 1-127, signal (128 and above), oom, unknown (not observed), or none (no container ended).",
                &["namespace", "reason", "exit_class"],
            )?,
            backoffs: counter(
                "jobset_restart_backoffs_total",
                "Restarts that wait, because the JobSet keeps failing soon after it began to run.",
                &["namespace"],
            )?,
            released: counter(
                "jobset_pods_released_total",
                "Failed Pods from which the controller has removed the finalizer of the Job controller, so that their successors come at once.",
                &["namespace"],
            )?,
            duration: histograms(
                "jobset_restart_duration_seconds",
                "Duration of restarts of whole groups: from the first failure, or from its detection where it was not observed, until all Jobs were ready (recovered), the JobSet failed, or the next restart began (superseded).",
                &["strategy", "result"],
                exponential_buckets(0.25, 2.0, 13)?,
            )?,
            phase: histograms(
                "jobset_restart_phase_seconds",
                "Phases of restarts of whole groups. detect: first failure to its detection. In place: register, from there until all Pods have reported and the barrier is lifted; lift, from there until all Jobs are ready. Otherwise: recreate, from detection until all Jobs are ready.",
                &["strategy", "phase"],
                exponential_buckets(0.0625, 2.0, 15)?,
            )?,
            undisturbed: histogram(
                "jobset_time_between_restarts_seconds",
                "For how long groups ran, from all Jobs ready to the next failure.",
                exponential_buckets(60.0, 2.0, 17)?,
            )?,
            policy_actions: counter(
                "jobset_failure_policy_actions_total",
                "Actions of failure policies that were carried out; rule_index is default where no rule matched.",
                &["action", "rule_index"],
            )?,
            budget_exhausted: counter(
                "jobset_restart_budget_exhausted_total",
                "JobSets that failed because maxRestarts was spent.",
                &["namespace"],
            )?,
            startup: histogram(
                "jobset_startup_duration_seconds",
                "From the creation of a JobSet, or its resumption, until all Jobs were ready for the first time.",
                exponential_buckets(0.25, 2.0, 15)?,
            )?,
            downtime: registered(registry, CounterVec::new(downtime, &["namespace"]))?,
        })
    }
}
