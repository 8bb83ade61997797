//! Shows one JobSet by the commands of `kubectl jobset`, and measures recoveries by what the workers write down.

use std::collections::{BTreeMap, BTreeSet};
use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use jobset_api::{JobSet, labels};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, ResourceExt};
use tokio::task::JoinSet;

use super::context::IMAGES;
use super::picture::{self, Activity, Happening};
use super::stage::Stage;
use super::summary::Recovery;
use jobset_harness::journal::{Entry, now};
use jobset_harness::wait;
use jobset_harness::workload::Workload;

const LIMIT: Duration = Duration::from_mins(2);
/// The same for `kubectl jobset`.
const TIMEOUT: &str = "--timeout=2m";
/// Time between two looks for images that cannot be pulled.
const LOOK: Duration = Duration::from_secs(1);
/// Reasons of the kubelet for not starting a container.
const IMAGE_REASONS: [&str; 4] = ["ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName"];

type Changes = Arc<Mutex<Vec<(f64, Happening)>>>;

/// One JobSet under observation.
pub(super) struct Observer {
    stage: Arc<Stage>,
    name: String,
    workers: usize,
    jobsets: Api<JobSet>,
    pods: Api<Pod>,
    /// Reports of Pods, and changes of the JobSet's epochs, by the time at which they were observed.
    changes: Changes,
    _watches: JoinSet<()>,
    /// The last failure: its time, and what happened since.
    last: (f64, Vec<Entry>),
}

impl Observer {
    /// Creates the JobSet, begins to watch it, and waits until all of its workers run.
    pub(super) async fn start(stage: &Arc<Stage>, workload: &Workload) -> Result<Self> {
        let (client, namespace) = (stage.client.clone(), &stage.namespace);
        let jobsets: Api<JobSet> = Api::namespaced(client.clone(), namespace);
        let pods: Api<Pod> = Api::namespaced(client, namespace);
        let jobset: JobSet = serde_json::from_value(workload.0.clone()).context("the manifest is not a JobSet")?;
        let from = stage.entries()?.len();
        jobsets.create(&PostParams::default(), &jobset).await.context("the JobSet was refused")?;
        let (name, changes) = (workload.name().to_owned(), Arc::default());
        let observer = Self {
            _watches: watch(stage, &pods, &jobsets, &name, &changes),
            stage: Arc::clone(stage),
            name,
            workers: workload.pods(),
            jobsets,
            pods,
            changes,
            last: (0.0, Vec::new()),
        };
        tokio::select! {
            runs = observer.wait_for("running") => runs?,
            trouble = observer.image_trouble() => bail!("{}{IMAGES}", trouble?),
        }
        observer.written(from, |entries| starts(entries).count() >= observer.workers).await?;
        Ok(observer)
    }

    /// Lets one worker fail, and waits until all workers have started again.
    pub(super) async fn watch_a_failure(&mut self) -> Result<Recovery> {
        let before = self.list().await?;
        let victim = before.first().context("the JobSet has no Pods")?;
        let name = victim.name_any();
        let from = self.stage.entries()?.len();
        println!("the worker of {name} exits with code 1");
        tokio::try_join!(self.stage.end(victim), self.wait_for("restarted"))?;
        let has_ended = |entry: &&Entry| entry.event == "exit" && entry.pod == name;
        let entries = self.written(from, |entries| {
            starts(entries).count() >= self.workers && entries.iter().any(|entry| has_ended(&entry))
        });
        let entries = entries.await?;
        let exited = entries.iter().find(has_ended).context("no exit")?.time;
        let last = starts(&entries).map(|start| start.time).fold(exited, f64::max);
        let kept: BTreeSet<String> = before.iter().filter_map(ResourceExt::uid).collect();
        let same_uid = starts(&entries).filter(|start| kept.contains(&start.uid)).count();
        let recovery = Recovery { seconds: last - exited, pods: self.workers, same_uid };
        println!("all {} workers have started again {:.2} s after the exit", self.workers, recovery.seconds);
        self.last = (exited, entries);
        Ok(recovery)
    }

    /// Shows the restarts, deletes the JobSet, and waits until its Pods are gone. Returns the last failure as a picture.
    pub(super) async fn end(self) -> Result<String> {
        println!();
        self.stage.kubectl_jobset(&["restarts", &self.name]).await?;
        let picture = self.picture();
        self.jobsets.delete(&self.name, &DeleteParams::foreground()).await?;
        wait::until(LIMIT, format!("the end of {}", self.name), || async {
            Ok(self.jobsets.get_opt(&self.name).await?.is_none().then_some(()))
        })
        .await?;
        Ok(picture)
    }

