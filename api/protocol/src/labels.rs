//! Labels and annotations, byte for byte as the Go JobSet writes them, and those that this project adds.
//!
//! Manifests, dashboards and queueing systems select by these keys. A changed byte breaks them.

/// Name of the JobSet: label and annotation of every Job and Pod, label of the headless Service.
pub const JOBSET_NAME: &str = "jobset.sigs.k8s.io/jobset-name";
/// UID of the JobSet: label and annotation of every Job and Pod.
pub const JOBSET_UID: &str = "jobset.sigs.k8s.io/jobset-uid";
/// Name of the replicatedJob that a Job or Pod belongs to.
pub const REPLICATED_JOB_NAME: &str = "jobset.sigs.k8s.io/replicatedjob-name";
/// `replicas` of the replicatedJob that a Job or Pod belongs to.
pub const REPLICATED_JOB_REPLICAS: &str = "jobset.sigs.k8s.io/replicatedjob-replicas";
/// Sum of `replicas` over all replicatedJobs.
pub const GLOBAL_REPLICAS: &str = "jobset.sigs.k8s.io/global-replicas";
/// Index of the Job in its replicatedJob, `0..replicas`.
pub const JOB_INDEX: &str = "jobset.sigs.k8s.io/job-index";
/// Index of the Job in the whole JobSet, in the order of the replicatedJobs.
pub const JOB_GLOBAL_INDEX: &str = "jobset.sigs.k8s.io/job-global-index";
/// SHA-1 of `<namespace>/<job name>` in hexadecimal: identifies a Job within the length of a label value.
pub const JOB_KEY: &str = "jobset.sigs.k8s.io/job-key";
/// `status.restarts` at the time the Job was created. A Job with a lower value belongs to a previous attempt.
pub const RESTART_ATTEMPT: &str = "jobset.sigs.k8s.io/restart-attempt";
/// Number of times that the Job was recreated without the rest of the JobSet: alone, or with its replicatedJob
/// (`JobSetStatus::job_attempt` of jobset-api). Absent means 0. A Job with a lower value belongs to a previous attempt.
pub const JOB_RESTART_ATTEMPT: &str = "jobset.sigs.k8s.io/job-restart-attempt";
/// Annotation of every Job and its Pods: `status.executionAttempts` when the Job was created or resumed (KEP-1282). Written only
/// with the feature gate ExecutionAttemptsTracking.
pub const EXECUTION_ATTEMPT: &str = "jobset.sigs.k8s.io/execution-attempt";
/// Name of the group of replicatedJobs that a Job or Pod belongs to.
pub const GROUP_NAME: &str = "jobset.sigs.k8s.io/group-name";
/// Sum of `replicas` over the replicatedJobs of the group.
pub const GROUP_REPLICAS: &str = "jobset.sigs.k8s.io/group-replicas";
/// Index of the Job in its group, in the order of the replicatedJobs.
pub const JOB_GROUP_INDEX: &str = "jobset.sigs.k8s.io/job-group-index";
/// Stable network name of the coordinator Pod: `<jobset>-<replicatedJob>-<job>-<pod>.<subdomain>`.
pub const COORDINATOR: &str = "jobset.sigs.k8s.io/coordinator";
/// Annotation of a Job: the part of its Pod template that comes from the JobSet and that may change while the Job is
/// suspended, as JSON. Absent if there is no such part. A resume reverts only what this annotation lists.
pub const OWNED_BY_POD_TEMPLATE: &str = "jobset.sigs.k8s.io/owned-by-pod-template";
/// Priority of the Pod as a number (`n10` for -10). Label of every exclusively placed Pod that is not placed by node
/// selector. Such Pods exclude each other within one priority.
pub const PRIORITY: &str = "jobset.sigs.k8s.io/priority";

