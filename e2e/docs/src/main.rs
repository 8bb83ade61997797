//! `make docs`: the generated parts of the documentation site, and its check.

use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use jobset_docs::{check, drift, figures, pages, pages_folder, write};
use jobset_harness::paths;

/// Generates the reference pages and the tables of figures of the documentation site, and checks all of its pages.
#[derive(Parser)]
#[command(name = "docs")]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Ends with 1 if a generated page is not what the code says, a link leads nowhere, or an example is rejected.
    Check,
    /// Writes the generated pages.
    Write,
    /// Takes over the results of the last runs of demo and benchmarks, and writes their tables.
    Record,
}

fn main() -> ExitCode {
    match run(&Args::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("docs: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &Command) -> Result<()> {
    let folder = pages_folder();
    if matches!(command, Command::Record) {
        for file in figures::record(&paths::workspace().join("docs/figures"))? {
            println!("recorded {}", file.display());
        }
    }
    let generated = pages()?;
    if !matches!(command, Command::Check) {
        return write(&folder, &generated);
    }
    let drifted = drift(&folder, &generated);
    let mut problems: Vec<String> = drifted
        .iter()
        .map(|page| format!("{}: is not what the code says: run make docs-write", page.display()))
        .collect();
    problems.extend(check::problems(&folder)?);
    if problems.is_empty() {
        return Ok(());
    }
    bail!("{} problems:\n{}", problems.len(), problems.join("\n"))
}
