//! The swap, to and fro, by the commands of the controller's README.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use jobset_api::{JobSet, LEASE};
use jobset_e2e::go_jobset;
use jobset_harness::cluster::Cluster;
use jobset_harness::install::{self, kubectl};
use jobset_harness::programs::ensure_go_jobset;
use jobset_harness::progress::progress;
use jobset_harness::wait::{self, Check};
use jobset_harness::{admission, images, paths};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use super::load::Load;
use super::manifests::{EXCLUSIVE, LOAD, NAMESPACE, RECREATING, SUPERVISOR_IMAGE, all, permissions};
use super::observe::{PodState, Snapshot};
use crate::kubelet::binaries;

pub(super) const LIMIT: Duration = Duration::from_mins(3);

/// The group with the Go JobSet's agent as a sidecar, and the one that it supervises. The kubelet starts a container that
/// fails again and again later each time, so the second restarts in the first swaps alone.
const GROUPS: [&str; 2] = ["side", "super"];

pub(super) struct Story {
    cluster: Cluster,
    client: Client,
    flags: PathBuf,
    load: Option<Load>,
    /// Parallelism of the JobSet that grows.
    size: usize,
    swaps: usize,
}

/// Installs the Go JobSet, and waits until it serves.
///
/// Its certificate comes by a mounted Secret, which the kubelet brings up to date when it next looks at the Pod: each change
/// of the Pod makes it look.
async fn install_go(cluster: &Cluster) -> Result<()> {
    go_jobset::apply(cluster, &go_jobset::manifests(cluster, go_jobset::EVERYTHING_CONFIGURATION).await?).await?;
    let manager = ["-n", install::NAMESPACE, "-l", "control-plane=controller-manager"];
    let touch = async {
        for number in 0.. {
            tokio::time::sleep(Duration::from_secs(3)).await;
            let look = format!("example.com/look={number}");
            // The Pod may not be there yet.
            let _ = cluster.kubectl([&["annotate", "pods", "--overwrite", &look][..], &manager].concat()).await;
        }
    };
    tokio::select! {
        served = go_jobset::serves(cluster) => served,
        () = touch => Ok(()),
    }
}

impl Story {
    /// A cluster in which the Go JobSet runs JobSets of every kind.
    pub(super) async fn begin() -> Result<Self> {
        let cluster = Cluster::start(2).await?;
        install::load_images(&cluster, binaries().await?).await?;
        go_jobset::load_images(&cluster).await?;
        install_go(&cluster).await?;
        let agent = ensure_go_jobset()?.agent;
        cluster.load_image(&images::with_shell(SUPERVISOR_IMAGE, &agent)?).await?;
        let flags = cluster.shared_dir().join("flags");
        std::fs::create_dir_all(&flags)?;
        for namespace in [NAMESPACE, EXCLUSIVE, LOAD] {
            kubectl(&cluster, &["create", "namespace", namespace]).await?;
        }
        admission::apply(&cluster, "go-agent.yaml", &permissions()).await?;
        let client = cluster.client();
        for jobset in all(&flags) {
            let jobset: JobSet = serde_json::from_value(jobset)?;
            let (name, namespace) = (jobset.name_any(), jobset.namespace().context("no namespace")?);
            let api: Api<JobSet> = Api::namespaced(client.clone(), &namespace);
            api.create(&PostParams::default(), &jobset).await.with_context(|| format!("{name} was refused"))?;
        }
        let mut story = Self { cluster, client, flags, load: None, size: 1, swaps: 0 };
        story.prepare().await?;
        story.load = Some(Load::begin(&story.client));
        Ok(story)
    }

    /// Everything runs, one JobSet has grown, and one Job was restarted alone.
    async fn prepare(&mut self) -> Result<()> {
        for jobset in ["plain", "side", "super", "elastic", "counters", "recreating"] {
            self.ready(jobset, |_| true).await?;
        }
        self.restart_in_place().await?;
        self.grow().await?;
        self.restart_job().await
    }

