//! The flags of the programs, from their command-line parsers.

use std::fmt::Write as _;

use clap::{Arg, Command, CommandFactory as _};

use super::cell;

pub(super) fn page() -> String {
    let mut page = "# Flags\n\nEach program prints the same with `--help`. A flag that has a variable can also be set in the \
                    environment. The environment of `jobset-agent` is on the page [Labels, annotations and environment](labels.md).\n"
        .to_owned();
    let programs = [
        ("jobset-controller", jobset_controller::args::Args::command()),
        ("jobset-webhook", jobset_webhook::args::Args::command()),
        ("jobset-certs", jobset_certs::args::Args::command()),
        ("jobset-relay", jobset_relay::args::Args::command()),
    ];
    for (name, command) in programs {
        let _ = writeln!(page, "\n## {name}\n");
        table(&mut page, &command, |_| true);
    }
    let plugin = jobset_cli::args::Cli::command();
    page.push_str("\n## kubectl jobset\n\nOptions of all commands:\n\n");
    table(&mut page, &plugin, |_| true);
    for command in plugin.get_subcommands().filter(|command| !command.is_hide_set()) {
        let _ = writeln!(page, "\n### kubectl jobset {}\n", command.get_name());
        let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
        let _ = writeln!(page, "{}\n", about.replace('<', "&lt;"));
        table(&mut page, command, |arg| !arg.is_global_set());
    }
    page
}

fn table(page: &mut String, command: &Command, shown: impl Fn(&Arg) -> bool) {
    let is_shown =
        |arg: &&Arg| !arg.is_hide_set() && shown(arg) && !["help", "version"].contains(&arg.get_id().as_str());
    let mut args = command.get_arguments().filter(is_shown).peekable();
    if args.peek().is_none() {
        return page.push_str("It has no flags of its own.\n");
    }
    page.push_str("| flag | default | meaning |\n|---|---|---|\n");
    for arg in args {
        let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
        let values: Vec<String> = arg.get_default_values().iter().map(|it| it.to_string_lossy().into_owned()).collect();
        let default = if values.is_empty() { String::new() } else { format!("`{}`", values.join(",")) };
        let variable =
            arg.get_env().map(|name| format!(" Variable: `{}`.", name.to_string_lossy())).unwrap_or_default();
        let text = cell(&help).replace('<', "&lt;").replace("&lt;br>", "<br>");
        let _ = writeln!(page, "| `{}` | {default} | {text}{variable} |", name(arg));
    }
}

/// A flag with its value, as it is typed.
fn name(arg: &Arg) -> String {
    let value = arg.get_value_names().and_then(|names| names.first()).map(ToString::to_string);
    let takes_value = arg.get_action().takes_values();
    match (arg.get_long(), value) {
        (Some(long), Some(value)) if takes_value => format!("--{long} {value}"),
        (Some(long), _) => format!("--{long}"),
        (None, value) => value.unwrap_or_else(|| arg.get_id().to_string().to_uppercase()),
    }
}
