//! Command line.

use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use clap::{ArgAction, Parser, value_parser};
use jobset_api::gates::Gates;
use jobset_api::nodes::MOST_FAILURES;
use jobset_api::{JobSetLimits, LEASE, LeaveCordoned};
use jobset_configuration::Program;
use jobset_program::duration::positive_duration;
use jobset_program::listener::any;
use jobset_program::log::LogFormat;
use jobset_program::{Arguments, arguments};
use jobset_rules::{MEMORY_OF_NAMESPACE, Settings};

/// The JobSet controller: runs groups of Jobs that start, fail, restart and succeed together.
///
/// It finds the API server by its ServiceAccount inside of a cluster, and by KUBECONFIG elsewhere. Any number of replicas
/// may run: one of them leads, the others stand by with everything already listed.
#[derive(Clone, Debug, Parser)]
#[command(name = "jobset-controller", version)]
pub struct Args {
    /// Look at this namespace alone. Without it, or if it is empty, at all of them.
    #[arg(long, env = "JOBSET_NAMESPACE", value_name = "NAME")]
    pub namespace: Option<String>,

    /// Configuration file of the Go JobSet (config.jobset.x-k8s.io/v1alpha1). Flags win over it.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Flags and fields of the Go JobSet's manager that were given and have no meaning here.
    #[arg(skip)]
    pub ignored: Vec<String>,

    /// Features to switch on or off, as in InPlaceRestart=false; several separated by commas.
    #[arg(long, default_value_t, value_name = "GATES")]
    pub feature_gates: Gates,

    /// When Pods leave a node that is cordoned: Never, AtNextRestart, or Now. In place alone. The JobSet's annotation
    /// jobset.sigs.k8s.io/leave-cordoned wins over it.
    #[arg(long, value_parser = leave_cordoned, default_value = "Never", value_name = "WHEN")]
    pub leave_cordoned: LeaveCordoned,

    /// Longest wait before a restart of a JobSet that keeps failing, whatever its restartBackoff says. Keep it below the
    /// recoveryTimeout of Kueue's waitForPodsReady, or Kueue evicts a JobSet that waits.
    #[arg(long, value_parser = positive_duration, default_value = "25m", value_name = "DURATION")]
    pub longest_restart_backoff: Duration,

    /// How long names take to settle: DNS may answer with the address of a Pod that was replaced for so long. In place, a group begins
    /// to run only when the youngest address of its Pods is as old. The JobSet's annotation jobset.sigs.k8s.io/settle-names wins over it,
    /// and no wait is longer than --longest-restart-backoff. Without it, no group waits for names.
    #[arg(long, value_parser = positive_duration, value_name = "DURATION")]
    pub settle_names: Option<Duration>,

    /// After how many failures of the last 24 h that are blamed on one node a JobSet that restarts in place leaves that node. The JobSet's
    /// annotation jobset.sigs.k8s.io/move-after-failures wins over it. Without it, Pods stay on their nodes.
    #[arg(long, value_parser = value_parser!(u32).range(1..=i64::from(MOST_FAILURES)), value_name = "NUMBER")]
    pub move_after_failures: Option<u32>,

    /// Jobs that one JobSet may have. For a JobSet that specifies more, as one that admission has not seen, no Job is created,
    /// resumed or resized; what exists goes on. 0 sets no limit.
    #[arg(long, value_name = "NUMBER", default_value_t = JobSetLimits::default().jobs)]
    pub max_jobs_per_jobset: u32,

    /// The same for the Pods that one JobSet may run at the same time: for each replicatedJob, replicas times the smaller of
    /// parallelism and completions.
    #[arg(long, value_name = "NUMBER", default_value_t = JobSetLimits::default().pods)]
    pub max_pods_per_jobset: u32,

    /// Memory that the specification of one JobSet may take, in MiB. A JobSet that takes more is not read: it is left alone, and
    /// its Jobs and Pods go on. 0 sets no limit.
    #[arg(long, value_name = "MIB", default_value_t = mib(JobSetLimits::default().memory), value_parser = value_parser!(u32).range(..=1024))]
    pub max_memory_per_jobset: u32,