    /// The Go JobSet is ended, this one installed.
    pub(super) async fn swap_to_ours(&mut self) -> Result<()> {
        self.begin_recreation().await?;
        let before = Snapshot::take(&self.client).await?;
        let begun = Instant::now();
        go_jobset::stop(&self.cluster).await?;
        let system = ["-n", install::NAMESPACE, "--ignore-not-found"];
        let deployment = "deployment/jobset-controller-manager";
        let objects = ["delete", deployment, "service/jobset-webhook-service", "secret/jobset-webhook-server-cert"];
        kubectl(&self.cluster, &[&objects[..], &system].concat()).await?;
        let webhook = ["delete", "validatingwebhookconfiguration", "jobset-validating-webhook-configuration"];
        kubectl(&self.cluster, &webhook).await?;
        let kustomize = paths::workspace().join("deploy/kustomize");
        let kustomize = kustomize.to_string_lossy();
        kubectl(&self.cluster, &["apply", "--server-side", "--force-conflicts", "-k", &kustomize]).await?;
        self.led_by("jobset-controller-", "jobset-controller-manager-").await?;
        progress(&format!("from the scale-down to the leadership of this one: {:.1} s", begun.elapsed().as_secs_f64()));
        install::ready(&self.cluster, install::NAMESPACE).await?;
        self.untouched(&before, "to this one").await?;
        self.goes_on().await
    }

    /// This one is removed, the Go JobSet installed again.
    pub(super) async fn swap_to_go(&mut self) -> Result<()> {
        let before = Snapshot::take(&self.client).await?;
        let begun = Instant::now();
        let part = ["-l", "app.kubernetes.io/part-of=jobset"];
        for kinds in [
            "deployment,service,secret,serviceaccount,role,rolebinding,poddisruptionbudget,networkpolicy,resourcequota,lease",
            "mutatingwebhookconfiguration,validatingwebhookconfiguration,clusterrole,clusterrolebinding",
            "validatingadmissionpolicy,validatingadmissionpolicybinding,flowschema,prioritylevelconfiguration",
        ] {
            kubectl(&self.cluster, &[&["delete", "-n", install::NAMESPACE, kinds][..], &part].concat()).await?;
        }
        install_go(&self.cluster).await?;
        self.led_by("jobset-controller-manager-", "never").await?;
        progress(&format!(
            "from the removal to the leadership of the Go JobSet: {:.1} s",
            begun.elapsed().as_secs_f64()
        ));
        self.untouched(&before, "to the Go JobSet").await?;
        self.goes_on().await?;
        self.go_log_has_no_error().await
    }

    /// What was waiting goes on, and the load has finished.
    pub(super) async fn end(mut self) -> Result<()> {
        std::fs::write(self.flags.join("go"), "")?;
        self.ready("depends", |pod| pod.contains("-w-")).await?;
        if let Some(load) = self.load.take() {
            progress(&format!("{} JobSets came and went meanwhile", load.end().await?));
        }
        self.cluster.stop().await
    }

    /// Restarts in place, growth and a Job that is restarted alone work under whoever leads; half a recreation is finished.
    async fn goes_on(&mut self) -> Result<()> {
        self.swaps += 1;
        self.recreated().await?;
        self.restart_in_place().await?;
        self.grow().await?;
        if self.swaps == 1 {
            self.patch("resumed", &json!({"spec": {"suspend": false}})).await?;
            self.ready("resumed", |_| true).await?;
            self.restart_job().await?;
        }
        Ok(())
    }

    /// A worker of each group fails: all of its group restart where they are.
    async fn restart_in_place(&self) -> Result<()> {
        let groups = if self.swaps > 2 { &GROUPS[..1] } else { &GROUPS[..] };
        for group in groups.iter().copied() {
            let before = Snapshot::take(&self.client).await?.pods_of(group);
            let (pod, state) = before.first_key_value().context("no Pod")?;
            let next = state.attempt.map(|attempt| attempt + 1);
            std::fs::write(self.flags.join(pod), "")?;
            let after = wait::until_met(LIMIT, format!("{group} to restart into attempt {next:?}"), || async {
                let pods = Snapshot::take(&self.client).await?.pods_of(group);
                let status = self.jobsets().get(group).await?.status.unwrap_or_default();
                let there = pods.values().all(|pod| pod.ready && pod.attempt == next);
                let lifted = status.current_in_place_restart_attempt == next;
                Ok(if there && lifted { Check::Met(pods) } else { Check::Unmet(format!("{pods:?} {status:?}")) })
            })
            .await?;
            let same = |(one, other): (&PodState, &PodState)| one.uid == other.uid;
            let in_place = before.keys().eq(after.keys()) && before.values().zip(after.values()).all(same);
            ensure!(in_place, "{group} was not restarted in place: {before:?} {after:?}");
        }
        Ok(())
    }

