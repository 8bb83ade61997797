//! Test suites of other projects, run against this project's programs: the Go JobSet's own, and those of Kueue and Trainer, who
//! make JobSets. The Go JobSet can be judged by them, too.

mod build;
mod cases;
mod installed;
mod multikueue;
mod report;
mod run;
mod score;
mod suite;

use anyhow::{Result, bail};

pub use report::{Case, Outcome};
pub use score::{Score, table, write};
use suite::Project;
pub use suite::Suite;

/// Whose behaviour a suite judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The programs of this project.
    Ours,
    /// The Go JobSet, by unmodified suites.
    Go,
}

/// Builds the suites of the Go JobSet that judge our programs on an API server of their own, if they are missing.
pub async fn build() -> Result<()> {
    build::beside_ours(Project::JobSet).await.map(drop)
}

/// Runs the cases of a suite whose names contain one of `focus`; all of them, if it is empty.
pub async fn judge(subject: Subject, suite: Suite, focus: &[&str]) -> Result<Score> {
    let project = suite.project();
    let cases = match subject {
        _ if suite == Suite::MultiKueue => multikueue::judge(subject, focus).await?,
        _ if project.in_clusters().contains(&suite) => installed::judge(subject, suite, focus).await?,
        Subject::Ours => run::passes(&build::beside_ours(project).await?, suite, focus).await?,
        Subject::Go if project == Project::JobSet => {
            run::original(&build::originals(project).await?, suite, focus, &[]).await?
        }
        Subject::Go => bail!("the suite {} runs no JobSet controller: it says nothing of the Go JobSet", suite.name()),
    };
    Ok(Score::new(suite, cases))
}