    /// Memory that all JobSets of one namespace may take, in MiB: some ten to a hundred KiB each. A JobSet that has no room is
    /// left alone until others are deleted. 0 sets no limit.
    #[arg(long, value_name = "MIB", default_value_t = mib(MEMORY_OF_NAMESPACE), value_parser = value_parser!(u32).range(..=1 << 20))]
    pub max_memory_per_namespace: u32,

    /// ClusterRole of the agents that admission injects; their ServiceAccounts are bound to it.
    #[arg(long, default_value = "jobset-agent", value_name = "NAME")]
    pub agent_cluster_role: String,

    /// Leader election.
    #[command(flatten)]
    pub election: ElectionArgs,

    /// The client of the API server.
    #[command(flatten)]
    pub client: ClientArgs,

    /// The stream to the agents.
    #[command(flatten)]
    pub stream: StreamArgs,

    /// Address of /healthz and /readyz.
    #[arg(long, default_value_t = any(8081), value_name = "ADDRESS")]
    pub health_listen: SocketAddr,

    /// Address of /metrics.
    #[arg(long, default_value_t = any(8080), value_name = "ADDRESS")]
    pub metrics_listen: SocketAddr,

    /// Serve /metrics by HTTPS, to whom the API server allows it: by a bearer token whose user may get the path /metrics. Without
    /// it, by HTTP to everybody.
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_name = "BOOL")]
    pub metrics_secure: bool,

    /// Add the state of each JobSet to /metrics: kube_jobset_*, and where its restarts and its barrier stand. Only the leader
    /// has them: some twenty series for each JobSet.
    #[arg(long)]
    pub metrics_per_jobset: bool,

    /// Form of the log. The environment variable RUST_LOG sets what is logged (default: info).
    #[arg(long, value_enum, default_value_t)]
    pub log_format: LogFormat,
}

impl Args {
    /// Reads the command line, in which the Go JobSet's manager's flags and configuration file are understood, too. Ends
    /// the program with a help text or an error of usage, as [`Parser::parse`] does.
    pub fn of_command_line() -> Result<Self, jobset_configuration::Error> {
        let Arguments { own, ignored } = arguments::<Self>(Program::Controller)?;
        Ok(Self { ignored, ..own }.with_all_namespaces())
    }

    /// With an empty name of the namespace, which means all namespaces, as elsewhere in Kubernetes.
    fn with_all_namespaces(mut self) -> Self {
        self.namespace = self.namespace.filter(|namespace| !namespace.is_empty());
        self
    }

    /// The settings of the rules.
    pub fn settings(&self) -> Settings {
        Settings {
            gates: self.feature_gates,
            leave_cordoned: self.leave_cordoned,
            longest_restart_backoff: self.longest_restart_backoff,
            settle_names: self.settle_names.unwrap_or_default(),
            move_after_failures: self.move_after_failures,
            agent_cluster_role: self.agent_cluster_role.clone(),
            limits: JobSetLimits {
                jobs: self.max_jobs_per_jobset,
                pods: self.max_pods_per_jobset,
                memory: self.max_memory_per_jobset as usize * MIB,
            },
            memory_of_namespace: self.max_memory_per_namespace as usize * MIB,
        }
    }
}

fn leave_cordoned(text: &str) -> Result<LeaveCordoned, &'static str> {
    LeaveCordoned::parse(text).ok_or("must be Never, AtNextRestart or Now")
}

/// Bytes of a MiB.
const MIB: usize = 1 << 20;

/// A default in MiB.
fn mib(bytes: usize) -> u32 {
    u32::try_from(bytes / MIB).unwrap_or(u32::MAX)
}

