//! The output of commands for the cases of `cases/`: each file has documents with objects of a cluster, and the command lines.

use std::collections::BTreeMap;
use std::sync::Arc;

use clap::Parser as _;
use jobset_api::{JobSet, labels};
use jobset_objects::{PartialJob, PartialNode, PartialPod};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::api::events::v1;
use k8s_openapi::jiff::Timestamp;
use kube::runtime::watcher::Event;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::args::{Cli, ColorMode, Command};
use crate::explain::{Facts, PodRequests, explain};
use crate::leader::Leader;
use crate::mirror::{JobSetKey, Mirror, WatchEvent};
use crate::output::{View, rendered};
use crate::restarts::RestartEvent;
use crate::validate::{AdmissionSettings, check, sources};
use crate::{goodput, nodes, restarts, status};

/// A JSON merge patch (RFC 7386) of an object of `cases/objects.yaml`.
type ObjectPatch = Map<String, Value>;

/// Command lines, and the objects that they read.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    #[serde(rename = "case")]
    title: String,
    run: Vec<String>,
    #[serde(default)]
    jobset: ObjectPatch,
    /// The JobSets of `status` without a name.
    #[serde(default)]
    list: Vec<ObjectPatch>,
    #[serde(default)]
    jobs: Vec<JobCase>,
    #[serde(default)]
    pods: Vec<PodCase>,
    #[serde(default)]
    events: Vec<ObjectPatch>,
    #[serde(default)]
    refusals: Vec<ObjectPatch>,
    /// Nodes; none if the user may not read them.
    nodes: Option<Vec<ObjectPatch>>,
    /// Pods of other Jobs with exclusive placement.
    #[serde(default)]
    occupants: Vec<PodCase>,
    #[serde(default)]
    denied: BTreeMap<String, Vec<String>>,
    /// The specification of a Pod of each replicatedJob of which one cannot be scheduled.
    #[serde(default)]
    requests: BTreeMap<String, PodSpec>,
    /// Events about Pods.
    #[serde(default)]
    warnings: Vec<ObjectPatch>,
    /// None if the user may not read them.
    #[serde(default = "one_lease")]
    leases: Option<Vec<ObjectPatch>>,
    #[serde(default = "configured")]
    admission: Option<bool>,
    relay_ca: Option<bool>,
    /// NetworkPolicies; none if the user may not read them.
    policies: Option<Vec<ObjectPatch>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JobCase {
    group: String,
    index: i32,
    pods: i32,
    ready: i32,
    #[serde(default)]
    patch: ObjectPatch,
}

/// `count` Pods, or one, with completion indices from `index`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PodCase {
    job: String,
    #[serde(default)]
    index: usize,
    count: Option<usize>,
    /// The epoch that the Pods report.
    epoch: Option<String>,
    /// The status, or its name in `cases/objects.yaml`.
    status: Value,
    #[serde(default)]
    patch: ObjectPatch,
}

#[allow(clippy::unnecessary_wraps, reason = "serde takes the type of the field")]
fn one_lease() -> Option<Vec<ObjectPatch>> {
    Some(vec![Map::new()])
}

#[allow(clippy::unnecessary_wraps, reason = "serde takes the type of the field")]
fn configured() -> Option<bool> {
    Some(true)
}

/// Makes objects of a case.
struct Templates(Value);

impl Templates {
    fn patched<K: DeserializeOwned>(&self, kind: &str, patches: &[&Value]) -> K {
        let mut object = self.0[kind].clone();
        for patch in patches {
            json_patch::merge(&mut object, patch);
        }
        serde_json::from_value(object).unwrap()
    }

    fn all<K: DeserializeOwned>(&self, kind: &str, patches: &[ObjectPatch]) -> Vec<K> {
        patches.iter().map(|patch| self.patched(kind, &[&Value::Object(patch.clone())])).collect()
    }

    fn job(&self, JobCase { group, index, pods, ready, patch }: &JobCase) -> PartialJob {
        let labels =
            json!({"jobset.sigs.k8s.io/replicatedjob-name": group, "jobset.sigs.k8s.io/job-index": index.to_string()});
        let job = json!({"metadata": {"name": format!("train-{group}-{index}"), "labels": labels},
                         "spec": {"parallelism": pods, "completions": pods}, "status": {"ready": ready}});
        self.patched("job", &[&job, &Value::Object(patch.clone())])
    }

