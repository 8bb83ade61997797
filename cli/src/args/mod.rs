//! Command line.

mod options;

use std::path::PathBuf;

use clap::{Args as Arguments, Parser, Subcommand, ValueEnum, ValueHint};

use crate::names;
pub use options::{
    ChangeArgs, GoodputArgs, JobSetsArgs, LogsArgs, NamedArgs, NodesArgs, RestartArgs, Shell, StatusArgs, UiArgs,
    ValidateArgs, WaitArgs,
};

/// Show the state of JobSets, why they restarted, why they do not run, and whether a manifest passes admission. Wait for them,
/// restart, suspend and resume them, or show them as a page in a browser.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "kubectl-jobset",
    bin_name = "kubectl jobset",
    version,
    propagate_version = true,
    after_help = EXIT_CODES
)]
pub struct Cli {
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
    /// Options of all commands.
    #[command(flatten)]
    pub global: GlobalArgs,
}

const EXIT_CODES: &str = "\
Exit codes:
  0    success: the JobSet runs or has completed (explain), is what you wait for (wait), every JobSet passes admission (validate)
  1    the JobSet does not run (explain), has no such log (logs), cannot become what you wait for (wait), does not pass admission (validate), or is not
       changed, because that would not have the effect you want (restart, suspend, resume)
  2    the command line, the kubeconfig or a file is not valid
  3    the cluster is not reachable, denies the request, or has no such JobSet, or the connection has broken (logs)
  4    the time limit has passed (wait, restart, suspend, resume)
  130  Ctrl-C

Only terminals get colours. The flag --color and the variable NO_COLOR change this.";

/// Options of all commands.
#[derive(Clone, Debug, Default, Arguments)]
pub struct GlobalArgs {
    /// Namespace of the JobSets. The default is the namespace of the kubeconfig's context.
    #[arg(short, long, global = true, value_name = "NAME", value_parser = names::namespace)]
    pub namespace: Option<String>,

    /// Context of the kubeconfig. The default is the current one.
    #[arg(long, global = true, value_name = "NAME", value_hint = ValueHint::Other)]
    pub context: Option<String>,

    /// Kubeconfig file. The default is KUBECONFIG, or else ~/.kube/config.
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// User to act as, if your user may impersonate: a user, or system:serviceaccount:NAMESPACE:NAME.
    #[arg(long = "as", global = true, value_name = "USER", value_hint = ValueHint::Other)]
    pub as_user: Option<String>,

    /// Group to act as, together with --as. May be repeated.
    #[arg(long, global = true, value_name = "GROUP", requires = "as_user", value_hint = ValueHint::Other)]
    pub as_group: Vec<String>,

    /// Format of the output.
    #[arg(short, long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    pub output: OutputFormat,

    /// When to use colours.
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    pub color: ColorMode,
}