    fn picture(&self) -> String {
        let (failed, entries) = &self.last;
        let activity = |entry: &Entry| if entry.event == "start" { Activity::Works } else { Activity::Restarts };
        let of_workers = entries.iter().map(|entry| (entry.time, Happening::Pod(entry.pod.clone(), activity(entry))));
        let changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
        let since = of_workers.chain(changes.iter().filter(|(time, _)| time > failed).cloned());
        picture::svg(&since.map(|(time, what)| (time - failed, what)).collect::<Vec<_>>())
    }

    async fn wait_for(&self, goal: &str) -> Result<()> {
        self.stage.kubectl_jobset(&["wait", &self.name, "--for", goal, TIMEOUT]).await
    }

    /// Waits until what the workers have written from this entry on is enough: logs come later than the state of Pods. By place, not
    /// by time: clocks of other machines differ.
    async fn written(&self, from: usize, is_enough: impl Fn(&[Entry]) -> bool) -> Result<Vec<Entry>> {
        wait::until(LIMIT, format!("the words of all {} workers of {}", self.workers, self.name), || async {
            let entries = self.stage.entries()?.split_off(from);
            Ok(is_enough(&entries).then_some(entries))
        })
        .await
    }

    /// Waits for a Pod that an image keeps from starting.
    async fn image_trouble(&self) -> Result<String> {
        loop {
            if let Some(trouble) = self.list().await?.iter().find_map(image_trouble) {
                return Ok(trouble);
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    /// The Pods, as the API server has them.
    async fn list(&self) -> Result<Vec<Pod>> {
        Ok(self.pods.list(&ListParams::default().labels(&children(&self.name))).await?.items)
    }
}

fn children(jobset: &str) -> String {
    format!("{}={jobset}", labels::JOBSET_NAME)
}

/// Notes what Pods report and what the JobSet's status says, and follows what workers write, until the tasks are dropped.
fn watch(stage: &Arc<Stage>, pods: &Api<Pod>, jobsets: &Api<JobSet>, name: &str, changes: &Changes) -> JoinSet<()> {
    let of_pods = watcher::Config::default().labels(&children(name));
    let itself = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let pods = watcher(pods.clone(), of_pods).default_backoff().applied_objects();
    let jobsets = watcher(jobsets.clone(), itself).default_backoff().applied_objects();
    let note = |changes: &Changes, what| {
        changes.lock().unwrap_or_else(PoisonError::into_inner).push((now(), what));
    };
    let mut watches = JoinSet::new();
    let (stage, of_pods, mut reported) = (Arc::clone(stage), Arc::clone(changes), BTreeMap::new());
    watches.spawn(pods.filter_map(|pod| ready(pod.ok())).for_each(move |pod| {
        stage.follow(&pod);
        if let Some(epoch) = pod.annotations().get(labels::EPOCH)
            && reported.insert(pod.name_any(), epoch.clone()).as_ref() != Some(epoch)
        {
            note(&of_pods, Happening::Pod(pod.name_any(), Activity::Waits));
        }
        ready(())
    }));
    let (of_jobset, mut deprecated, mut synced) = (Arc::clone(changes), 0, 0);
    watches.spawn(jobsets.filter_map(|jobset| ready(jobset.ok())).for_each(move |jobset| {
        let status = jobset.status.unwrap_or_default();
        if status.deprecated_epoch != deprecated {
            note(&of_jobset, Happening::JobSet(format!("deprecatedEpoch = {}", status.deprecated_epoch)));
        }
        if status.synced_epoch != synced {
            note(&of_jobset, Happening::JobSet(format!("syncedEpoch = {}: barrier lifted", status.synced_epoch)));
        }
        (deprecated, synced) = (status.deprecated_epoch, status.synced_epoch);
        ready(())
    }));
    watches
}

fn starts(entries: &[Entry]) -> impl Iterator<Item = &Entry> {
    entries.iter().filter(|entry| entry.event == "start")
}

/// What keeps a Pod from starting, if it is an image.
fn image_trouble(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?;
    let inits = status.init_container_statuses.iter().flatten();
    let waiting = |status: &ContainerStatus| {
        let waiting = status.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.as_deref().filter(|reason| IMAGE_REASONS.contains(reason))?;
        Some(format!("{}: {reason} {}", pod.name_any(), status.image))
    };
    inits.chain(status.container_statuses.iter().flatten()).find_map(waiting)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_image_that_is_not_there_is_named() {
        let waits = |reason: &str| {
            let mut pod = json!({
                "metadata": {"name": "a"}, "spec": {"containers": []},
                "status": {"containerStatuses": [
                    {"name": "worker", "image": "localhost/w:dev", "imageID": "", "ready": false, "restartCount": 0},
                ]},
            });
            pod["status"]["containerStatuses"][0]["state"] = json!({"waiting": {"reason": reason}});
            image_trouble(&serde_json::from_value(pod).unwrap())
        };
        assert_eq!(waits("ErrImagePull").as_deref(), Some("a: ErrImagePull localhost/w:dev"));
        assert_eq!(waits("PodInitializing"), None);
    }
}
