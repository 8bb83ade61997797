//! What is known of leaders, by their Job, and whether one of them is placed. Pure.
//!
//! A leader counts by the UID of its Job: a Job that was recreated under its name shares nothing with old leaders. Some
//! three hundred bytes are kept of each.

use std::collections::HashMap;

use jobset_objects::{PartialPod, owner_job};
use kube::ResourceExt as _;
use kube::runtime::watcher::Event;

use super::refusal::Obstacle;

/// Longest message of the scheduler that is kept, in bytes.
const MESSAGE_LIMIT: usize = 400;

/// A Job: its namespace and its UID. The namespace is that of the Pod that asks, so that an owner reference to a Job
/// elsewhere finds nothing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct JobKey {
    namespace: Box<str>,
    uid: Box<str>,
}

impl JobKey {
    pub fn new(namespace: &str, uid: &str) -> Self {
        Self { namespace: namespace.into(), uid: uid.into() }
    }

    pub fn namespace(&self) -> &str {
        &self.namespace
    }
}

/// A leader that its followers can follow: the names of its Pod and of its node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    pub pod: String,
    pub node: String,
}

#[derive(Debug)]
pub struct Leaders {
    known: HashMap<JobKey, Vec<Leader>>,
    /// Those of a listing that has not ended.
    listed: Option<HashMap<JobKey, Vec<Leader>>>,
    /// Why the watch has failed, if it has.
    trouble: String,
}

impl Default for Leaders {
    /// No leader is known before the first listing has ended.
    fn default() -> Self {
        Self { known: HashMap::new(), listed: Some(HashMap::new()), trouble: String::new() }
    }
}

#[derive(Debug)]
struct Leader {
    name: Box<str>,
    state: State,
}

#[derive(Debug)]
enum State {
    Pending(Box<str>),
    Placed(Box<str>),
    Terminating,
    Succeeded(Box<str>),
    Failed,
}

impl Leaders {
    /// Takes in what the watch tells.
    pub fn see(&mut self, event: &Event<PartialPod>) {
        match event {
            Event::Init => self.listed = Some(HashMap::new()),
            Event::InitApply(pod) => put(self.listed.get_or_insert_default(), pod),
            Event::InitDone => {
                self.known = self.listed.take().unwrap_or_default();
                self.trouble.clear();
            }
            Event::Apply(pod) => put(&mut self.known, pod),
            Event::Delete(pod) => remove(&mut self.known, pod),
        }
    }

    /// The watch has failed, for this reason: until all are listed again, leaders may have come and gone unseen.
    pub fn lose_touch(&mut self, trouble: &str) {
        trouble.clone_into(&mut self.trouble);
    }

    /// Why not all leaders are known.
    pub fn trouble(&self) -> &str {
        if self.trouble.is_empty() { "not all are listed yet" } else { &self.trouble }
    }

    /// Whether all leaders are known, but for the moment that a watch lags behind. While a listing is under way, or after a watch
    /// has failed, what is known is from before it.
    pub fn in_touch(&self) -> bool {
        self.listed.is_none() && self.trouble.is_empty()
    }

    /// The leader of a Job to be followed.
    ///
    /// One that is being deleted or has failed leads nobody: its successor will. One that has succeeded has none, since
    /// its index is done; as long as it is there, Pods that are replaced go where it was, with those that still run.
    ///
    /// # Errors
    /// When there is none, with the reason.
    pub fn leader(&self, job: &JobKey) -> Result<Placed, Obstacle> {
        let leaders = self.known.get(job).map(Vec::as_slice).unwrap_or_default();
        let open: Vec<&Leader> =
            leaders.iter().filter(|it| matches!(it.state, State::Pending(_) | State::Placed(_))).collect();
        // Without an open leader, one that has succeeded comes before one whose successor is awaited.
        let closed = || {
            leaders.iter().min_by_key(|it| match it.state {
                State::Succeeded(_) => 0,
                State::Terminating => 1,
                _ => 2,
            })
        };
        let leader = match open.as_slice() {
            [] => closed(),
            [leader] => Some(*leader),
            several => return Err(Obstacle::Several(several.iter().map(|it| it.name.to_string()).collect())),
        };
        let Some(Leader { name, state }) = leader else { return Err(Obstacle::Missing) };
        let pod = name.to_string();
        match state {
            State::Placed(node) | State::Succeeded(node) => Ok(Placed { pod, node: node.to_string() }),
            State::Pending(message) => Err(Obstacle::Pending(pod, message.to_string())),
            State::Terminating => Err(Obstacle::Terminating(pod)),
            State::Failed => Err(Obstacle::Failed(pod)),
        }
    }
}