/// Format of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// Text.
    #[default]
    Table,
    /// Text with more columns.
    Wide,
    /// The full report as JSON.
    Json,
    /// The full report as YAML.
    Yaml,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ColorMode {
    /// On a terminal, unless NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// The commands.
#[derive(Clone, Debug, Subcommand)]
pub enum Command {
    /// Show a JobSet as a tree of its Jobs and Pods, or list all JobSets.
    #[command(after_help = "\
Examples:
  kubectl jobset status                  # lists the JobSets of the namespace
  kubectl jobset status -A               # lists the JobSets of all namespaces
  kubectl jobset status -l team=vision   # lists the JobSets with this label
  kubectl jobset status train            # shows one JobSet with its Jobs and Pods
  kubectl jobset status train --pods     # shows each Pod on its own line, also of a large JobSet
  kubectl jobset status train --watch    # shows each change
  kubectl jobset status train -o json | jq '.replicatedJobs[].jobs[].pods[] | select(.ready | not)'")]
    Status(StatusArgs),

    /// Show the group restarts of a JobSet, the cause of each, and how long each phase took.
    #[command(after_help = "\
The command reads the controller's Events. The API server keeps Events for an hour by default.

Phases of a restart:
  detect    from the first failure until the controller starts the restart
  register  in-place restart: until every Pod waits at the barrier of the new epoch
  lift      in-place restart: until all Jobs are ready again
  recreate  recreation: until all Jobs are ready again

Examples:
  kubectl jobset restarts train
  kubectl jobset restarts train --watch
  kubectl jobset restarts train -o json | jq '.restarts[] | {number, total}'")]
    Restarts(NamedArgs),

    /// Show where the time of JobSets went: the share in which they made progress, and what the rest was spent on.
    #[command(after_help = "\
The command reads status.ledger, which the controller keeps: each second of a JobSet's life is in one bucket, the time since the last
write of the status in that of then. Goodput is the running time without that whose steps a restart lost, as a share of all the time.

Examples:
  kubectl jobset goodput train
  kubectl jobset goodput -A                # lists the JobSets of all namespaces
  kubectl jobset goodput -l team=vision
  kubectl jobset goodput train -o json | jq '.jobsets[0].goodput'")]
    Goodput(GoodputArgs),

    /// Explain why a JobSet does not run, and what to do.
    #[command(after_help = "\
The exit code is 0 if the JobSet runs or has completed, and 1 if not.

Examples:
  kubectl jobset explain train
  kubectl jobset explain train --watch
  until kubectl jobset explain train >/dev/null; do sleep 5; done")]
    Explain(NamedArgs),

    /// List the nodes that JobSets blame for failures.
    #[command(after_help = "\
The command adds up status.nodeStrikes and status.avoidedNodes of the JobSets that you may see. Each JobSet keeps its last sixteen failures
that are blamed on a node, for 24 hours. CORDONED and READY are `-` if you may not list nodes.

Examples:
  kubectl jobset nodes                   # of the JobSets of the namespace
  kubectl jobset nodes -A                # of the JobSets of all namespaces
  kubectl jobset nodes -A -l team=vision
  kubectl jobset nodes -A -o json | jq -r '.nodes[] | select(.failures > 2) | .name'")]
    Nodes(NodesArgs),

    /// Wait until a JobSet runs, has restarted, or has finished.
    #[command(after_help = "\
The command waits for one of:
  running    all workers run, in one epoch
  restarted  one more group restart has ended: all workers run again. A restart that is under way counts
  finished   the JobSet has completed or failed

It shows on standard error how far the JobSet is. Only -o json and -o yaml write to standard output, at the end.

Exit codes:
  0  it is so; with --for finished, the JobSet has completed
  1  it cannot be so any more: the JobSet has failed, has completed before, or was deleted
  4  --timeout has passed

Examples:
  kubectl jobset wait train --for running --timeout 10m
  kubectl jobset wait train --for restarted && echo 'the group is back'
  kubectl jobset wait train --for finished -o json | jq -r .message")]
    Wait(WaitArgs),

    /// Restart all workers of a JobSet, without deleting anything.
    #[command(after_help = "\
The command annotates the JobSet with a request, and waits until the controller has carried it out, or says why not. The controller
carries a request out once, whoever leads. Where the JobSet restarts in place, its Pods stay; else its Jobs are recreated.

The restart counts towards maxRestarts. With --uncounted it does not; a JobSet may have one such restart in 10 minutes.

Exit codes:
  0  the restart has begun
  1  it would not have the effect you want, or the controller has not carried it out; the text says why
  4  --timeout has passed; the request stays

Examples:
  kubectl jobset restart train
  kubectl jobset restart train --reason 'NCCL hangs' --pod train-workers-0-3-x7k2m
  kubectl jobset restart train --uncounted && kubectl jobset wait train --for restarted")]
    Restart(RestartArgs),

    /// Print the logs of all workers of a JobSet, by epoch.
    #[command(after_help = "\
Each line begins with its Pod, and with its epoch where the JobSet restarts in place. Beside a sidecar, each epoch has a container of
its own: the kubelet keeps the log of the present one, and rarely that of the one before. Under a supervisor, the container stays, and
with it the logs of all epochs, up to the size at which the kubelet rotates logs. A line from before the first one that begins an epoch
is of the epoch before that.

A log that is followed goes on after its connection has broken.

Examples:
  kubectl jobset logs train
  kubectl jobset logs train -f                  # also of Pods and containers that start later
  kubectl jobset logs train --failed --epoch 3  # of the workers whose failure ended epoch 3
  kubectl jobset logs train --previous          # of the epoch before the present one
  kubectl jobset logs train -l batch.kubernetes.io/job-completion-index=0 --tail 20

Exit codes:
  1  there is no log, or no line of it is to be shown
  3  a log could not be read to its end")]
    Logs(LogsArgs),

    /// Suspend a JobSet: its Jobs are suspended, and their Pods are deleted.
    #[command(after_help = "\
Example:
  kubectl jobset suspend train")]
    Suspend(ChangeArgs),

    /// Resume a suspended JobSet.
    #[command(after_help = "\
Kueue resumes the JobSets of its queues itself.

Example:
  kubectl jobset resume train")]
    Resume(ChangeArgs),

    /// Show JobSets live on a page in your browser, from this machine alone.
    #[command(after_help = "\
The command serves a page on 127.0.0.1, prints its address and opens it in your browser. The page shows a grid of Pods by state
and epoch, the barrier, the last restarts, and why a JobSet does not run. It only reads, and loads nothing from other hosts.

The address has a token that works once: the browser gets a cookie for it. To open the page in another browser, run the
command again. Ctrl-C ends it (exit code 130).

From another machine, forward the port: `ssh -L 8080:127.0.0.1:8080 HOST kubectl jobset ui --port 8080 --no-browser`.

Examples:
  kubectl jobset ui                 # shows the JobSets of the namespace
  kubectl jobset ui -A              # shows the JobSets of all namespaces
  kubectl jobset ui train           # shows one JobSet
  kubectl jobset ui --no-browser    # only prints the address")]
    Ui(UiArgs),

    /// Check manifests of JobSets by the rules of admission, without a cluster.
    #[command(after_help = "\
The command sets defaults and injects the agent as the admission webhook does, then applies the webhook's rules. It
reports unknown fields. It skips objects of other kinds.

The API server can still refuse a JobSet that passes. It also checks the schema of the CustomResourceDefinition
(required fields, minimums, formats), names, labels, and the state of the cluster. To check these, too, run

  kubectl create --dry-run=server -f FILE

The exit code is 1 if a JobSet does not pass, and 2 if a file cannot be read.

Examples:
  kubectl jobset validate -f train.yaml
  kubectl jobset validate -f manifests/ --agent-image registry.example/jobset-agent:1.0
  kustomize build . | kubectl jobset validate -f -")]
    Validate(ValidateArgs),

    /// Print a completion script.
    #[command(after_help = "\
For `kubectl jobset <TAB>`, kubectl asks a program named kubectl_complete-jobset in the PATH (kubectl 1.26 or newer):

  kubectl jobset completion kubectl > ~/.local/bin/kubectl_complete-jobset
  chmod +x ~/.local/bin/kubectl_complete-jobset

To complete kubectl-jobset, the program by its own name:

  source <(kubectl jobset completion bash)")]
    Completion {
        /// The shell, or `kubectl` for `kubectl jobset <TAB>`.
        #[arg(value_enum)]
        shell: Shell,
    },

    /// Answer kubectl's completion.
    #[command(name = "__complete", hide = true, disable_help_flag = true)]
    Complete {
        /// The words of the command line. The last one is to be completed.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::error::ErrorKind;
    use rstest::rstest;

    use super::*;
    use crate::wait::Goal;

    fn parsed(line: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from([&["kubectl-jobset"], line].concat())
    }

    #[rstest]
    #[case::name("train", "train")]
    #[case::subdomain("train.v2", "train.v2")]
    #[case::kind("jobset/train", "train")]
    #[case::plural("jobsets/train", "train")]
    #[case::group("jobset.jobset.x-k8s.io/train", "train")]
    #[case::plural_of_the_group("jobsets.jobset.x-k8s.io/train", "train")]
    #[case::version("jobsets.v1alpha2.jobset.x-k8s.io/train", "train")]
    #[case::capitals("JobSet/train", "train")]
    fn name_with_kind_is_accepted(#[case] word: &str, #[case] name: &str) {
        let Command::Explain(explain) = parsed(&["explain", word]).unwrap().command else { panic!("another command") };
        assert_eq!(explain.name, name);
    }

    #[rstest]
    #[case::seconds("30s", 30)]
    #[case::minutes("10m", 600)]
    #[case::hours_and_minutes("1h30m", 5400)]
    fn timeout_is_a_duration_of_go(#[case] text: &str, #[case] seconds: u64) {
        let line = ["wait", "train", "--for", "running", "--timeout", text];
        let Command::Wait(wait) = parsed(&line).unwrap().command else { panic!("another command") };
        assert_eq!((wait.goal, wait.timeout), (Goal::Running, Some(Duration::from_secs(seconds))));
    }

    #[rstest]
    #[case::no_unit("30", "such as 30s")]
    #[case::negative("-1s", "negative")]
    #[case::zero("0s", "zero")]
    fn timeout_invalid_is_usage_error(#[case] text: &str, #[case] words: &str) {
        let timeout = format!("--timeout={text}");
        let error = parsed(&["wait", "train", "--for=finished", &timeout]).unwrap_err();
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains(words), "{error}");
    }

    #[rstest]
    #[case::another_kind(&["status", "job/train"], "another kind")]
    #[case::no_kind(&["status", "/train"], "another kind")]
    #[case::two_slashes(&["status", "jobset/a/b"], "DNS subdomain")]
    #[case::no_name(&["restarts", "jobset/"], "DNS subdomain")]
    #[case::empty(&["explain", ""], "DNS subdomain")]
    #[case::query(&["explain", "x?y"], "DNS subdomain")]
    #[case::capital(&["explain", "Train"], "DNS subdomain")]
    #[case::dots(&["explain", ".."], "DNS subdomain")]
    #[case::no_namespace(&["status", "-n", ""], "DNS label")]
    #[case::path(&["status", "-n", "a/../b"], "DNS label")]
    #[case::subdomain(&["status", "-n", "a.b"], "DNS label")]
    fn invalid_name_is_usage_error(#[case] line: &[&str], #[case] words: &str) {
        let error = parsed(line).unwrap_err();
        assert_eq!((error.kind(), error.exit_code()), (ErrorKind::ValueValidation, 2));
        assert!(error.to_string().contains(words), "{error}");
    }
}
