//! Completion: scripts for shells, and the answers that kubectl's own completion asks plugins for.

mod wanted;

use clap::CommandFactory as _;
use clap_complete::Shell as Known;

use crate::args::{Cli, Global, Shell};
use crate::cluster::connect;
use wanted::{Values, Wanted, wanted};

/// Name of the program, and of the plugin where kubectl looks for it.
const PROGRAM: &str = "kubectl-jobset";

/// What kubectl runs for `kubectl jobset <TAB>`.
const KUBECTL: &str = "\
#!/bin/sh
# Completion of `kubectl jobset`. kubectl 1.26 or newer looks for it in the PATH, as kubectl_complete-jobset.
exec kubectl-jobset __complete \"$@\"
";

/// No other candidates than those that are listed (cobra's ShellCompDirectiveNoFileComp).
const LISTED: u8 = 4;
/// Names of files, if nothing is listed (cobra's ShellCompDirectiveDefault).
const FILES: u8 = 0;

/// The completion script for a shell.
pub fn script(shell: Shell) -> String {
    let shell = match shell {
        Shell::Kubectl => return KUBECTL.to_owned(),
        Shell::Bash => Known::Bash,
        Shell::Zsh => Known::Zsh,
        Shell::Fish => Known::Fish,
        Shell::Powershell => Known::PowerShell,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), PROGRAM, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Candidates for the last of these words, one a line, and what the shell is to do with them, as cobra's programs answer.
pub async fn complete(words: &[String]) -> String {
    let Wanted { mut candidates, values, begun, global } = wanted(&Cli::command(), words);
    match values {
        Values::JobSets => candidates.extend(names(&global, false).await),
        Values::Namespaces => candidates.extend(names(&global, true).await),
        Values::Listed | Values::Files => {}
    }
    let directive = if values == Values::Files { FILES } else { LISTED };
    let lines =
        candidates.iter().filter(|candidate| candidate.starts_with(&begun)).map(|candidate| format!("{candidate}\n"));
    lines.collect::<String>() + &format!(":{directive}\n")
}

async fn names(global: &Global, of_namespaces: bool) -> Vec<String> {
    let Ok(cluster) = connect(global).await else { return Vec::new() };
    if of_namespaces { cluster.namespace_names().await } else { cluster.jobset_names().await }
}

/// Values that the value enum of this argument has.
fn possible(argument: &clap::Arg) -> Vec<String> {
    argument.get_possible_values().iter().map(|value| value.get_name().to_owned()).collect()
}
