//! Command line.

use std::path::PathBuf;

use clap::{Args as Arguments, Parser, Subcommand, ValueEnum, ValueHint};

use crate::names;

/// See how JobSets are, why they restarted, why they do not run, and whether a manifest passes admission.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "kubectl-jobset",
    bin_name = "kubectl jobset",
    version,
    propagate_version = true,
    after_help = EXIT_CODES
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// What holds for every command.
    #[command(flatten)]
    pub global: Global,
}

const EXIT_CODES: &str = "\
Exit codes:
  0    done, and the answer is yes: the JobSet runs or has completed, every JobSet passes admission
  1    the answer is no: the JobSet does not run (explain), a JobSet does not pass admission (validate)
  2    the command line, the kubeconfig or a file cannot be understood
  3    the cluster is not reachable, does not allow it, or has no such JobSet
  130  Ctrl-C

Colours are for terminals alone; --color and the variable NO_COLOR say otherwise.";

/// What holds for every command.
#[derive(Clone, Debug, Default, Arguments)]
pub struct Global {
    /// Namespace to look at; that of the kubeconfig's context where it is not given.
    #[arg(short, long, global = true, value_name = "NAME", value_parser = names::namespace)]
    pub namespace: Option<String>,

    /// Context of the kubeconfig.
    #[arg(long, global = true, value_name = "NAME", value_hint = ValueHint::Other)]
    pub context: Option<String>,

    /// Kubeconfig; KUBECONFIG or ~/.kube/config where it is not given.
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// Form of the output.
    #[arg(short, long, global = true, value_enum, default_value_t, value_name = "FORM")]
    pub output: Output,

    /// When to use colours.
    #[arg(long, global = true, value_enum, default_value_t, value_name = "WHEN")]
    pub color: Color,
}

/// Form of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Text for people.
    #[default]
    Table,
    /// The same with more of it.
    Wide,
    /// The whole report as JSON.
    Json,
    /// The whole report as YAML.
    Yaml,
}

/// When to use colours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Color {
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
  kubectl jobset status                  # all JobSets of the namespace
  kubectl jobset status -A               # of all namespaces
  kubectl jobset status train            # one of them, down to its Pods
  kubectl jobset status train --pods     # with a line for each Pod, also of a large set
  kubectl jobset status train --watch    # drawn again whenever something changes
  kubectl jobset status train -o json | jq '.replicatedJobs[].jobs[].pods[] | select(.ready | not)'")]
    Status(Status),

    /// Show how often a JobSet has restarted as a group, why, and how long each phase took.
    #[command(after_help = "\
The phases, of what the controller's Events tell (the API server keeps them for an hour, unless it is told otherwise):
  detect    from the first failure until the controller begins the restart
  register  in place: until every Pod waits at the barrier of the new epoch
  lift      in place: until all Jobs are ready again
  recreate  by recreation: until all Jobs are ready again

Examples:
  kubectl jobset restarts train
  kubectl jobset restarts train --watch
  kubectl jobset restarts train -o json | jq '.restarts[] | {number, total}'")]
    Restarts(Restarts),

    /// Say why a JobSet does not run, and what to do.
    #[command(after_help = "\
Exit code 0 if it runs or has completed, 1 if not.

Examples:
  kubectl jobset explain train
  kubectl jobset explain train --watch
  until kubectl jobset explain train >/dev/null; do sleep 5; done")]
    Explain(Explain),

    /// Check JobSets by the rules of admission, without a cluster.
    #[command(after_help = "\
Fills in the defaults and the agent as the admission service does, then applies its rules; names unknown fields. Objects
of other kinds are skipped.

A JobSet that passes can still be refused. The API server checks more by the schema of the CustomResourceDefinition and
by rules of its own: required fields, least values, formats, names, labels. That, and what depends on the cluster, such
as names that are taken, is told by

  kubectl create --dry-run=server -f FILE

Exit code 1 if any JobSet does not pass, 2 if anything cannot be read.

