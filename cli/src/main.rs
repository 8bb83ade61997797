//! The kubectl plugin.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use jobset_cli::args::Cli;
use jobset_cli::completion::answer_shell;
use jobset_cli::error::Error;
use jobset_cli::exit::Exit;
use jobset_cli::run::run;

fn main() -> ExitCode {
    answer_shell();
    let exit = run(Cli::parse()).unwrap_or_else(|error| {
        let exit = error.exit();
        // Ctrl-C and a closed pipe need no message.
        if !matches!(error, Error::Interrupted) && exit != Exit::Ok {
            let _ = writeln!(anstream::stderr(), "error: {error}");
        }
        exit
    });
    exit.into()
}
