//! The controller's rules on what was admitted: they go on until they have nothing more to do, and build every Job.

use jobset_api::{DependsOnStatus, JobSet, StartupPolicyOrder};
use jobset_rules::{Action, Settings, build, plan};
use jobset_store::{JobView, Key, Kind, Observed, OwnedView, Store, View, WatchEvent};
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt as _;

/// Most Jobs that are followed until all of them run.
const JOBS: i64 = 100;

/// What the rules have created.
#[derive(Default)]
pub(crate) struct Children {
    pub(crate) jobs: Vec<Job>,
    pub(crate) services: Vec<Service>,
    pub(crate) claims: Vec<PersistentVolumeClaim>,
    pub(crate) role_bindings: Vec<RoleBinding>,
}

/// Carries out an admitted JobSet as far as its Jobs being ready.
///
/// # Panics
/// If the rules do, or leave out a Job.
pub(crate) fn reconcile(mut jobset: JobSet) -> Children {
    jobset.metadata.uid = Some("uid".to_owned());
    jobset.metadata.namespace = Some("ml".to_owned());
    if jobset.metadata.name.as_deref().unwrap_or_default().is_empty() {
        jobset.metadata.name = Some(format!("{}12345", jobset.metadata.generate_name.as_deref().unwrap_or_default()));
    }
    let (spec, key) = (jobset.spec.clone(), Key::of(&jobset));
    let mut world = World { store: Store::default(), key, children: Children::default() };
    world.see(&jobset.name_any(), View::JobSet(jobset.clone().into()));
    let followed = spec.global_replicas() <= JOBS;
    // In order, a replicatedJob takes its turn in two of them.
    let passes = if followed { 10 + 2 * spec.replicated_jobs.len() } else { 1 };
    let rests = (0..passes).any(|_| !world.pass());
    if followed {
        assert!(rests, "the rules do not come to rest");
        let in_order =
            spec.startup_policy.as_ref().is_some_and(|it| it.startup_policy_order == StartupPolicyOrder::InOrder);
        // Nothing is ready while it is suspended, and here nothing completes.
        let mut awaited = spec.replicated_jobs.iter().flat_map(|it| &it.depends_on).map(|it| it.status);
        let waits = in_order || awaited.any(|status| spec.is_suspended() || status == DependsOnStatus::Complete);
        let is_ours = jobset.is_managed_here();
        let expected = if is_ours { spec.global_replicas() } else { 0 };
        let built = i64::try_from(world.children.jobs.len()).unwrap_or(i64::MAX);
        assert!(built == expected || (waits && built <= expected), "{built} Jobs of {expected}");
    }
    world.children
}

struct World {
    store: Store,
    key: Key,
    children: Children,
}

impl World {
    /// One pass, and what it asks for. Whether there was anything to do.
    fn pass(&mut self) -> bool {
        let now = Time(Timestamp::UNIX_EPOCH);
        let Some(seen) = Observed::of(&self.store, &self.key) else { return false };
        assert_eq!(seen.invalid(), None, "admission and controller go by the same rules");
        let mut jobset = JobSet::clone(seen.jobset);
        let plan = plan(&seen, &Settings::default(), &now);
        let rests = plan.actions.is_empty() && jobset.status.as_ref() == Some(&plan.status);
        for action in plan.actions {
            self.carry_out(&jobset, action);
        }
        jobset.status = Some(plan.status);
        self.see(&jobset.name_any(), View::JobSet(jobset.into()));
        !rests
    }

    fn carry_out(&mut self, jobset: &JobSet, action: Action) {
        match action {
            Action::CreateJob(job) => {
                let mut job = build::job(jobset, &job);
                let name = job.name_any();
                job.metadata.uid = Some(format!("uid-of-{name}"));
                let pods = job.spec.as_ref().and_then(|spec| spec.parallelism).unwrap_or(1);
                self.children.jobs.push(Job::clone(&job));
                job.status = Some(JobStatus { active: Some(pods), ready: Some(pods), ..JobStatus::default() });
                self.see(&name, View::Job(JobView::of(&job)));
            }
            Action::CreateService { name } => {
                let service = build::service(jobset);
                self.see(&name, View::Owned(Kind::Service, OwnedView::of(&service)));
                self.children.services.push(service);
            }
            Action::CreateClaim { name, place } => {
                let claim = build::claim(jobset, place);
                self.see(&name, View::Owned(Kind::Claim, OwnedView::of(&claim)));
                self.children.claims.push(claim);
            }
            Action::CreateRoleBinding { name, cluster_role } => {
                let binding = build::role_binding(jobset, &cluster_role);
                self.see(&name, View::Owned(Kind::RoleBinding, OwnedView::of(&binding)));
                self.children.role_bindings.push(binding);
            }
            // Without Jobs it is finished, and its time may be over.
            Action::DeleteJobSet => drop(self.store.apply(WatchEvent::Gone(Kind::JobSet, self.key.clone(), 0))),
            other => panic!("a new JobSet needs nothing of the sort: {other:?}"),
        }
    }

    fn see(&mut self, name: &str, view: View) {
        let object = Key { name: name.to_owned(), ..self.key.clone() };
        self.store.apply(WatchEvent::child(object, &self.key, view));
    }
}
