//! A plan as text: the changed fields of the status, then one line for each action, event and fact.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use jobset_api::{JobSet, JobSetStatus, labels};
use k8s_openapi::api::batch::v1::Job;
use serde_json::Value;

use crate::{Action, Plan, build};

/// Maximum number of lines of a section. A plan may have thousands of actions.
const SHOWN: usize = 12;

/// The plan for this JobSet, with the objects that it creates as they are built, and with the ledger if a case is about that.
pub(super) fn plan(jobset: &JobSet, before: &JobSetStatus, plan: &Plan, with_ledger: bool) -> String {
    let mut text = String::new();
    let mut changes = changes(before, &plan.status);
    changes.retain(|change| with_ledger || !change.starts_with("ledger: "));
    section(&mut text, "status", &changes);
    section(&mut text, "actions", &plan.actions.iter().map(|it| action(jobset, it)).collect::<Vec<_>>());
    section(&mut text, "notes", &plan.notes.iter().map(note).collect::<Vec<_>>());
    section(&mut text, "facts", &plan.facts.iter().map(|fact| format!("{fact:?}")).collect::<Vec<_>>());
    section(&mut text, "requeue", &plan.requeue.iter().map(ToString::to_string).collect::<Vec<_>>());
    if text.is_empty() { "nothing\n".to_owned() } else { text }
}

fn section(text: &mut String, name: &str, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    let _ = writeln!(text, "{name}:");
    for line in lines.iter().take(SHOWN) {
        let _ = writeln!(text, "  {line}");
    }
    if lines.len() > SHOWN {
        let _ = writeln!(text, "  and {} more", lines.len() - SHOWN);
    }
}

fn changes(before: &JobSetStatus, after: &JobSetStatus) -> Vec<String> {
    let (before, after) = (fields(before), fields(after));
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let changed = names.into_iter().filter(|name| before.get(*name) != after.get(*name));
    changed.map(|name| change(name, before.get(name), after.get(name))).collect()
}

fn change(name: &str, before: Option<&String>, after: Option<&String>) -> String {
    match (before, after) {
        (Some(before), Some(after))
            if !["conditions", "recentRestarts", "ledger"].iter().any(|list| name.starts_with(list)) =>
        {
            format!("{name}: {before} -> {after}")
        }
        (_, Some(after)) => format!("{name}: {after}"),
        (_, None) => format!("{name}: gone"),
    }
}

/// The fields of a status, each as one line; conditions and replicatedJobs by their name.
fn fields(status: &JobSetStatus) -> BTreeMap<String, String> {
    let status = serde_json::to_value(status).unwrap();
    let mut fields = BTreeMap::new();
    for (name, value) in status.as_object().unwrap() {
        match (name.as_str(), value.as_array()) {
            ("conditions", Some(conditions)) => {
                fields
                    .extend(conditions.iter().map(|it| (format!("conditions[{}]", word(&it["type"])), condition(it))));
            }
            ("replicatedJobsStatus", Some(groups)) => {
                fields.extend(
                    groups.iter().map(|it| (format!("replicatedJobsStatus[{}]", word(&it["name"])), counters(it))),
                );
                let recorded = groups.iter().filter(|it| it.get("syncedPods").is_some());
                fields.extend(recorded.map(|it| (format!("syncedPods[{}]", word(&it["name"])), members(it))));
            }
            ("recentRestarts", Some(restarts)) => {
                fields.extend(restarts.iter().map(|it| (format!("recentRestarts[{}]", it["number"]), restart(it))));
            }
            ("nodeStrikes", Some(strikes)) => {
                fields.insert(name.clone(), strikes.iter().map(strike).collect::<Vec<_>>().join("; "));
            }
            ("avoidedNodes", Some(nodes)) => {
                fields.extend(nodes.iter().map(|it| (format!("avoidedNodes[{}]", word(&it["node"])), avoided(it))));
            }
            ("restartRequests", Some(requests)) => {
                fields.extend(requests.iter().map(|it| (format!("restartRequests[{}]", word(&it["id"])), request(it))));
            }
            ("ledger", _) => {
                fields.insert(name.clone(), ledger(value));
            }
            _ => {
                fields.insert(name.clone(), word(value));
            }
        }
    }
    fields
}