    fn pods(&self, PodCase { job, index, count, epoch, status, patch }: &PodCase) -> Vec<PartialPod> {
        let status = status.as_str().map_or(status, |name| &self.0["statuses"][name]);
        let pod = |index: usize| {
            let labels = json!({"batch.kubernetes.io/job-name": job});
            let annotations = json!({"batch.kubernetes.io/job-completion-index": index.to_string(), "jobset.sigs.k8s.io/epoch": epoch});
            let name = format!("{job}-{index}-x7k2m");
            let pod = json!({"metadata": {"name": name, "labels": labels, "annotations": annotations},
                             "spec": {"nodeName": format!("node-{}", index % 2 + 1)}, "status": status});
            self.patched("pod", &[&pod, &Value::Object(patch.clone())])
        };
        (*index..index + count.unwrap_or(1)).map(pod).collect()
    }
}

impl Case {
    /// The output of a command line, without colours unless it asks for them.
    fn output(&self, line: &str, templates: &Templates) -> String {
        let cli = Cli::try_parse_from(["kubectl-jobset"].into_iter().chain(line.split(' '))).unwrap();
        let mut view = View { now: "2026-11-22T10:00:00Z".parse().unwrap(), wide: false, pods: false };
        let format = cli.global.output;
        let facts = self.facts(templates, view.now);
        let text = match cli.command {
            Command::Status(args) if args.jobsets.name.is_none() => {
                let namespace = (!args.jobsets.all_namespaces).then_some("ml");
                let list = templates.all::<JobSet>("jobset", &self.list);
                rendered(&status::list(&list, namespace, facts.leader), format, &view)
            }
            Command::Status(args) => {
                view.pods = args.pods;
                rendered(&status::report(&facts.jobset, &facts.jobs, &facts.pods, facts.leader), format, &view)
            }
            Command::Restarts(_) => {
                let events: Vec<v1::Event> = templates.all("event", &self.events);
                let events = events.iter().filter_map(RestartEvent::of).collect();
                rendered(&restarts::report(&facts.jobset, events), format, &view)
            }
            Command::Nodes(args) => {
                let namespace = (!args.all_namespaces).then_some("ml");
                let list = templates.all::<JobSet>("jobset", &self.list);
                let all: Option<Vec<PartialNode>> = self.nodes.as_ref().map(|nodes| templates.all("node", nodes));
                rendered(&nodes::report(&list, all.as_deref(), namespace, view.now), format, &view)
            }
            Command::Goodput(args) => {
                let namespace = (!args.jobsets.all_namespaces).then_some("ml");
                let list = templates.all::<JobSet>("jobset", &self.list);
                let one = || vec![JobSet::clone(&facts.jobset)];
                let jobsets = args.jobsets.name.as_ref().map_or(list, |_| one());
                rendered(&goodput::report(&jobsets, namespace, view.now), format, &view)
            }
            Command::Explain(_) => rendered(&explain(facts), format, &view),
            other => panic!("{other:?}"),
        };
        let text = text.unwrap();
        if cli.global.color == ColorMode::Always { text } else { anstream::adapter::strip_str(&text).to_string() }
    }

    fn facts(&self, templates: &Templates, now: Timestamp) -> Facts {
        Facts {
            jobset: Arc::new(templates.patched("jobset", &[&Value::Object(self.jobset.clone())])),
            jobs: self.jobs.iter().map(|job| Arc::new(templates.job(job))).collect(),
            pods: self.pods.iter().flat_map(|pods| templates.pods(pods)).map(Arc::new).collect(),
            refusals: templates.all("refusal", &self.refusals),
            leader: leader(self.leases.as_deref(), templates, now),
            nodes: self.nodes.as_ref().map(|nodes| templates.all("node", nodes)),
            occupants: Some(self.occupants.iter().flat_map(|pods| templates.pods(pods)).collect()),
            denied: self.denied.iter().map(|(account, requests)| (account.clone(), denied(requests))).collect(),
            requests: self.requests.iter().map(|(group, pod)| (group.clone(), PodRequests::of(pod))).collect(),
            warnings: templates.all("warning", &self.warnings),
            admission: self.admission,
            relay_ca: self.relay_ca,
            policies: self.policies.as_ref().map(|policies| templates.all("policy", policies)),
            now,
        }
    }
}

fn leader(leases: Option<&[ObjectPatch]>, templates: &Templates, now: Timestamp) -> Option<Leader> {
    Some(Leader::of(&templates.all::<Lease>("lease", leases?), now))
}

fn denied(requests: &[String]) -> Vec<&'static str> {
    ["watch JobSets", "list JobSets", "patch Pods"]
        .into_iter()
        .filter(|it| requests.iter().any(|one| one == it))
        .collect()
}