fn key(pod: &PartialPod) -> Option<JobKey> {
    Some(JobKey::new(&pod.namespace()?, &owner_job(pod)?.uid))
}

fn put(known: &mut HashMap<JobKey, Vec<Leader>>, pod: &PartialPod) {
    remove(known, pod);
    if let Some(key) = key(pod) {
        // Nearly always there is one.
        let leaders = known.entry(key).or_insert_with(|| Vec::with_capacity(1));
        leaders.push(Leader { name: pod.name_any().into(), state: State::of(pod) });
    }
}

fn remove(known: &mut HashMap<JobKey, Vec<Leader>>, pod: &PartialPod) {
    let name = pod.name_any();
    // A Pod that was given up by its Job no longer says where it is filed.
    let Some(key) = key(pod) else {
        let namespace = pod.namespace().unwrap_or_default();
        return known.retain(|key, leaders| {
            leaders.retain(|it| *it.name != *name || *key.namespace != *namespace);
            !leaders.is_empty()
        });
    };
    if let Some(leaders) = known.get_mut(&key) {
        leaders.retain(|it| *it.name != *name);
        if leaders.is_empty() {
            known.remove(&key);
        }
    }
}

impl State {
    fn of(pod: &PartialPod) -> Self {
        let node = pod.spec.node_name.as_deref().unwrap_or_default();
        match pod.status.phase.as_str() {
            _ if pod.metadata.deletion_timestamp.is_some() => Self::Terminating,
            "Failed" => Self::Failed,
            "Succeeded" => Self::Succeeded(node.into()),
            _ if node.is_empty() => Self::Pending(unscheduled(pod).into()),
            _ => Self::Placed(node.into()),
        }
    }
}