fn condition(it: &Value) -> String {
    let [status, reason, since, message] =
        ["status", "reason", "lastTransitionTime", "message"].map(|key| word(&it[key]));
    format!("{status} since {since}, {reason}: {message}")
}

fn restart(it: &Value) -> String {
    let counted = if it["counted"] == true { "counted" } else { "not counted" };
    let completed = it.get("completionTime").map(|time| format!(" to {}", word(time))).unwrap_or_default();
    let [strategy, began, message] = ["strategy", "startTime", "message"].map(|key| word(&it[key]));
    format!("{strategy}, {counted}, {} in a row, {began}{completed}: {message}", it["consecutiveFailures"])
}

fn request(it: &Value) -> String {
    let [outcome, time] = ["outcome", "time"].map(|key| word(&it[key]));
    let restart = it.get("restart").map(|restart| format!(", restart {restart}")).unwrap_or_default();
    let uncounted = if it["uncounted"] == true { ", uncounted" } else { "" };
    format!("{outcome} at {time}{restart}{uncounted}")
}

fn strike(it: &Value) -> String {
    let [node, job, index, reason, time] = ["node", "job", "index", "reason", "time"].map(|key| word(&it[key]));
    format!("{node}: {job} index {index}, {reason} at {time}")
}

fn avoided(it: &Value) -> String {
    let [since, until, failures, reason] = ["since", "until", "failures", "reason"].map(|key| word(&it[key]));
    let more = ["moving", "relaxed", "domain", "topologyKey"];
    let more = more.iter().filter_map(|key| Some(format!(", {key} {}", word(it.get(*key)?))));
    format!("{since} to {until}, {failures} {reason}{}", more.collect::<String>())
}

/// `Running since 2026-01-01T00:02:00Z: scheduling 60000, running 3`, in milliseconds.
fn ledger(it: &Value) -> String {
    let [bucket, since] = ["bucket", "since"].map(|key| word(&it[key]));
    let redone = ["redoneMilliseconds", "redoneSteps"].into_iter().filter_map(|key| Some((key, it.get(key)?)));
    let sums = it["milliseconds"].as_object().unwrap().iter().map(|(name, value)| (name.as_str(), value));
    let sums: Vec<String> = sums.chain(redone).map(|(name, value)| format!("{name} {value}")).collect();
    format!("{bucket} since {since}: {}", if sums.is_empty() { "nothing".to_owned() } else { sums.join(", ") })
}

/// The members of the synced epoch.
fn members(group: &Value) -> String {
    let (pods, parallelism) = (word(&group["syncedPods"]), &group["syncedParallelism"]);
    if pods.is_empty() { "none".to_owned() } else { format!("{pods}, {parallelism} a Job") }
}

/// The counters that are not zero, those of a list with their index.
fn counters(group: &Value) -> String {
    let is_counter = |name: &str| !["name", "syncedPods", "syncedParallelism"].contains(&name);
    let counters = group.as_object().unwrap().iter().filter(|(name, value)| is_counter(name) && **value != 0);
    let counters: Vec<String> = counters.map(|(name, value)| format!("{name} {}", counter(value))).collect();
    if counters.is_empty() { "none".to_owned() } else { counters.join(", ") }
}

fn counter(value: &Value) -> String {
    let Some(list) = value.as_array() else { return value.to_string() };
    let counted = list.iter().enumerate().filter(|(_, counter)| **counter != 0);
    let counted: Vec<String> = counted.map(|(index, counter)| format!("{index}: {counter}")).collect();
    format!("{{{}}}", counted.join(", "))
}

