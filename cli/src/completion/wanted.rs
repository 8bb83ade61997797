//! What could follow on a command line, told from the definition of the command line itself.

use clap::{Arg, Command};

use super::possible;
use crate::args::Global;

/// What could stand in the place of the last word.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    /// Words that are known here.
    pub(super) candidates: Vec<String>,
    /// Others that have to be looked up.
    pub(super) values: Values,
    /// How each candidate has to begin.
    pub(super) begun: String,
    /// Where to look up names: as the words before say.
    pub(super) global: Global,
}

/// Which words have to be looked up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Values {
    /// None: all are known.
    #[default]
    Listed,
    /// Names of JobSets.
    JobSets,
    /// Names of namespaces.
    Namespaces,
    /// Names of files.
    Files,
}

/// What could stand in the place of the last of these words, which may be empty.
pub(super) fn wanted(root: &Command, words: &[String]) -> Wanted {
    let Some((last, before)) = words.split_last() else { return Wanted::default() };
    let mut found = Wanted { begun: last.clone(), ..Wanted::default() };
    let mut command = root;
    let (mut positionals, mut expected): (usize, Option<&Arg>) = (0, None);
    for word in before {
        if let Some(argument) = expected.take() {
            take(argument, word, &mut found.global);
        } else if let Some(argument) = option(root, command, word) {
            match word.split_once('=') {
                Some((_, value)) => take(argument, value, &mut found.global),
                None => expected = takes_value(argument).then_some(argument),
            }
        } else if let Some(subcommand) = command.find_subcommand(word) {
            command = subcommand;
        } else if !word.starts_with('-') {
            positionals += 1;
        }
    }
    if let Some(argument) = expected {
        values_of(argument, &mut found);
    } else if last.starts_with('-') {
        found.candidates = options(root, command);
    } else if let Some(argument) = command.get_positionals().nth(positionals) {
        values_of(argument, &mut found);
    } else if positionals == 0 {
        found.candidates = subcommands(command);
    }
    found
}

/// The option that a word names, of this command or of all.
fn option<'a>(root: &'a Command, command: &'a Command, word: &str) -> Option<&'a Arg> {
    let name = word.split_once('=').map_or(word, |(name, _)| name);
    let mut arguments = command.get_arguments().chain(root.get_arguments());
    arguments.find(|argument| {
        let long = argument.get_long().is_some_and(|long| name.strip_prefix("--") == Some(long));
        let short =
            argument.get_short().is_some_and(|short| name.strip_prefix('-') == Some(short.to_string().as_str()));
        long || short
    })
}

fn takes_value(argument: &Arg) -> bool {
    argument.get_action().takes_values()
}

/// What the words before say about where to look.
fn take(argument: &Arg, value: &str, global: &mut Global) {
    match argument.get_id().as_str() {
        "namespace" => global.namespace = Some(value.to_owned()),
        "context" => global.context = Some(value.to_owned()),
        "kubeconfig" => global.kubeconfig = Some(value.into()),
        _ => {}
    }
}

fn values_of(argument: &Arg, found: &mut Wanted) {
    found.candidates = possible(argument);
    found.values = match argument.get_id().as_str() {
        "name" => Values::JobSets,
        "namespace" => Values::Namespaces,
        "kubeconfig" | "filenames" => Values::Files,
        _ => Values::Listed,
    };
}

fn options(root: &Command, command: &Command) -> Vec<String> {
    let arguments = command.get_arguments().chain(root.get_arguments().filter(|argument| argument.is_global_set()));
    let mut names: Vec<String> = arguments.filter_map(|it| Some(format!("--{}", it.get_long()?))).collect();
    names.push("--help".to_owned());
    names.sort();
    names.dedup();
    names
}

fn subcommands(command: &Command) -> Vec<String> {
    let shown = command.get_subcommands().filter(|command| !command.is_hide_set());
    shown.map(|command| command.get_name().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use rstest::rstest;

    use super::*;
    use crate::args::Cli;

    fn of(line: &[&str]) -> Wanted {
        wanted(&Cli::command(), &line.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>())
    }

    #[rstest]
    #[case::commands(&[""], &["status", "restarts", "explain", "validate", "completion"], Values::Listed)]
    #[case::a_name(&["status", ""], &[], Values::JobSets)]
    #[case::after_a_flag(&["explain", "--watch", "t"], &[], Values::JobSets)]
    #[case::one_name_is_enough(&["explain", "train", ""], &[], Values::Listed)]
    #[case::a_form(&["status", "-o", ""], &["table", "wide", "json", "yaml"], Values::Listed)]
    #[case::a_namespace(&["status", "--namespace", ""], &[], Values::Namespaces)]
    #[case::a_file(&["validate", "-f", ""], &[], Values::Files)]
    #[case::a_shell(&["completion", ""], &["bash", "zsh", "fish", "powershell", "kubectl"], Values::Listed)]
    fn what_follows_is_told_from_the_command_line(
        #[case] line: &[&str],
        #[case] candidates: &[&str],
        #[case] values: Values,
    ) {
        let wanted = of(line);
        assert_eq!(
            (wanted.candidates.as_slice(), wanted.values),
            (&*candidates.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>(), values)
        );
    }

    #[test]
    fn options_are_those_of_the_command_and_of_all() {
        let candidates = of(&["status", "--"]).candidates;
        let has = |name: &str| candidates.iter().any(|candidate| candidate == name);
        assert!(has("--pods") && has("--watch") && has("--namespace") && has("--help"), "{candidates:?}");
        assert!(!has("--filename"), "{candidates:?}");
    }

    #[test]
    fn names_are_looked_up_where_the_words_before_say() {
        let global = of(&["status", "-n", "ml", "--context=lab", "t"]).global;
        assert_eq!((global.namespace.as_deref(), global.context.as_deref()), (Some("ml"), Some("lab")));
    }
}
