//! The Go JobSet's own test suites, run against this project's programs, and against the Go JobSet itself.

mod build;
mod cases;
mod installed;
mod report;
mod run;
mod score;

use anyhow::Result;
use clap::ValueEnum;

pub use build::{Binaries, originals, ours};
pub use report::{Case, Outcome};
pub use score::{Score, table, write};

/// A suite of the Go JobSet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Suite {
    /// `test/integration/controller`: an API server without a Job controller; the cases write the statuses of Jobs.
    Controller,
    /// `test/integration/webhook`: an API server that asks the admission service.
    Webhook,
    /// `test/e2e`: a cluster with kubelets on which the product is installed.
    E2e,
}

impl Suite {
    /// All suites.
    pub const ALL: [Self; 3] = [Self::Webhook, Self::Controller, Self::E2e];

    /// Its name, that of the last folder of its package.
    pub fn name(self) -> &'static str {
        match self {
            Self::Controller => "controller",
            Self::Webhook => "webhook",
            Self::E2e => "e2e",
        }
    }

    /// Its package in the Go module.
    fn package(self) -> &'static str {
        match self {
            Self::Controller => "test/integration/controller",
            Self::Webhook => "test/integration/webhook",
            Self::E2e => "test/e2e",
        }
    }
}

/// Whose behaviour a suite judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The programs of this project.
    Ours,
    /// The Go JobSet, by its unmodified suites.
    Go,
}

/// Runs the cases of a suite whose names contain one of `focus`; all of them, if it is empty.
///
/// # Errors
/// If the suite cannot be built or run, if no case is chosen, or if a case ran in no pass or in two.
pub async fn judge(subject: Subject, suite: Suite, focus: &[&str]) -> Result<Score> {
    let cases = match (suite, subject) {
        (Suite::E2e, _) => installed::judge(subject, focus).await?,
        (_, Subject::Ours) => run::passes(&ours().await?, suite, focus).await?,
        (_, Subject::Go) => run::original(&originals().await?, suite, focus, &[]).await?,
    };
    Ok(Score::new(suite, cases))
}
