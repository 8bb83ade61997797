//! The metrics of restarts: what each is, when it counts, and where its series begin and end.

use jobset_api::{FailurePolicyAction, JobSet, LedgerBucket};
use jobset_metrics::remove_series;
use jobset_rules::Fact;
use jobset_store::Key;
use k8s_openapi::jiff::SignedDuration;
use prometheus::{
    CounterVec, Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry, exponential_buckets,
};

use super::clock::Measured;
use super::stalls::StallCounters;
use super::{labels, registered};

/// The metrics of restarts, and of starts and ends of JobSets.
pub(super) struct Restarts {
    active: IntGaugeVec,
    failed: IntCounterVec,
    completed: IntCounterVec,
    deadline_exceeded: IntCounterVec,
    finished: IntCounterVec,
    begun: IntCounterVec,
    triggers: IntCounterVec,
    backoffs: IntCounterVec,
    released: IntCounterVec,
    strikes: IntCounterVec,
    stalls: StallCounters,
    moved: IntCounterVec,
    duration: HistogramVec,
    phase: HistogramVec,
    undisturbed: Histogram,
    policy_actions: IntCounterVec,
    budget_exhausted: IntCounterVec,
    startup: Histogram,
    downtime: CounterVec,
    spent: CounterVec,
}

/// What a JobSet is, as far as gauges count it.
#[derive(Clone, Copy, Default)]
pub(super) struct Present {
    /// It is neither suspended nor finished.
    pub(super) is_active: bool,
    /// It is active, and no worker makes progress.
    pub(super) stalls: bool,
}

fn active_jobsets(registry: &Registry) -> prometheus::Result<IntGaugeVec> {
    let options = Opts::new(
        "jobset_active_jobsets",
        "JobSets of the namespace that are neither suspended nor finished. Only the leader counts them.",
    );
    registered(registry, IntGaugeVec::new(options, &["namespace"]))
}