/// The commands in a text: from `kubectl` to a backquote, semicolon, line end or parenthesis.
fn advised_commands(text: &str) -> impl Iterator<Item = &str> {
    let ends = |rest: &str| ["`", ";", "\n", " ("].iter().filter_map(|end| rest.find(end)).min().unwrap_or(rest.len());
    text.match_indices("kubectl ").map(move |(start, _)| &text[start..][..ends(&text[start..])])
}

/// Whether a command has the JobSet's namespace, or needs none: all namespaces, a system namespace, a node, or a file.
fn has_namespace(command: &str) -> bool {
    ["-n ml", "-A", "-n kube-system", "-n jobset-system", "-f FILE", "label node "]
        .iter()
        .any(|place| command.contains(place))
}

#[test]
fn commands_each_case_prints_report() {
    let objects = include_str!("../cases/objects.yaml");
    let templates = Templates(serde_yaml_ng::from_str(objects).unwrap());
    insta::glob!("../cases", "{status,restarts,explain,goodput,nodes}/*.yaml", |path| {
        let mut transcript = Vec::new();
        for document in serde_yaml_ng::Deserializer::from_str(&std::fs::read_to_string(path).unwrap()) {
            let case = Case::deserialize(document).unwrap();
            transcript.push(format!("# {}\n", case.title));
            for line in &case.run {
                let text = case.output(line, &templates);
                for command in advised_commands(&text) {
                    assert!(has_namespace(command), "{}: {command}", case.title);
                }
                transcript.push(format!("$ kubectl jobset {line}\n{text}\n"));
            }
        }
        insta::assert_snapshot!(transcript.concat().replace('\u{1b}', "<ESC>"));
    });
}

/// `wait` and `ui` keep only the fields of objects that reports read.
#[test]
fn reports_of_mirrored_objects_equal_those_of_whole_ones() {
    let templates = Templates(serde_yaml_ng::from_str(include_str!("../cases/objects.yaml")).unwrap());
    insta::glob!("../cases", "{status,explain}/*.yaml", |path| {
        for document in serde_yaml_ng::Deserializer::from_str(&std::fs::read_to_string(path).unwrap()) {
            let case = Case::deserialize(document).unwrap();
            let facts = case.facts(&templates, "2026-11-22T10:00:00Z".parse().unwrap());
            let (mirror, key) = mirrored(&facts);
            let observed = mirror.jobset(&key).unwrap();
            let tree = observed.tree();
            assert_eq!(tree, status::report(&facts.jobset, &facts.jobs, &facts.pods, None), "{}", case.title);
            let around = Facts { jobset: Arc::default(), jobs: Vec::new(), pods: Vec::new(), ..facts.clone() };
            assert_eq!(explain(observed.facts(around)), explain(facts), "{}", case.title);
        }
    });
}

/// A mirror of the JobSet of these facts, with its Jobs and Pods.
fn mirrored(facts: &Facts) -> (Mirror, JobSetKey) {
    let key = JobSetKey::new("ml", facts.jobset.metadata.name.clone().unwrap());
    let label = || (labels::JOBSET_NAME.to_owned(), key.name.clone());
    let mut mirror = Mirror::default();
    mirror.apply(WatchEvent::JobSet(Event::Apply(JobSet::clone(&facts.jobset))));
    for mut job in facts.jobs.iter().map(|job| PartialJob::clone(job)) {
        job.metadata.labels.get_or_insert_default().extend([label()]);
        mirror.apply(WatchEvent::Job(Event::Apply(job)));
    }
    for mut pod in facts.pods.iter().map(|pod| PartialPod::clone(pod)) {
        pod.metadata.labels.get_or_insert_default().extend([label()]);
        mirror.apply(WatchEvent::Pod(Event::Apply(pod)));
    }
    (mirror, key)
}

#[test]
fn validate_each_case_prints_verdicts() {
    insta::glob!("../cases", "validate/*", |path| {
        let mut sources = sources(&[path.to_owned()]).unwrap();
        sources[0].name = path.file_name().unwrap().to_string_lossy().into_owned();
        insta::assert_snapshot!(plain(&check(&sources, &AdmissionSettings::default())));
    });
}

/// The text of a report, without colours.
pub(crate) fn plain(report: &impl crate::output::Report) -> String {
    let view = View { now: Timestamp::UNIX_EPOCH, wide: false, pods: false };
    anstream::adapter::strip_str(&report.text(&view)).to_string()
}