/// Annotation of a worker Pod: its epoch, a positive int32 in decimal. Only the Pod's agent writes it.
pub const EPOCH: &str = "jobset.sigs.k8s.io/epoch";
/// Annotation of a worker Pod: how its worker ended, as JSON (`WorkerExit` of jobset-objects). Only the Pod's agent writes it,
/// as a supervisor, together with the epoch that it reports next.
pub const WORKER_EXIT: &str = "jobset.sigs.k8s.io/worker-exit";
/// Annotation of a worker Pod: when the agent started that has reported the epoch, in RFC 3339 with microseconds, at most 64
/// characters. Only the Pod's agent writes it, together with the epoch.
pub const AGENT_STARTED: &str = "jobset.sigs.k8s.io/agent-started";
/// Annotation of a worker Pod: what its worker has told about its progress, as JSON (`ProgressReport` of jobset-api), at most
/// [`PROGRESS_BYTES`]. Only the Pod's agent writes it: with the epoch, once when the worker has first told of progress, and when a
/// stall begins or ends.
pub const PROGRESS: &str = "jobset.sigs.k8s.io/progress";
/// Longest value of [`PROGRESS`], in bytes.
pub const PROGRESS_BYTES: usize = 4 << 10;
/// Annotation of a worker Pod: the Go JobSet's agent writes it instead of [`EPOCH`]. Its value is the epoch less one.
pub const IN_PLACE_RESTART_ATTEMPT: &str = "jobset.sigs.k8s.io/in-place-restart-attempt";
/// Annotation of a JobSet: its agents lift the barrier at once and never restart their Pods.
pub const DISABLE_IN_PLACE_RESTART: &str = "jobset.sigs.k8s.io/disable-in-place-restart";

/// Annotation of a JobSet that restarts in place: admission adds the agent to its Pods, as a `Sidecar` or as the
/// `Supervisor` of the worker.
pub const INJECT_AGENT: &str = "jobset.sigs.k8s.io/inject-agent";

/// Annotation of a JobSet: which restarts `maxRestarts` limits, a value of `RestartBudget` of jobset-api. Immutable.
/// Admission writes it on CREATE; the controller writes it on a JobSet that was created without admission.
pub const RESTART_BUDGET: &str = "jobset.sigs.k8s.io/restart-budget";

/// Annotation of a JobSet: number of counted restarts beyond `maxRestarts` that do not fail it, an int32 that is not negative.
/// A user may change it while the JobSet runs; `maxRestarts` itself is immutable.
pub const ADDITIONAL_RESTARTS: &str = "jobset.sigs.k8s.io/additional-restarts";

/// Annotation of a JobSet that restarts in place: how old the youngest address of its Pods must be when an epoch begins, a duration
/// as `35s`. So long may DNS answer with the address of a Pod that was replaced. It takes the place of the controller's flag
/// `--settle-names`; `0s` waits for no names.
pub const SETTLE_NAMES: &str = "jobset.sigs.k8s.io/settle-names";

/// Annotation of a JobSet that restarts in place: after what time the controller replaces a Pod that owes its return although
/// nothing proves that it cannot come back, a duration of a minute or more, as `10m`. The time doubles with each Pod of the same
/// index that is replaced, until its worker runs. Absent: such Pods stay.
pub const REPLACE_STUCK_PODS_AFTER: &str = "jobset.sigs.k8s.io/replace-stuck-pods-after";

/// Annotation of a JobSet that restarts in place: how many failures that are blamed on one node make its next restart move the Pod
/// away, a number. 0: Pods stay on their nodes. Absent: as the flag `--move-after-failures` of the controller says; without it, they
/// stay.
pub const MOVE_AFTER_FAILURES: &str = "jobset.sigs.k8s.io/move-after-failures";

/// Annotation of a JobSet with [`MOVE_AFTER_FAILURES`]: how its new Pods keep away from avoided nodes, a value of `AvoidNodes` of
/// jobset-api. Absent: `Preferred`. The Pod webhook annotates a Pod `Required` to which it gives the hard form.
pub const AVOID_NODES: &str = "jobset.sigs.k8s.io/avoid-nodes";

/// Annotation of a JobSet that restarts in place: when its Pods leave a node that is cordoned, a value of `LeaveCordoned` of
/// jobset-api. Absent: `Never`.
pub const LEAVE_CORDONED: &str = "jobset.sigs.k8s.io/leave-cordoned";

/// Annotation of a JobSet: how long a node must have been unreachable for its Pods to be given up, a duration from `10s` to `720h`, as
/// `60s`. The user takes the risk that such a Pod still runs. Absent: such Pods stay.
pub const NODE_LOST_AFTER: &str = "jobset.sigs.k8s.io/node-lost-after";

/// Annotation of a JobSet that restarts in place: for how long a worker that tells of its progress may make none, `auto` or a
/// duration from `5s` to `720h`, as `90s`. `auto` is ten times the longest pause between steps that the JobSet has survived, and at
/// least [`STALL_FIRST`]: short pauses say nothing about a checkpoint that is still to come. A worker that declares all its phases has
/// no such surprises: once it has declared one that took ten times as long as a step, and has stepped for a day without any other pause
/// as long, the least is a minute. Absent: nobody looks for stalls.
pub const STALL_AFTER: &str = "jobset.sigs.k8s.io/stall-after";

