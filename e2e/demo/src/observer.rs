//! Watches one JobSet and its Pods, prints what happens, and measures recoveries from the workers' journals.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use jobset_api::{JobSet, labels};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use tokio::time::Instant;

use super::context::IMAGES;
use super::picture;
use super::stage::Stage;
use super::summary::Recovery;
use super::timeline::{HEADER, Line, Timeline, image_trouble};
use jobset_harness::journal::{Entry, now};
use jobset_harness::wait::{self, Check};
use jobset_harness::workload::{Workload, is_ready};

const LIMIT: Duration = Duration::from_mins(2);
/// Time between two looks at the journals.
const JOURNAL_POLL: Duration = Duration::from_millis(50);

enum Change {
    Pod(Box<Event<Pod>>),
    JobSet(Box<Event<JobSet>>),
}

/// One JobSet under observation.
pub(super) struct Observer<'a> {
    stage: &'a Stage,
    name: String,
    workers: usize,
    jobsets: Api<JobSet>,
    pods: Api<Pod>,
    events: BoxStream<'static, Result<Change, watcher::Error>>,
    timeline: Timeline,
    /// What the workers have written down, in the order in which it was read.
    entries: Vec<Entry>,
    entries_shown: usize,
    /// What was printed of the last failure, with the seconds since.
    lines: Vec<(f64, Line)>,
}

impl<'a> Observer<'a> {
    /// Creates the JobSet and begins to watch it.
    pub(super) async fn start(stage: &'a Stage, workload: &Workload) -> Result<Self> {
        let (client, namespace) = (stage.client.clone(), &stage.namespace);
        let jobsets: Api<JobSet> = Api::namespaced(client.clone(), namespace);
        let pods: Api<Pod> = Api::namespaced(client, namespace);
        let name = workload.name().to_owned();
        let children = watcher::Config::default().labels(&format!("{}={name}", labels::JOBSET_NAME));
        let itself = watcher::Config::default().fields(&format!("metadata.name={name}"));
        let events = stream::select(
            watcher(pods.clone(), children).map(|event| event.map(Box::new).map(Change::Pod)).boxed(),
            watcher(jobsets.clone(), itself).map(|event| event.map(Box::new).map(Change::JobSet)).boxed(),
        );
        let jobset: JobSet = serde_json::from_value(workload.0.clone()).context("the manifest is not a JobSet")?;
        jobsets.create(&PostParams::default(), &jobset).await.context("the JobSet was refused")?;
        let entries = stage.entries()?;
        Ok(Self {
            stage,
            name,
            workers: workload.pods(),
            entries_shown: entries.len(),
            entries,
            jobsets,
            pods,
            events: events.boxed(),
            timeline: Timeline::default(),
            lines: Vec::new(),
        })
    }

    /// Prints what happens until all workers have started.
    pub(super) async fn watch_the_start(&mut self) -> Result<()> {
        println!("{HEADER}");
        let begun = self.entries.len();
        self.watch_until(now(), begun).await?;
        self.settle().await
    }

    /// Kills one worker process, which writes down that it ends, and prints what happens until all workers have started again.
    pub(super) async fn watch_a_failure(&mut self) -> Result<Recovery> {
        self.timeline.mark();
        let pods = self.list().await?;
        let victim = pods.first().context("the JobSet has no Pods")?;
        let name = victim.name_any();
        println!("the worker process of {name} is killed\n{HEADER}");
        self.stage.kill(victim).await?;
        let (end, exited) = self.last_words(&name).await?;
        self.lines.clear();
        let starts = self.watch_until(exited, end).await?;
        let last = starts.iter().map(|start| start.time).fold(exited, f64::max);
        let kept = starts.iter().filter(|start| self.timeline.is_kept(&start.uid)).count();
        let recovery = Recovery { seconds: last - exited, pods: self.workers, same_uid: kept };
        println!("all {} workers have started again {:.2} s after the exit", self.workers, recovery.seconds);
        self.settle().await?;
        Ok(recovery)
    }

    /// The last failure as a picture.
    pub(super) fn picture(&self) -> String {
        picture::svg(&self.lines)
    }

