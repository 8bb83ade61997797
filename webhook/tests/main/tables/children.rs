//! The tables about templates, compared with what the API server says of the Jobs: it refuses one of each JobSet that admission
//! rejects, and takes all Jobs of the others.

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, stream};
use jobset_api::{JobSet, defaults};
use jobset_rules::build::{Attempt, DesiredJob, JobPlace, job};
use jobset_store::PriorityClasses;
use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::PostParams;

use super::case::{Case, Verdict};
use super::{AT_ONCE, tables};
use crate::cluster::Plane;

/// The tables of these rules begin with one of these.
const OF_TEMPLATES: [&str; 2] = ["template", "volume_mounts"];

#[tokio::test]
async fn api_server_decides_about_jobs_of_templates_as_tables_say() -> Result<()> {
    let tables = tables()?;
    let cases = tables.iter().filter(|(name, _)| OF_TEMPLATES.iter().any(|begin| name.starts_with(begin)));
    let cases: Vec<_> = cases.flat_map(|(name, cases)| cases.iter().map(move |case| (name, case))).collect();
    let jobs: &Api<Job> = &Api::namespaced(Plane::shared().await?.client(), "default");
    let tried = stream::iter(&cases).map(|(table, case)| async move {
        let is_rejected = match &case.expected {
            // The CustomResourceDefinition has decided, or a stored JobSet has its Jobs.
            Verdict::Malformed(_) => return None,
            _ if case.update.is_some() => return None,
            Verdict::Denied(_) => true,
            Verdict::Admitted(warnings) => warnings.iter().any(|it| it.contains("the API server refuses it")),
        };
        match refusals(jobs, case).await {
            Ok(refusals) if refusals.is_empty() != is_rejected => None,
            Ok(refusals) if is_rejected => {
                Some(format!("{table}: {}: the API server takes the Jobs {refusals:?}", case.name))
            }
            Ok(refusals) => Some(format!("{table}: {}: the API server says\n  {}", case.name, refusals.join("\n  "))),
            Err(error) => Some(format!("{table}: {}: {error:#}", case.name)),
        }
    });
    let tried: Vec<Option<String>> = tried.buffered(AT_ONCE).collect().await;
    let failed: Vec<_> = tried.into_iter().flatten().collect();
    assert!(failed.is_empty(), "{} of {} cases:\n{}", failed.len(), cases.len(), failed.join("\n"));
    Ok(())
}

/// What the API server says against the first Job of each replicatedJob.
async fn refusals(api: &Api<Job>, case: &Case) -> Result<Vec<String>> {
    let mut jobset: JobSet = serde_json::from_value(case.jobset.clone()).context("not readable")?;
    jobset.spec = defaults::apply(&jobset.spec);
    jobset.metadata.uid = Some("uid".to_owned());
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let (strategy, classes) = (jobset.spec.restart_strategy(), PriorityClasses::default());
    let mut found = Vec::new();
    for group_index in 0..jobset.spec.replicated_jobs.len() {
        let place = JobPlace { group_index, job_index: 0 };
        let desired = DesiredJob::of(&jobset, place, Attempt::default(), strategy, &classes);
        match api.create(&params, &job(&jobset, &desired)).await {
            Ok(_) => {}
            Err(kube::Error::Api(status)) if status.code == 422 => found.push(status.message),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(found)
}