/// What the scheduler says of a Pod that has no node.
fn unscheduled(pod: &PartialPod) -> &str {
    let unscheduled = pod.condition("PodScheduled").filter(|condition| !condition.is_true());
    let message = unscheduled.map(|it| it.message.as_str()).unwrap_or_default();
    &message[..message.floor_char_boundary(MESSAGE_LIMIT)]
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::{Value, json};

    use super::*;

    fn pod(name: &str, job_uid: &str, state: &str) -> PartialPod {
        let (node, phase) = match state {
            "pending" => ("", "Pending"),
            "failed" => ("n9", "Failed"),
            "succeeded" => ("n8", "Succeeded"),
            node => (node.trim_end_matches('!'), "Running"),
        };
        let deleted = if state.ends_with('!') { json!("2026-01-01T00:00:00Z") } else { Value::Null };
        let read = json!({
            "metadata": { "name": name, "namespace": "ml", "deletionTimestamp": deleted, "ownerReferences": [
                { "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": job_uid, "controller": true }] },
            "spec": { "nodeName": node, "containers": [{ "name": "w" }] },
            "status": { "phase": phase, "conditions": [
                { "type": "PodScheduled", "status": if node.is_empty() { "False" } else { "True" }, "message": "0/4 nodes" }] },
        });
        serde_json::from_value(read).unwrap()
    }

    fn of_list(pods: &[PartialPod]) -> Leaders {
        let mut leaders = Leaders::default();
        leaders.see(&Event::Init);
        for pod in pods {
            leaders.see(&Event::InitApply(pod.clone()));
        }
        leaders.see(&Event::InitDone);
        leaders
    }

    fn leader_of(states: &[(&str, &str)]) -> Result<String, String> {
        let pods: Vec<_> = states.iter().map(|(name, state)| pod(name, "u1", state)).collect();
        let leader = of_list(&pods).leader(&JobKey::new("ml", "u1"));
        leader.map(|it| format!("{} {}", it.pod, it.node)).map_err(|why| why.to_string())
    }

    #[rstest]
    #[case::placed(&[("a", "n1")], Ok("a n1"))]
    #[case::missing(&[], Err("there is no such Pod yet"))]
    #[case::pending(&[("a", "pending")], Err("Pod a is pending: 0/4 nodes"))]
    #[case::terminating(&[("a", "n1!")], Err("Pod a is terminating, and its successor is not there yet"))]
    #[case::failed(&[("a", "failed")], Err("Pod a has failed, and its successor is not there yet"))]
    #[case::succeeded(&[("a", "succeeded")], Ok("a n8"))]
    #[case::several(&[("a", "n1"), ("b", "n2")], Err("there are several: Pods a, b"))]
    #[case::several_of_which_one_waits(&[("a", "n1"), ("b", "pending")], Err("there are several: Pods a, b"))]
    #[case::after_a_failed_one(&[("a", "failed"), ("b", "n2")], Ok("b n2"))]
    #[case::after_a_terminating_one(&[("a", "n1!"), ("b", "n2")], Ok("b n2"))]
    #[case::waits_after_a_failed_one(&[("a", "failed"), ("b", "pending")], Err("Pod b is pending: 0/4 nodes"))]
    #[case::succeeded_after_a_failed_one(&[("a", "failed"), ("b", "succeeded")], Ok("b n8"))]
    fn the_leader_is_the_one_that_is_open(#[case] pods: &[(&str, &str)], #[case] wanted: Result<&str, &str>) {
        assert_eq!(leader_of(pods), wanted.map(str::to_owned).map_err(str::to_owned));
        let reversed: Vec<_> = pods.iter().rev().copied().collect();
        assert_eq!(leader_of(&reversed).is_ok(), wanted.is_ok());
    }

    #[rstest]
    #[case::the_scheduler_found_no_room(Obstacle::Pending("a".to_owned(), "0/4 nodes".to_owned()), false)]
    #[case::the_scheduler_has_not_looked(Obstacle::Pending("a".to_owned(), String::new()), true)]
    #[case::it_was_not_seen(Obstacle::Missing, true)]
    #[case::its_successor_was_not_seen(Obstacle::Terminating("a".to_owned()), true)]
    fn what_is_waited_for_is_what_may_pass_soon(#[case] why: Obstacle, #[case] soon: bool) {
        assert_eq!(why.may_pass_soon(), soon);
    }

    #[test]
    fn leaders_of_another_job_or_namespace_are_none() {
        let leaders = of_list(&[pod("a", "u1", "n1")]);
        for (namespace, uid) in [("ml", "u2"), ("other", "u1")] {
            assert_eq!(leaders.leader(&JobKey::new(namespace, uid)), Err(Obstacle::Missing));
        }
    }

    #[test]
    fn pod_unscheduled_is_pending_with_bounded_message() {
        let mut unseen = pod("a", "u1", "pending");
        unseen.status.conditions.clear();
        let why = of_list(&[unseen]).leader(&JobKey::new("ml", "u1")).unwrap_err();
        assert_eq!(why.to_string(), "Pod a is pending; the scheduler has not said why");
        let mut long = pod("a", "u1", "pending");
        long.status.conditions[0].message = "ä".repeat(1000);
        let why = of_list(&[long]).leader(&JobKey::new("ml", "u1")).unwrap_err();
        assert!(why.to_string().len() <= MESSAGE_LIMIT + 20);
    }

    #[test]
    fn new_listing_replaces_leaders_of_watch() {
        let (job, mut leaders) = (JobKey::new("ml", "u1"), Leaders::default());
        assert!(!leaders.in_touch());
        for event in [Event::Init, Event::InitApply(pod("a", "u1", "pending"))] {
            leaders.see(&event);
            assert!(!leaders.in_touch(), "not all are known");
        }
        leaders.see(&Event::InitDone);
        assert!(leaders.in_touch());
        assert!(leaders.leader(&job).is_err());
        leaders.see(&Event::Apply(pod("a", "u1", "n1")));
        assert!(leaders.leader(&job).is_ok());
        leaders.see(&Event::Apply(pod("b", "u2", "n1")));
        leaders.see(&Event::Delete(pod("a", "u1", "n1")));
        assert_eq!(leaders.leader(&job), Err(Obstacle::Missing));
        assert_eq!(leaders.known.len(), 1, "nothing is kept of a Job without leaders");

        leaders.lose_touch("gone");
        assert_eq!(leaders.trouble(), "gone");
        assert!(!leaders.in_touch());
        leaders.see(&Event::Init);
        assert!(leaders.leader(&JobKey::new("ml", "u2")).is_ok(), "known until the listing has ended");
        leaders.see(&Event::InitDone);
        assert_eq!(leaders.known.len(), 0);
    }

    #[test]
    fn a_leader_that_its_job_gives_up_is_forgotten() {
        let mut leaders = of_list(&[pod("a", "u1", "n1"), pod("b", "u2", "n1")]);
        let mut orphan = pod("a", "u1", "n1");
        orphan.metadata.owner_references = None;
        leaders.see(&Event::Apply(orphan));
        assert_eq!(leaders.known.keys().collect::<Vec<_>>(), [&JobKey::new("ml", "u2")]);
    }
}