    /// A JobSet becomes one Pod larger; those that it has stay.
    async fn grow(&mut self) -> Result<()> {
        self.size += 1;
        let before = Snapshot::take(&self.client).await?;
        let size = json!(self.size);
        let patch = json!([
            {"op": "replace", "path": "/spec/replicatedJobs/0/template/spec/parallelism", "value": size},
            {"op": "replace", "path": "/spec/replicatedJobs/0/template/spec/completions", "value": size},
        ]);
        kubectl(
            &self.cluster,
            &["patch", "jobset", "elastic", "-n", NAMESPACE, "--type=json", "-p", &patch.to_string()],
        )
        .await?;
        self.ready("elastic", |_| true).await?;
        let now = Snapshot::take(&self.client).await?;
        ensure!(before.touched(&now) == (vec![], vec![]), "{:?}", before.touched(&now));
        ensure!(now.pods_of("elastic").len() == self.size, "{:?}", now.pods_of("elastic"));
        Ok(())
    }

    /// One Job of two fails, and is restarted alone.
    async fn restart_job(&self) -> Result<()> {
        let before = Snapshot::take(&self.client).await?;
        let pods = before.pods_of("counters");
        let (pod, _) = pods.first_key_value().context("no Pod")?;
        std::fs::write(self.flags.join(pod), "")?;
        wait::until_met(LIMIT, "a Job to be restarted alone", || async {
            let now = Snapshot::take(&self.client).await?;
            let changed = before.touched(&now).0 == vec!["counters-w-0"] && now.jobs.contains_key("counters-w-0");
            let ready = now.pods_of("counters").values().filter(|pod| pod.ready).count() == 2;
            Ok(if changed && ready { Check::Met(()) } else { Check::Unmet(format!("{:?}", before.touched(&now))) })
        })
        .await
    }

    /// A Job fails whose JobSet is recreated; the other Job takes its time to go.
    async fn begin_recreation(&self) -> Result<()> {
        let jobs = self.recreating_jobs().await?;
        let restarts = self.jobsets().get(RECREATING).await?.status.map_or(0, |status| status.restarts);
        ensure!(jobs.len() == 2, "{jobs:?}");
        let first = ListParams::default()
            .labels("jobset.sigs.k8s.io/job-global-index=0,jobset.sigs.k8s.io/jobset-name=recreating");
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
        for pod in pods.list(&first).await?.items {
            std::fs::write(self.flags.join(pod.name_any()), "")?;
        }
        wait::until_met(LIMIT, "the Go JobSet to recreate", || async {
            let status = self.jobsets().get(RECREATING).await?.status.unwrap_or_default();
            let done = status.restarts == restarts + 1;
            Ok(if done { Check::Met(()) } else { Check::Unmet(format!("{status:?}")) })
        })
        .await
    }

    /// The recreation is carried out, and was counted once.
    async fn recreated(&self) -> Result<()> {
        wait::until_met(LIMIT, "the recreation to be carried out", || async {
            let status = self.jobsets().get(RECREATING).await?.status.unwrap_or_default();
            let jobs = self.recreating_jobs().await?;
            let attempt = status.restarts.to_string();
            let new = jobs.iter().filter(|(_, of)| *of == attempt).count() == 2 && jobs.len() == 2;
            let rounds = i32::try_from(self.swaps.div_ceil(2))?;
            ensure!((status.restarts, status.restarts_count_towards_max) == (rounds, rounds), "{status:?}");
            Ok(if new { Check::Met(()) } else { Check::Unmet(format!("{jobs:?} {status:?}")) })
        })
        .await?;
        self.ready(RECREATING, |_| true).await
    }

