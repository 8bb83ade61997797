//! `make conformance`: suites of the Go JobSet, Kueue and Trainer against this project's programs.

use std::process::ExitCode;

use anyhow::{Result, ensure};
use clap::Parser;
use jobset_e2e::conformance::{self, Score, Subject, Suite};
use jobset_harness::interrupt::unless_interrupted;
use jobset_harness::paths;

/// Runs test suites of the Go JobSet, Kueue and Trainer, from their pinned Go modules, against this project's programs.
///
/// Writes target/conformance.json and prints a table with each case that failed. Ends with 1 if one did. Logs are below
/// target/conformance/runs.
#[derive(Parser)]
#[command(name = "conformance")]
struct Args {
    /// Which suite; may be repeated. Default: all.
    #[arg(long, value_enum)]
    suite: Vec<Suite>,
    /// Runs the cases alone that have this text in their name; may be repeated. Writes no file.
    #[arg(long, value_name = "TEXT")]
    focus: Vec<String>,
    /// Judges the Go JobSet itself, by unmodified suites, and writes target/conformance-go.json.
    #[arg(long)]
    go: bool,
    /// Builds the Go JobSet's suites that judge this project's programs, and runs none.
    #[arg(long, conflicts_with_all = ["focus", "go"])]
    build: bool,
}

#[tokio::main]
async fn main() -> ExitCode {
    match unless_interrupted(run(Args::parse())).await {
        Ok(scores) if scores.iter().all(|score| score.passed() == score.total()) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("conformance: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(args: Args) -> Result<Vec<Score>> {
    if args.build {
        conformance::build().await?;
        return Ok(Vec::new());
    }
    let (subject, file) =
        if args.go { (Subject::Go, "conformance-go.json") } else { (Subject::Ours, "conformance.json") };
    let focus: Vec<&str> = args.focus.iter().map(String::as_str).collect();
    let mut scores = Vec::new();
    let suites = match args.suite {
        chosen if !chosen.is_empty() => chosen,
        _ if args.go => Suite::ALL.into_iter().filter(|suite| suite.judges_go()).collect(),
        _ => Suite::ALL.to_vec(),
    };
    let mut not_run = Vec::new();
    for suite in suites {
        // Without one suite, the others are judged all the same. Whatever ends a run of forty minutes, their results stay.
        match conformance::judge(subject, suite, &focus).await {
            Ok(score) => scores.push(score),
            Err(error) => {
                eprintln!("conformance: {}: {error:#}", suite.name());
                not_run.push(suite.name());
            }
        }
        if focus.is_empty() {
            conformance::write(&paths::target().join(file), &scores)?;
        }
    }
    print!("{}", conformance::table(&scores));
    ensure!(not_run.is_empty(), "these suites did not run: {}", not_run.join(", "));
    Ok(scores)
}