/// Leader election, by flags that kube-controller-manager has, too.
#[derive(Clone, Debug, clap::Args)]
pub struct ElectionArgs {
    /// Work only while holding the Lease. Without it, nothing else may work on the same JobSets.
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, require_equals = true,
          default_missing_value = "true", value_name = "BOOL")]
    pub leader_elect: bool,

    /// Name of the Lease. The default is the one of the Go JobSet: of both together, one leads.
    #[arg(long, default_value = LEASE, value_name = "NAME")]
    pub leader_elect_resource_name: String,

    /// Namespace of the Lease. Without it, the controller's own.
    #[arg(long, alias = "leader-election-namespace", env = "POD_NAMESPACE", value_name = "NAME")]
    pub leader_elect_resource_namespace: Option<String>,

    /// For how long the others wait for a leader that does not renew the Lease; whole seconds. A leader whose loop stands still for
    /// as long, at least 5s and at most 1m, gives the Lease up and ends.
    #[arg(long, alias = "leader-election-lease-duration", default_value = "15s", value_parser = positive_duration,
          value_name = "DURATION")]
    pub leader_elect_lease_duration: Duration,

    /// For how long the leader tries to renew the Lease before it ends itself. Shorter than the lease duration.
    #[arg(long, alias = "leader-election-renew-deadline", default_value = "10s", value_parser = positive_duration,
          value_name = "DURATION")]
    pub leader_elect_renew_deadline: Duration,

    /// Time between two attempts to renew or to acquire the Lease. Shorter than the renew deadline.
    #[arg(long, alias = "leader-election-retry-period", default_value = "2s", value_parser = positive_duration,
          value_name = "DURATION")]
    pub leader_elect_retry_period: Duration,
}

impl ElectionArgs {
    /// Checks that a leader gives up before the others stop to wait for it.
    ///
    /// # Errors
    /// If it does not, or could not even try twice.
    pub fn check(&self) -> anyhow::Result<()> {
        let (lease, renew) = (self.leader_elect_lease_duration, self.leader_elect_renew_deadline);
        let retry = self.leader_elect_retry_period;
        ensure!(lease.subsec_nanos() == 0, "--leader-elect-lease-duration {lease:?} is not whole seconds");
        ensure!(
            lease > renew,
            "--leader-elect-lease-duration {lease:?} must be longer than --leader-elect-renew-deadline {renew:?}"
        );
        ensure!(
            renew > retry.mul_f64(1.2),
            "--leader-elect-renew-deadline {renew:?} must be longer than --leader-elect-retry-period {retry:?} times 1.2"
        );
        Ok(())
    }
}

/// The client of the API server.
#[derive(Clone, Debug, clap::Args)]
pub struct ClientArgs {
    /// Requests a second to the API server, watches not counted.
    #[arg(long, default_value = "500", value_name = "NUMBER")]
    pub kube_api_qps: NonZeroU32,

    /// Requests to the API server that may be made at once after a pause.
    #[arg(long, default_value = "500", value_name = "NUMBER")]
    pub kube_api_burst: NonZeroU32,
}

/// The stream to the agents. These flags have a meaning with the feature gate AgentStream alone.
#[derive(Clone, Debug, clap::Args)]
pub struct StreamArgs {
    /// Folder with the certificate by which relays and agents know the controller: tls.crt, tls.key, and the CA of the relays in
    /// ca.crt. Without this flag, /var/run/jobset-stream; if there is no such folder, all agents watch the API server. Only with
    /// the feature gate AgentStream.
    #[arg(long, value_name = "DIR")]
    pub stream_cert_dir: Option<PathBuf>,

    /// Service of the relays, in the namespace of the Lease. The leader connects to all of its ready endpoints. Only with the
    /// feature gate AgentStream.
    #[arg(long, default_value = "jobset-relay", value_name = "NAME")]
    pub relay_service: String,

    /// Address of a relay. The leader connects to the given ones and looks no endpoints up. May be given several times. Only with
    /// the feature gate AgentStream.
    #[arg(long, value_name = "HOST:PORT")]
    pub relay_address: Vec<String>,
}