    /// The Jobs of the JobSet that is recreated, and their attempts.
    async fn recreating_jobs(&self) -> Result<Vec<(String, String)>> {
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), NAMESPACE);
        let of = ListParams::default().labels("jobset.sigs.k8s.io/jobset-name=recreating");
        let attempt = |job: &Job| job.labels().get("jobset.sigs.k8s.io/restart-attempt").cloned().unwrap_or_default();
        Ok(jobs.list(&of).await?.items.iter().map(|job| (job.name_any(), attempt(job))).collect())
    }

    /// No Job is gone, no Pod has restarted, no counter differs.
    async fn untouched(&self, before: &Snapshot, what: &str) -> Result<()> {
        let now = Snapshot::take(&self.client).await?;
        let (jobs, pods) = before.touched(&now);
        progress(&format!(
            "{what}: of {} Jobs {} were deleted, of {} Pods {} restarted",
            before.jobs.len(),
            jobs.len(),
            before.pods.len(),
            pods.len()
        ));
        ensure!(jobs.is_empty() && pods.is_empty(), "{what}: Jobs {jobs:?}, Pods {pods:?}");
        ensure!(before.counters == now.counters, "{what}: {:?} {:?}", before.counters, now.counters);
        Ok(())
    }

    /// Waits until the Lease has a holder of this name and not of that one.
    async fn led_by(&self, prefix: &str, but: &str) -> Result<()> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), install::NAMESPACE);
        wait::until_met(LIMIT, format!("{prefix} to lead"), || async {
            let lease = leases.get_opt(LEASE).await?.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default();
            let led = lease.starts_with(prefix) && !lease.starts_with(but);
            Ok(if led { Check::Met(()) } else { Check::Unmet(lease) })
        })
        .await
    }

    async fn go_log_has_no_error(&self) -> Result<()> {
        let deployment = format!("deployment/{}", go_jobset::DEPLOYMENT);
        let log = kubectl(&self.cluster, &["logs", &deployment, "-n", install::NAMESPACE, "--tail=-1"]).await?;
        let log = String::from_utf8_lossy(&log.stdout).into_owned();
        // The Go manager retries after a conflict, and calls that an error, too.
        let is_error =
            |line: &&str| line.contains("Reconciler error") && !line.contains("the object has been modified");
        let errors: Vec<&str> = log.lines().filter(is_error).collect();
        ensure!(errors.is_empty(), "{}", errors.join("\n"));
        Ok(())
    }

    fn jobsets(&self) -> Api<JobSet> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    async fn patch(&self, jobset: &str, patch: &Value) -> Result<()> {
        self.jobsets().patch(jobset, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// Waits until the JobSet has Pods of these names, all of which are ready.
    async fn ready(&self, jobset: &str, of: impl Fn(&str) -> bool) -> Result<()> {
        let wanted = self.pods_wanted(jobset).await?;
        wait::until_met(LIMIT, format!("the Pods of {jobset} to be ready"), || async {
            let pods: Vec<(String, bool)> = self.pods(jobset).await?.into_iter().filter(|(name, _)| of(name)).collect();
            let enough = pods.len() == wanted || jobset == "depends" && !pods.is_empty();
            Ok(if enough && pods.iter().all(|pod| pod.1) { Check::Met(()) } else { Check::Unmet(format!("{pods:?}")) })
        })
        .await
    }

    /// Pods that have not ended, and whether they are ready.
    async fn pods(&self, jobset: &str) -> Result<Vec<(String, bool)>> {
        let mut found = Vec::new();
        for namespace in [NAMESPACE, EXCLUSIVE] {
            let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
            let of = ListParams::default().labels(&format!("jobset.sigs.k8s.io/jobset-name={jobset}"));
            let open = pods.list(&of).await?.items;
            found.extend(open.iter().map(|pod| (pod.name_any(), jobset_harness::workload::is_ready(pod))));
        }
        Ok(found)
    }

    async fn pods_wanted(&self, jobset: &str) -> Result<usize> {
        for namespace in [NAMESPACE, EXCLUSIVE] {
            let api: Api<JobSet> = Api::namespaced(self.client.clone(), namespace);
            if let Some(jobset) = api.get_opt(jobset).await? {
                let groups = jobset.spec.replicated_jobs.iter();
                let pods = groups.map(|group| group.replicas() * group.template.spec.pods()).sum::<i32>();
                return Ok(usize::try_from(pods)?);
            }
        }
        Ok(0)
    }
}
