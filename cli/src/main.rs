//! The kubectl plugin.

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser as _;
use jobset_cli::args::Cli;
use jobset_cli::error::Error;
use jobset_cli::exit::Exit;
use jobset_cli::run::run;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let exit = match run(Cli::parse()).await {
        Ok(exit) => exit,
        Err(error) => {
            let exit = error.exit();
            // Whoever ends it knows, and whoever does not read does not care.
            if !matches!(error, Error::Interrupted) && exit != Exit::Ok {
                let _ = writeln!(anstream::stderr(), "error: {error}");
            }
            exit
        }
    };
    exit.into()
}
