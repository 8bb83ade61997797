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
    clap_complete::generate(shell, &mut shown(), PROGRAM, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// The command line without what is hidden, which clap's scripts would offer nevertheless.
fn shown() -> clap::Command {
    let whole = Cli::command();
    let bare = clap::Command::new(PROGRAM).version(env!("CARGO_PKG_VERSION")).propagate_version(true);
    let shown = whole.get_subcommands().filter(|command| !command.is_hide_set()).cloned();
    bare.args(whole.get_arguments().cloned()).subcommands(shown)
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

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(Shell::Bash)]
    #[case(Shell::Zsh)]
    #[case(Shell::Fish)]
    #[case(Shell::Powershell)]
    fn scripts_offer_what_is_shown_and_nothing_hidden(#[case] shell: Shell) {
        let script = script(shell);
        assert!(script.contains("explain") && script.contains("all-namespaces") && script.contains("kubeconfig"));
        assert!(!script.contains("__complete"), "{shell:?}");
    }
}