fn word(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned)
}

fn note(note: &crate::Note) -> String {
    let kind = if note.warning { "Warning" } else { "Normal" };
    format!("{kind} {}: {}", note.reason, note.message)
}

fn action(jobset: &JobSet, action: &Action) -> String {
    match action {
        Action::CreateJob(desired) => {
            let job = build::job(jobset, desired);
            let name = job.metadata.name.as_deref().unwrap_or_default();
            let label =
                |key: &str| job.metadata.labels.as_ref().and_then(|labels| labels.get(key)).map_or("?", String::as_str);
            let (attempt, alone) = (label(labels::RESTART_ATTEMPT), label(labels::JOB_RESTART_ATTEMPT));
            let suspended = job.spec.as_ref().and_then(|spec| spec.suspend) == Some(true);
            let execution = execution(&job).map(|execution| format!(", execution {execution}")).unwrap_or_default();
            format!(
                "create Job {name}, attempt {attempt}.{alone}{execution}{}",
                if suspended { ", suspended" } else { "" }
            )
        }
        Action::DeleteJob { name, uid } => format!("delete Job {}", identity(name, uid)),
        Action::SuspendJob { name, uid } => format!("suspend Job {}", identity(name, uid)),
        Action::EndJob { name, uid } => format!("end Job {}", identity(name, uid)),
        Action::ResumeJob { uid, with_resources, desired } => {
            let (name, job) = (identity(&desired.name, uid), build::job(jobset, desired));
            let execution = execution(&job).map(|execution| format!(", execution {execution}")).unwrap_or_default();
            format!("resume Job {name}{execution}{}", if *with_resources { ", with resources" } else { "" })
        }
        Action::ResizeJob { name, uid, parallelism, completions } => {
            let completions = completions.map_or("as they are".to_owned(), |it| it.to_string());
            format!("resize Job {}, parallelism {parallelism}, completions {completions}", identity(name, uid))
        }
        Action::CreateService { name } => format!("create Service {name}"),
        Action::CreateRoleBinding { name, cluster_role } => {
            let binding = build::role_binding(jobset, cluster_role);
            let accounts: Vec<&str> = binding.subjects.iter().flatten().map(|it| it.name.as_str()).collect();
            format!("create RoleBinding {name} of {} to {}", accounts.join(", "), binding.role_ref.name)
        }
        Action::CreateClaim { name, place } => {
            let owned =
                if build::claim(jobset, *place).metadata.owner_references.is_some() { "" } else { ", owned by nobody" };
            format!("create PersistentVolumeClaim {name}{owned}")
        }
        Action::DeletePod { name, uid, reason } => format!("delete Pod {}, {reason:?}", identity(name, uid)),
        Action::ReleasePod { name, uid } => format!("release Pod {}", identity(name, uid)),
        Action::FindWarning { pod, uid, since } => {
            format!("find out what Pod {} was warned of since {since}", identity(pod, uid))
        }
        Action::FindRefusal { job, uid } => format!("find out why Job {} has no Pods", identity(job, uid)),
        Action::DeleteJobSet => "delete the JobSet".to_owned(),
        Action::DisableInPlaceRestart(cause) => {
            format!("annotate the JobSet {}: {cause}", labels::DISABLE_IN_PLACE_RESTART)
        }
        Action::AnnotateRestartBudget(budget) => {
            format!("annotate the JobSet {}: {}", labels::RESTART_BUDGET, budget.word())
        }
    }
}

/// The execution attempt in the annotation of a Job.
fn execution(job: &Job) -> Option<&str> {
    Some(job.metadata.annotations.as_ref()?.get(labels::EXECUTION_ATTEMPT)?.as_str())
}

/// The name, and the UID if it is not the default one.
fn identity(name: &str, uid: &str) -> String {
    if uid == super::defaults::uid(name) { name.to_owned() } else { format!("{name} ({uid})") }
}