fn spent_time(registry: &Registry) -> prometheus::Result<CounterVec> {
    let options = Opts::new(
        "jobset_ledger_seconds_total",
        "What the time of JobSets went into: running, stalled, restarting, waiting, starting, scheduling or suspended. A time counts when the status is next written.",
    );
    registered(registry, CounterVec::new(options, &["namespace", "bucket"]))
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
            active: active_jobsets(registry)?,
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
            strikes: counter(
                "jobset_node_strikes_total",
                "Failures that are blamed on a node, of which the status of the JobSet has the name.",
                &["namespace"],
            )?,
            stalls: StallCounters::register(registry)?,
            moved: counter(
                "jobset_pods_moved_total",
                "Pods that restarts have moved away from nodes on which failures are blamed.",
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
            spent: spent_time(registry)?,
        })
    }

    /// A series that begins with its first event shows no increase, so the common ones begin with 0. Rare ones do not, nor do
    /// those of a single JobSet: they would be thousands of zeros.
    pub(super) fn begin(&self, key: &Key, jobset: &JobSet) {
        let namespace = &key.namespace[..];
        for result in [labels::COMPLETED, labels::FAILED] {
            self.finished.with_label_values(&[namespace, result]);
        }
        self.stalls.begin(namespace);
        let strategy = labels::strategy(jobset.spec.restart_strategy());
        let action = labels::action(FailurePolicyAction::RestartJobSet);
        self.begun.with_label_values(&[namespace, strategy, action, "true"]);
        for counter in [&self.budget_exhausted, &self.backoffs, &self.released, &self.strikes, &self.moved] {
            counter.with_label_values(&[namespace]);
        }
        self.downtime.with_label_values(&[namespace]);
        self.spent.with_label_values(&[namespace, LedgerBucket::Running.word()]);
    }

    /// A JobSet has spent so many milliseconds in this bucket.
    pub(super) fn spent(&self, key: &Key, bucket: LedgerBucket, milliseconds: i64) {
        if milliseconds > 0 {
            let time = SignedDuration::from_millis(milliseconds).as_secs_f64();
            self.spent.with_label_values(&[&key.namespace[..], bucket.word()]).inc_by(time);
        }
    }

    /// What the JobSet was so far, and is now.
    pub(super) fn count_present(&self, key: &Key, before: Present, now: Present) {
        let more = i64::from(now.is_active) - i64::from(before.is_active);
        self.active.with_label_values(&[&key.namespace]).add(more);
        self.stalls.count_stalled(&key.namespace, before.stalls, now.stalls);
    }

    pub(super) fn released(&self, key: &Key, pods: u32) {
        self.released.with_label_values(&[&key.namespace]).inc_by(pods.into());
    }

    pub(super) fn count(&self, key: &Key, fact: &Fact) {
        let (name, namespace) = (&key.name[..], &key.namespace[..]);
        match fact {
            Fact::RestartBegan { strategy, action, counted, trigger, .. } => {
                let counted = if *counted { "true" } else { "false" };
                let (strategy, action) = (labels::strategy(*strategy), labels::action(*action));
                self.begun.with_label_values(&[namespace, strategy, action, counted]).inc();
                let (reason, exit_class) = labels::trigger(*trigger);
                self.triggers.with_label_values(&[namespace, reason, exit_class]).inc();
            }
            Fact::PolicyApplied { action, rule } => {
                let rule = labels::rule_index(*rule);
                self.policy_actions.with_label_values(&[labels::action(*action), &rule]).inc();
            }
            Fact::DeadlineExceeded => self.deadline_exceeded.with_label_values(&[name, namespace]).inc(),
            Fact::Completed => {
                self.completed.with_label_values(&[name, namespace]).inc();
                self.finished.with_label_values(&[namespace, labels::COMPLETED]).inc();
            }
            Fact::Failed { budget_exhausted } => {
                self.failed.with_label_values(&[name, namespace]).inc();
                self.finished.with_label_values(&[namespace, labels::FAILED]).inc();
                if *budget_exhausted {
                    self.budget_exhausted.with_label_values(&[namespace]).inc();
                }
            }
            Fact::BackedOff => self.backoffs.with_label_values(&[namespace]).inc(),
            Fact::NodeStruck => self.strikes.with_label_values(&[namespace]).inc(),
            Fact::Stalls { blamed } => self.stalls.stalled(namespace, *blamed),
            Fact::Straggles => self.stalls.straggled(namespace),
            Fact::PodsMove(pods) => {
                let pods = u64::try_from(*pods).unwrap_or(u64::MAX);
                self.moved.with_label_values(&[namespace]).inc_by(pods);
            }
            // Other facts are only measured.
            _ => {}
        }
    }

    pub(super) fn observe(&self, key: &Key, measured: Measured) {
        match measured {
            Measured::Startup(seconds) => self.startup.observe(seconds),
            Measured::Restart(strategy, result, seconds) => {
                self.duration.with_label_values(&[labels::strategy(strategy), result]).observe(seconds);
                self.downtime.with_label_values(&[&key.namespace]).inc_by(seconds);
            }
            Measured::Phase(strategy, phase, seconds) => {
                self.phase.with_label_values(&[labels::strategy(strategy), phase]).observe(seconds);
            }
            Measured::Undisturbed(seconds) => self.undisturbed.observe(seconds),
        }
    }

    /// The JobSet is gone. It has few series. A write that was under way at its deletion may have created one again.
    pub(super) fn forget(&self, key: &Key) {
        for counter in [&self.failed, &self.completed, &self.deadline_exceeded] {
            let _ = counter.remove_label_values(&[&key.name[..], &key.namespace]);
        }
    }

    /// The namespace is gone. Its series outlive its last JobSet, so that the next scrape shows the end of that JobSet.
    pub(super) fn forget_namespace(&self, name: &str) {
        let Self { begun, triggers, backoffs, finished, budget_exhausted, released, strikes, moved, .. } = self;
        for counter in [begun, triggers, backoffs, finished, budget_exhausted, released, strikes, moved] {
            remove_series(counter, "namespace", name);
        }
        self.stalls.forget_namespace(name);
        remove_series(&self.downtime, "namespace", name);
        remove_series(&self.spent, "namespace", name);
        remove_series(&self.active, "namespace", name);
    }
}
