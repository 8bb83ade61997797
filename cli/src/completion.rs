//! Shell completion by clap's engine: for the shells themselves, and for `kubectl jobset <TAB>` by cobra's protocol.
//!
//! Names of JobSets and namespaces come from the cluster that the words before the cursor select.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use clap::{ArgMatches, Command, CommandFactory as _, ValueEnum as _};
use clap_complete::CompleteEnv;
use clap_complete::engine::{ArgValueCompleter, CompletionCandidate, complete};
use clap_complete::env::Shells;
use tokio::runtime::Builder;

use crate::args::{Cli, GlobalArgs, Shell};
use crate::cluster::connect;
use crate::error::Error;

const PROGRAM: &str = "kubectl-jobset";
/// The environment variable by which a shell's script asks the program for candidates.
const VARIABLE: &str = "COMPLETE";

/// The program kubectl_complete-jobset, which kubectl runs for `kubectl jobset <TAB>`.
const KUBECTL: &str = "\
#!/bin/sh
# Completion of `kubectl jobset`. kubectl 1.26 or newer looks for it in the PATH, as kubectl_complete-jobset.
exec kubectl-jobset __complete \"$@\"
";

/// The shell offers the candidates only (cobra's ShellCompDirectiveNoFileComp).
const CANDIDATES_ONLY: &str = ":4\n";
/// The shell completes file names (cobra's ShellCompDirectiveDefault).
const FILE_NAMES: &str = ":0\n";
/// The candidate that stands for all file names. No other candidate ends in a slash.
const ANY_FILE: &str = "/";

/// Kind of the objects whose names are completed.
#[derive(Clone, Copy, Debug)]
enum NameOf {
    JobSet,
    Namespace,
}

type LookUp = fn(&GlobalArgs, NameOf) -> Vec<String>;

pub fn script(shell: Shell) -> Result<String, Error> {
    if shell == Shell::Kubectl {
        return Ok(KUBECTL.to_owned());
    }
    let (shells, value) = (Shells::builtins(), shell.to_possible_value());
    let completer = value.and_then(|value| shells.completer(value.get_name()));
    let completer = completer.ok_or_else(|| Error::Write(std::io::ErrorKind::Unsupported.into()))?;
    let mut script = Vec::new();
    completer.write_registration(VARIABLE, PROGRAM, PROGRAM, PROGRAM, &mut script).map_err(Error::Write)?;
    Ok(String::from_utf8_lossy(&script).into_owned())
}

/// Answers a shell's script and ends the process. Returns if no script has asked.
pub fn answer_shell() {
    // A script runs `kubectl-jobset -- WORDS`, of which the first word is the program.
    let words: Vec<OsString> = std::env::args_os().skip(2).collect();
    CompleteEnv::with_factory(|| command(&words, look_up)).var(VARIABLE).bin(PROGRAM).complete();
}

/// Candidates for the last of these words, one a line, and cobra's directive for the shell.
pub fn answer_kubectl(words: &[String]) -> String {
    cobra(words, look_up)
}

fn cobra(words: &[String], look_up: LookUp) -> String {
    let line: Vec<OsString> =
        std::iter::once(PROGRAM).chain(words.iter().map(String::as_str)).map(Into::into).collect();
    // kubectl's shell completes file names better: it knows `~` and quotes.
    let file = || ArgValueCompleter::new(|_: &OsStr| vec![ANY_FILE.into()]);
    let mut command = command(&line, look_up)
        .mut_arg("kubeconfig", |argument| argument.add(file()))
        .mut_subcommand("validate", |command| command.mut_arg("filenames", |argument| argument.add(file())));
    let candidates = complete(&mut command, line, words.len(), None).unwrap_or_default();
    let values: Vec<_> = candidates.iter().map(|candidate| candidate.get_value().to_string_lossy()).collect();
    if values.iter().any(|value| value.ends_with(ANY_FILE)) {
        return FILE_NAMES.to_owned();
    }
    // clap's engine offers options in every place, and kubectl only after a hyphen.
    let wants_option = words.last().is_some_and(|word| word.starts_with('-'));
    let offered = values.iter().filter(|value| wants_option || !value.starts_with('-'));
    offered.map(AsRef::as_ref).chain([CANDIDATES_ONLY]).collect::<Vec<_>>().join("\n")
}

