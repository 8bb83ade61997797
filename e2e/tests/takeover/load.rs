//! JobSets that come and go, while the controllers change.

use std::time::Duration;

use anyhow::{Result, ensure};
use jobset_api::JobSet;
use jobset_harness::wait::{self, Check};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::manifests::{LOAD, short};
use super::story::LIMIT;

/// Time between two JobSets.
const INTERVAL: Duration = Duration::from_secs(2);

pub(super) struct Load {
    jobsets: Api<JobSet>,
    stop: CancellationToken,
    stream: JoinHandle<Result<usize>>,
}

impl Load {
    pub(super) fn begin(client: &Client) -> Self {
        let jobsets: Api<JobSet> = Api::namespaced(client.clone(), LOAD);
        let stop = CancellationToken::new();
        let stream = tokio::spawn(create(jobsets.clone(), stop.clone()));
        Self { jobsets, stop, stream }
    }

    /// Ends the stream, and waits until all that it has created have completed. How many they were.
    pub(super) async fn end(self) -> Result<usize> {
        self.stop.cancel();
        let created = self.stream.await??;
        ensure!(created > 0, "no JobSet was created");
        wait::until_met(LIMIT, "all JobSets of the load to complete", || async {
            let jobsets = self.jobsets.list(&ListParams::default()).await?.items;
            ensure!(jobsets.len() == created, "of {created} JobSets {} are there", jobsets.len());
            let open = jobsets.iter().find(|it| it.status.as_ref().is_none_or(|it| it.terminal_state != "Completed"));
            Ok(match open {
                None => Check::Met(()),
                Some(open) => Check::Unmet(format!("{}: {:?}", open.name_any(), open.status)),
            })
        })
        .await?;
        Ok(created)
    }
}

/// Creates JobSets until it is stopped. While no admission service answers, none is admitted.
async fn create(jobsets: Api<JobSet>, stop: CancellationToken) -> Result<usize> {
    let mut created = 0;
    let mut turns = tokio::time::interval(INTERVAL);
    while stop.run_until_cancelled(turns.tick()).await.is_some() {
        let jobset = serde_json::from_value(short(&format!("short-{created}")))?;
        created += usize::from(jobsets.create(&PostParams::default(), &jobset).await.is_ok());
    }
    Ok(created)
}