    /// Deletes the JobSet, and waits until its Pods are gone.
    pub(super) async fn remove(self) -> Result<()> {
        self.jobsets.delete(&self.name, &DeleteParams::foreground()).await?;
        wait::until(LIMIT, format!("the end of {}", self.name), || async {
            Ok(self.jobsets.get_opt(&self.name).await?.is_none().then_some(()))
        })
        .await
    }

    /// Waits until there is to be read that the worker of this Pod has ended: where among the entries, and when.
    async fn last_words(&mut self, pod: &str) -> Result<(usize, f64)> {
        let ended = |entry: &Entry| entry.event == "exit" && entry.pod == pod;
        let (unread, end) = wait::until(LIMIT, format!("the last words of {pod}"), || async {
            let unread = self.unread()?;
            Ok(unread.iter().position(ended).map(|end| (unread, end)))
        })
        .await?;
        let (place, exited) = (self.entries.len() + end, unread[end].time);
        self.entries.extend(unread);
        Ok((place, exited))
    }

    /// What has been written down and is not among the entries. It is added to their end: a journal that is read late must
    /// not push others from their places.
    fn unread(&self) -> Result<Vec<Entry>> {
        let written = self.stage.entries()?;
        Ok(written.into_iter().filter(|entry| !self.entries.contains(entry)).collect())
    }

    /// Prints what happens, with the seconds since `zero`, until as many workers have started since entry `from` as there
    /// are. By place, not by time: clocks of other machines differ.
    async fn watch_until(&mut self, zero: f64, from: usize) -> Result<Vec<Entry>> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let unread = self.unread()?;
            self.entries.extend(unread);
            for entry in &self.entries[self.entries_shown..] {
                let line = self.timeline.journal(entry);
                println!("{:>7.2}  {line}", entry.time - zero);
                self.lines.push((entry.time - zero, line));
            }
            self.entries_shown = self.entries.len();
            let starts = self.entries[from..].iter().filter(|entry| entry.event == "start");
            let starts: Vec<Entry> = starts.cloned().collect();
            if starts.len() >= self.workers {
                return Ok(starts);
            }
            if Instant::now() > deadline {
                bail!("waited {} s: {} of {} workers have started", LIMIT.as_secs(), starts.len(), self.workers);
            }
            if let Ok(Some(seen)) = tokio::time::timeout(JOURNAL_POLL, self.events.next()).await {
                self.show(seen?, zero)?;
            }
        }
    }

    /// Waits until the API server, too, shows all workers running; what it shows late is not printed.
    async fn settle(&mut self) -> Result<()> {
        wait::until_met(LIMIT, format!("{} Pods of {} to be ready", self.workers, self.name), || async {
            let pods = self.list().await?;
            let ready = pods.iter().filter(|pod| is_ready(pod)).count();
            let all = ready == self.workers && pods.len() == self.workers;
            Ok(if all { Check::Met(()) } else { Check::Unmet(format!("{ready} of {} are", pods.len())) })
        })
        .await?;
        while let Ok(Some(seen)) = tokio::time::timeout(JOURNAL_POLL, self.events.next()).await {
            self.note(seen?)?;
        }
        Ok(())
    }

    /// The Pods, as the API server has them.
    async fn list(&self) -> Result<Vec<Pod>> {
        let labels = format!("{}={}", labels::JOBSET_NAME, self.name);
        Ok(self.pods.list(&ListParams::default().labels(&labels)).await?.items)
    }

    fn show(&mut self, seen: Change, zero: f64) -> Result<()> {
        if let Some(line) = self.note(seen)? {
            let time = now() - zero;
            println!("{time:>7.2}  {line}");
            self.lines.push((time, line));
        }
        Ok(())
    }

    fn note(&mut self, seen: Change) -> Result<Option<Line>> {
        Ok(match seen {
            Change::Pod(event) => match *event {
                Event::Apply(pod) | Event::InitApply(pod) => {
                    if let Some(trouble) = image_trouble(&pod) {
                        bail!("{trouble}{IMAGES}");
                    }
                    self.stage.saw(&pod);
                    self.timeline.pod(&pod)
                }
                Event::Delete(pod) => self.timeline.gone(&pod),
                Event::Init | Event::InitDone => None,
            },
            Change::JobSet(event) => match *event {
                Event::Apply(jobset) | Event::InitApply(jobset) => self.timeline.jobset(&jobset),
                Event::Delete(_) | Event::Init | Event::InitDone => None,
            },
        })
    }
}