/// Annotation of a JobSet with [`STALL_AFTER`]: the same before the first step of an epoch, at least in a phase that gives no limit,
/// and, with `auto`, at least until the worker is known to declare all its phases; a duration from `5s` to `720h`. Absent: `30m`, and
/// before the first step at least [`STALL_AFTER`], and twice as long as an earlier worker of the agent has taken.
pub const STALL_FIRST: &str = "jobset.sigs.k8s.io/stall-first";

/// Annotation of a JobSet with [`STALL_AFTER`]: what follows when no worker makes progress any longer, a value of `OnStall` of
/// jobset-api. `Restart` needs a duration in [`STALL_AFTER`]. Absent: `Notify`.
pub const ON_STALL: &str = "jobset.sigs.k8s.io/on-stall";

/// Annotation of a JobSet that restarts in place: after how many restarts in a row in which the highest step did not rise it fails, a
/// number of at least 1. It needs no [`STALL_AFTER`], but workers that tell of their steps. Absent: only `maxRestarts` counts.
pub const MAX_RESTARTS_WITHOUT_PROGRESS: &str = "jobset.sigs.k8s.io/max-restarts-without-progress";

/// Label of Pods, `true`: they move by [`MOVE_AFTER_FAILURES`]. The Pod webhook sees no other Pods for their nodes' sake.
pub const AVOIDS_NODES: &str = "jobset.sigs.k8s.io/avoids-nodes";

/// Annotation of a JobSet: a request to restart it, as JSON (`RestartRequest` of jobset-api). The controller carries each request
/// out once, or notes why not, and remembers its ID in `status.restartRequests`. A request that is there when the JobSet is created
/// is only noted.
pub const RESTART_REQUEST: &str = "jobset.sigs.k8s.io/restart-request";

/// Annotation of an Event of the controller about a JobSet: `status.groupRestarts` in the status that was written together
/// with the Event. Events of one restart have the same number.
pub const EVENT_GROUP_RESTARTS: &str = "jobset.sigs.k8s.io/group-restarts";
/// Annotation of an Event of the controller about a JobSet: `status.restartsCountTowardsMax` in that status.
pub const EVENT_RESTARTS_COUNT_TOWARDS_MAX: &str = "jobset.sigs.k8s.io/restarts-count-towards-max";
/// Annotation of an Event of the controller about a JobSet: `status.syncedEpoch` in that status.
pub const EVENT_SYNCED_EPOCH: &str = "jobset.sigs.k8s.io/synced-epoch";
/// Annotation of the Event with which a restart begins: when the first worker failed (RFC 3339). Absent if the controller
/// did not observe that failure.
pub const EVENT_FAILED_AT: &str = "jobset.sigs.k8s.io/failed-at";

/// Annotation of a JobSet or a Job template: place each Job alone in one topology domain. The value is the node label that
/// names the domain.
pub const EXCLUSIVE_TOPOLOGY: &str = "alpha.jobset.sigs.k8s.io/exclusive-topology";
/// Annotation: place exclusively by node selector. The nodes carry [`NAMESPACED_JOB`] beforehand.
pub const NODE_SELECTOR_STRATEGY: &str = "alpha.jobset.sigs.k8s.io/node-selector";
/// Node label of the node selector strategy: `<namespace>_<job name>`.
pub const NAMESPACED_JOB: &str = "alpha.jobset.sigs.k8s.io/namespaced-job";
/// Node taint of the node selector strategy.
pub const NO_SCHEDULE_TAINT: &str = "alpha.jobset.sigs.k8s.io/no-schedule";

/// Value of `spec.managedBy` for which this controller is responsible. It is also responsible if the field is absent.
pub const CONTROLLER_NAME: &str = "jobset.sigs.k8s.io/jobset-controller";

/// `spec.managedBy` of a JobSet that Kueue's MultiKueue runs in another cluster.
pub const MULTIKUEUE: &str = "kueue.x-k8s.io/multikueue";

/// Kubernetes' own annotation and label of a Pod of an Indexed Job: its completion index.
pub const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Kubernetes' own label of a Pod: the name of its Job.
pub const JOB_NAME: &str = "batch.kubernetes.io/job-name";
/// Kubernetes' own annotation of a Job with an owner, from 1.37 on: the template of the owner's Workload from which the Job
/// controller makes the PodGroup of its Pods.
pub const POD_GROUP_TEMPLATE: &str = "scheduling.k8s.io/group-template-name";