/// The folder of the certificate, unless `--stream-cert-dir` names another one.
const STREAM_CERT_DIR: &str = "/var/run/jobset-stream";

impl StreamArgs {
    /// The folder that must have a certificate: the one that was named, or the usual one if it exists.
    pub fn certificates(&self) -> Option<PathBuf> {
        let usual = || Some(PathBuf::from(STREAM_CERT_DIR)).filter(|folder| folder.exists());
        self.stream_cert_dir.clone().or_else(usual)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(&[], true)]
    #[case(&["--leader-elect"], true)]
    #[case(&["--leader-elect=true"], true)]
    #[case(&["--leader-elect=false"], false)]
    fn leader_election_is_on_unless_switched_off(#[case] flags: &[&str], #[case] on: bool) {
        let args = Args::try_parse_from(["jobset-controller"].iter().chain(flags)).unwrap();
        assert_eq!(args.election.leader_elect, on);
    }

    #[rstest]
    #[case("15s", "10s", "2s", true)]
    #[case("15500ms", "10s", "2s", false)]
    #[case("10s", "10s", "2s", false)]
    #[case("15s", "2400ms", "2s", false)]
    #[case("3s", "2s", "500ms", true)]
    fn election_durations_must_leave_time_to_retry(
        #[case] lease: &str,
        #[case] renew: &str,
        #[case] retry: &str,
        #[case] valid: bool,
    ) {
        let flags = [("lease-duration", lease), ("renew-deadline", renew), ("retry-period", retry)];
        let flags = flags.map(|(name, value)| format!("--leader-elect-{name}={value}"));
        let args = Args::try_parse_from(["jobset-controller".to_owned()].into_iter().chain(flags)).unwrap();
        assert_eq!(args.election.check().is_ok(), valid);
    }

    #[rstest]
    #[case("--namespace=", None)]
    #[case("--namespace=ml", Some("ml"))]
    fn empty_namespace_means_all(#[case] flag: &str, #[case] expected: Option<&str>) {
        let args = Args::try_parse_from(["jobset-controller", flag]).unwrap().with_all_namespaces();
        assert_eq!(args.namespace.as_deref(), expected);
    }

    #[test]
    fn limits_are_in_mib_and_0_sets_none() {
        let settings =
            |flags: &[&str]| Args::try_parse_from(["jobset-controller"].iter().chain(flags)).unwrap().settings();
        let of_flags = |settings: Settings| (settings.limits, settings.memory_of_namespace);
        assert_eq!(of_flags(settings(&[])), of_flags(Settings::default()));
        let flags = ["jobs-per-jobset=1", "pods-per-jobset=2", "memory-per-jobset=3", "memory-per-namespace=0"];
        let flags = flags.map(|flag| format!("--max-{flag}"));
        let found = of_flags(settings(&flags.each_ref().map(String::as_str)));
        assert_eq!(found, (JobSetLimits { jobs: 1, pods: 2, memory: 3 << 20 }, 0));
    }

    #[rstest]
    #[case(&[], Some(LeaveCordoned::Never))]
    #[case(&["--leave-cordoned=AtNextRestart"], Some(LeaveCordoned::AtNextRestart))]
    #[case(&["--leave-cordoned", "Now"], Some(LeaveCordoned::Now))]
    #[case(&["--leave-cordoned=now"], None)]
    fn pods_stay_on_cordoned_nodes_unless_told(#[case] flags: &[&str], #[case] expected: Option<LeaveCordoned>) {
        let args = Args::try_parse_from(["jobset-controller"].iter().chain(flags));
        assert_eq!(args.ok().map(|args| args.settings().leave_cordoned), expected);
    }

    #[test]
    fn an_unknown_feature_gate_is_named() {
        let error = Args::try_parse_from(["jobset-controller", "--feature-gates", "Elastic=true"]).unwrap_err();
        assert!(error.to_string().contains("unknown feature gate \"Elastic\""), "{error}");
    }
}
