//! Agents that stay away from the stream, and what the status says of them.

use std::time::Duration;

use jobset_api::labels;
use jobset_store::pods::{Epoch, PodView};
use jobset_store::*;
use jobset_stream::message::{AgentEvent, AgentEventKind, PodRef};
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::schedule::{TestEngine, key};
use crate::*;

const JOBSET: &str = "ml/train";

/// A JobSet whose two Pods run in epoch 1, and a clock in seconds.
struct TestStream {
    world: TestEngine,
    second: u64,
    relay: RelayId,
}

/// The Job, so many Pods of which are ready.
fn job(ready: i32) -> JobView {
    let (pods, completions) = (2, Some(2));
    JobView { parallelism: pods, completions, pods, active: pods, ready, restarts_in_place: true, ..JobView::default() }
}

impl TestStream {
    fn new() -> Self {
        let mut world = TestEngine::new(&[], 0);
        let rules = json!([{"action": "RestartAllContainers", "exitCodes": {"operator": "NotIn", "values": [0]}}]);
        let pod = json!({"restartPolicy": "Never",
            "initContainers": [{"name": "agent", "restartPolicy": "Always", "restartPolicyRules": rules}],
            "containers": [{"name": "worker", "restartPolicy": "Never", "restartPolicyRules": rules}],
            "volumes": [{"name": "jobset-relay", "projected": {"sources": [{"configMap": {"name": "jobset-relay-ca"}}]}}]});
        let template = json!({"spec": {"parallelism": 2, "completions": 2, "completionMode": "Indexed",
            "template": {"spec": pod}, "backoffLimit": i32::MAX, "podReplacementPolicy": "Failed"}});
        world.observe(
            serde_json::from_value(json!({
                "metadata": {"namespace": "ml", "name": "train", "uid": JOBSET, "generation": 1,
                             "annotations": {(labels::RESTART_BUDGET): "Shared"}},
                "spec": {"network": {"enableDNSHostnames": false},
                         "failurePolicy": {"maxRestarts": 5, "restartStrategy": "InPlaceRestart"},
                         "replicatedJobs": [{"name": "w", "replicas": 1, "template": template}]},
                "status": {"syncedEpoch": 1, "restartRequests": [], "replicatedJobsStatus": [
                    {"name": "w", "active": 1, "syncedPods": "0-1", "syncedParallelism": 2}]},
            }))
            .unwrap(),
        );
        world.put_job(JOBSET, 0, job(0));
        let mut stream = Self { world, second: 0, relay: 0 };
        (0..2).for_each(|index| stream.put_pod(index));
        stream.begin_to_lead();
        stream
    }

    /// The Pod of this index was observed. Its agent has reported the epoch.
    fn put_pod(&mut self, index: u8) {
        let name = format!("pod-{index}");
        let (uid, job_uid, epoch) = (format!("uid-{index}"), Some("job0".to_owned()), Epoch::Reported(1));
        let index = Some(index.into());
        let view = PodView { name, uid, job_uid, index, epoch, workers: 5, version: 1, ..PodView::default() };
        let event = WatchEvent::child(key(&format!("ml/{}", view.name)), &key(JOBSET), View::Pod(view));
        self.world.engine.apply(event, self.now().instant);
    }

    fn now(&self) -> Now {
        let elapsed = SignedDuration::from_secs(i64::try_from(self.second).unwrap());
        let instant = self.world.start + Duration::from_secs(self.second);
        Now { instant, time: Timestamp::UNIX_EPOCH + elapsed }
    }

    /// Another leader begins, which knows of no connection.
    fn begin_to_lead(&mut self) {
        self.world.engine.forget_relays();
        self.relay += 1;
        self.world.engine.hear(StreamEvent::Connected(self.relay), self.now());
    }

    fn hear(&mut self, agent: u64, event: AgentEventKind) {
        let event = StreamEvent::Agents(self.relay, vec![AgentEvent { agent, event }]);
        self.world.engine.hear(event, self.now());
    }

    fn connect(&mut self, agent: u64) {
        let pod = PodRef { namespace: "ml".to_owned(), name: format!("pod-{agent}"), uid: format!("uid-{agent}") };
        let nonce = serde_json::from_value(json!(format!("{agent:032x}"))).unwrap();
        self.hear(agent, AgentEventKind::Hello { pod, jobset: "train".to_owned(), nonce, report: None });
    }

    fn lose(&mut self, agent: u64) {
        self.hear(agent, AgentEventKind::Gone);
    }

    /// The writes of the status up to this second: the second, and how many of how many Pods are connected by then.
    fn written_until(&mut self, second: u64) -> Vec<(u64, i32, i32)> {
        let mut written = Vec::new();
        while self.second < second {
            self.second += 1;
            while let Some(work) = self.world.engine.next(self.now()) {
                if let Some(agents) = work.status.as_ref().map(|status| status.agent_stream.clone()) {
                    let agents = agents.unwrap_or_default();
                    written.push((self.second, agents.connected_pods, agents.expected_pods));
                }
                self.world.succeed(work, self.second * 1_000);
            }
        }
        written
    }
}

#[test]
fn agent_missing_for_minute_costs_one_write() {
    let mut stream = TestStream::new();
    (0..2).for_each(|agent| stream.connect(agent));
    assert_eq!(stream.written_until(10), [(1, 2, 2)], "with the counts of the Jobs");
    stream.lose(1);
    assert_eq!(stream.written_until(69), []);
    assert_eq!(stream.written_until(300), [(70, 1, 2)]);
    stream.connect(1);
    assert_eq!(stream.written_until(360), [(310, 2, 2)], "it looks once a minute");
    assert_eq!(stream.written_until(1_000), []);
}

#[test]
fn agent_that_connects_again_in_time_costs_nothing() {
    let mut stream = TestStream::new();
    (0..2).for_each(|agent| stream.connect(agent));
    stream.written_until(10);
    (0..2).for_each(|agent| stream.lose(agent));
    assert_eq!(stream.written_until(60), []);
    (0..2).for_each(|agent| stream.connect(agent));
    assert_eq!(stream.written_until(1_000), []);
}

#[test]
fn agent_that_never_connects_is_missing_after_minute() {
    let mut stream = TestStream::new();
    stream.connect(0);
    let written = stream.written_until(1_000);
    assert_eq!(written, [(1, 0, 0), (61, 1, 2)], "the first write is that of the counts of the Jobs");
}

#[test]
fn new_leader_waits_for_agents_before_it_lowers_number() {
    let mut stream = TestStream::new();
    (0..2).for_each(|agent| stream.connect(agent));
    assert_eq!(stream.written_until(10), [(1, 2, 2)]);
    stream.begin_to_lead();
    stream.world.put_job(JOBSET, 0, job(2));
    assert_eq!(stream.written_until(40), [(11, 2, 2)], "what the leader before has known stays");
    stream.connect(1);
    assert_eq!(stream.written_until(70), []);
    assert_eq!(stream.written_until(80), [(71, 1, 2)]);
}