/// The command line with completion of names. The words select the cluster.
fn command(words: &[OsString], look_up: LookUp) -> Command {
    let global = global(words);
    let names = |of: NameOf| {
        let global = global.clone();
        ArgValueCompleter::new(move |begun: &OsStr| {
            let names = look_up(&global, of).into_iter().map(CompletionCandidate::new);
            names.filter(|name| name.get_value().as_encoded_bytes().starts_with(begun.as_encoded_bytes())).collect()
        })
    };
    let command = Cli::command().mut_arg("namespace", |argument| argument.add(names(NameOf::Namespace)));
    ["status", "restarts", "goodput", "explain", "wait", "restart", "logs", "suspend", "resume", "ui"].into_iter().fold(
        command,
        |command, subcommand| {
            command.mut_subcommand(subcommand, |command| {
                command.mut_arg("name", |argument| argument.add(names(NameOf::JobSet)))
            })
        },
    )
}

/// The options that select the cluster, from a command line that is not complete yet.
fn global(words: &[OsString]) -> GlobalArgs {
    let Ok(matches) = Cli::command().ignore_errors(true).try_get_matches_from(words) else {
        return GlobalArgs::default();
    };
    let text = |id: &str| ArgMatches::try_get_one::<String>(&matches, id).ok().flatten().cloned();
    let kubeconfig = matches.try_get_one::<PathBuf>("kubeconfig").ok().flatten().cloned();
    let as_user = text("as_user");
    GlobalArgs { namespace: text("namespace"), context: text("context"), kubeconfig, as_user, ..GlobalArgs::default() }
}

/// Names from the cluster; none if it does not answer.
fn look_up(global: &GlobalArgs, of: NameOf) -> Vec<String> {
    let names = async {
        let Ok(cluster) = connect(global).await else { return Vec::new() };
        match of {
            NameOf::JobSet => cluster.jobset_names().await,
            NameOf::Namespace => cluster.namespace_names().await,
        }
    };
    Builder::new_current_thread().enable_all().build().map(|runtime| runtime.block_on(names)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    /// Says in the name where it looks.
    fn fake(global: &GlobalArgs, of: NameOf) -> Vec<String> {
        let place = [&global.namespace, &global.context].map(|word| word.as_deref().unwrap_or("-")).join("/");
        vec![format!("train-{of:?}-{place}"), "other".to_owned()]
    }

    fn answer(line: &[&str]) -> String {
        cobra(&line.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>(), fake)
    }

    #[rstest]
    #[case::commands(&[""], "status restarts goodput explain nodes wait restart logs suspend resume ui validate completion help :4")]
    #[case::begun_command(&["st"], "status :4")]
    #[case::jobset(&["status", ""], "train-JobSet--/- other :4")]
    #[case::begun_jobset(&["explain", "--watch", "t"], "train-JobSet--/- :4")]
    #[case::jobset_of_another_place(&["status", "-n", "ml", "--context=lab", "t"], "train-JobSet-ml/lab :4")]
    #[case::goal(&["wait", "train", "--for", ""], "running restarted finished :4")]
    #[case::jobset_to_wait_for(&["wait", "--for", "running", "t"], "train-JobSet--/- :4")]
    #[case::jobset_of_page(&["ui", "o"], "other :4")]
    #[case::second_name(&["explain", "train", ""], ":4")]
    #[case::output(&["status", "-o", ""], "table wide json yaml :4")]
    #[case::namespace(&["status", "--namespace", ""], "train-Namespace--/- other :4")]
    #[case::file(&["validate", "-f", ""], ":0")]
    #[case::kubeconfig(&["status", "--kubeconfig", "~/"], ":0")]
    #[case::shell(&["completion", ""], "bash zsh fish powershell kubectl :4")]
    fn kubectl_asks_for_last_word_gets_its_candidates(#[case] line: &[&str], #[case] expected: &str) {
        assert_eq!(answer(line).split_whitespace().collect::<Vec<_>>().join(" "), expected);
    }

    #[test]
    fn completion_of_option_lists_command_and_global_options() {
        let text = answer(&["status", "--"]);
        let has = |name: &str| text.lines().any(|line| line == name);
        assert!(has("--pods") && has("--watch") && has("--namespace") && has("--help"), "{text}");
        assert!(!has("--filename"), "{text}");
    }

    #[rstest]
    #[case(Shell::Bash)]
    #[case(Shell::Zsh)]
    #[case(Shell::Fish)]
    #[case(Shell::Powershell)]
    fn script_of_shell_asks_program(#[case] shell: Shell) {
        let script = script(shell).unwrap();
        assert!(script.contains(PROGRAM) && script.contains(VARIABLE), "{script}");
    }
}