Examples:
  kubectl jobset validate -f train.yaml
  kubectl jobset validate -f manifests/ --agent-image registry.example/jobset-agent:1.0
  kustomize build . | kubectl jobset validate -f -")]
    Validate(Validate),

    /// Print a completion script.
    #[command(after_help = "\
For `kubectl jobset <TAB>`, kubectl asks a program named kubectl_complete-jobset in the PATH (kubectl 1.26 or newer):

  kubectl jobset completion kubectl > ~/.local/bin/kubectl_complete-jobset
  chmod +x ~/.local/bin/kubectl_complete-jobset

It completes names of JobSets, too. For the program called by its own name, kubectl-jobset:

  source <(kubectl jobset completion bash)")]
    Completion {
        /// For which shell; `kubectl` for kubectl's own completion.
        #[arg(value_enum)]
        shell: Shell,
    },

    /// What kubectl's completion asks for.
    #[command(name = "__complete", hide = true, disable_help_flag = true)]
    Complete {
        /// The words so far; the last is the one to complete.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<String>,
    },
}

/// `status`.
#[derive(Clone, Debug, Arguments)]
pub struct Status {
    /// Name of the JobSet, or jobset/NAME; without it, all are listed.
    #[arg(value_parser = names::jobset)]
    pub name: Option<String>,

    /// List those of all namespaces.
    #[arg(short = 'A', long, conflicts_with = "name")]
    pub all_namespaces: bool,

    /// A line for each Pod, also where many are alike.
    #[arg(long, requires = "name")]
    pub pods: bool,

    /// Show it again whenever something changes.
    #[arg(short, long)]
    pub watch: bool,
}

/// `restarts`.
#[derive(Clone, Debug, Arguments)]
pub struct Restarts {
    /// Name of the JobSet, or jobset/NAME.
    #[arg(value_parser = names::jobset)]
    pub name: String,

    /// Show it again whenever something changes.
    #[arg(short, long)]
    pub watch: bool,
}

/// `explain`.
#[derive(Clone, Debug, Arguments)]
pub struct Explain {
    /// Name of the JobSet, or jobset/NAME.
    #[arg(value_parser = names::jobset)]
    pub name: String,

    /// Show it again whenever something changes.
    #[arg(short, long)]
    pub watch: bool,
}

/// `validate`.
#[derive(Clone, Debug, Arguments)]
pub struct Validate {
    /// File, folder (its .yaml, .yml and .json files), or - for standard input; may be repeated. YAML with any number of
    /// documents, or JSON.
    #[arg(short, long = "filename", value_name = "FILE", required = true)]
    pub filenames: Vec<PathBuf>,

    /// Image of the agent that admission injects into JobSets that ask for it, as the webhook's flag has it. Without it, one
    /// is assumed, and the result has a note.
    #[arg(long, value_name = "IMAGE", value_hint = ValueHint::Other)]
    pub agent_image: Option<String>,

    /// Feature gates of the webhook, as in InPlaceRestart=false.
    #[arg(long, default_value_t, value_name = "GATES", value_hint = ValueHint::Other)]
    pub feature_gates: jobset_api::gates::Gates,
}

/// What completion scripts are for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Shell {
    /// bash.
    Bash,
    /// zsh.
    Zsh,
    /// fish.
    Fish,
    /// PowerShell.
    Powershell,
    /// kubectl's completion of plugins: the program kubectl_complete-jobset.
    Kubectl,
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;
    use rstest::rstest;

    use super::*;

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
    fn a_name_may_have_its_kind_before_it(#[case] word: &str, #[case] name: &str) {
        let Command::Explain(explain) = parsed(&["explain", word]).unwrap().command else { panic!("another command") };
        assert_eq!(explain.name, name);
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
    fn what_cannot_be_a_name_is_a_wrong_use(#[case] line: &[&str], #[case] words: &str) {
        let error = parsed(line).unwrap_err();
        assert_eq!((error.kind(), error.exit_code()), (ErrorKind::ValueValidation, 2));
        assert!(error.to_string().contains(words), "{error}");
    }
}
