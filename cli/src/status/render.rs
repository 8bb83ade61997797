//! The text of the tree.

use anstyle::Style;
use jobset_api::{AgentStreamStatus, conditions};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};

use super::barrier::PodBarrier;
use super::pod::PodNode;
use super::report::{JobNode, JobSetTree, ReplicatedJobNode};
use super::state::JobSetState;
use crate::goodput;
use crate::nodes::{NodeTally, tally};
use crate::output::{BAD, DIM, GOOD, HEAD, Report, Table, View, WAIT, age, one_line, paint, until};

/// The most Pods of a JobSet that are shown without folding.
const SHOWN_WHOLE: usize = 16;
/// The fewest Pods of a Job that are folded.
const FOLDED: usize = 4;

/// The colour of a state.
pub(super) fn style(state: JobSetState) -> Style {
    match state {
        state if state.is_good() => GOOD,
        state if state.is_bad() => BAD,
        _ => WAIT,
    }
}

impl Report for JobSetTree {
    fn text(&self, view: &View) -> String {
        let conditions = match self.conditions.as_slice() {
            [] => String::new(),
            _ => format!("\n{}\n{}", paint(HEAD, "Conditions"), conditions(self, view)),
        };
        format!("{}{conditions}\n{}{}", head(self, view), tree(self, view), failed_workers(self))
    }
}

/// How old the reports may be that a closed barrier counts.
fn may_be_old(status: &JobSetTree) -> String {
    let lag = status.epochs.and_then(|epochs| epochs.lag);
    lag.map(|lag| format!("; reports may be {} s old", lag.as_secs())).unwrap_or_default()
}

fn head(status: &JobSetTree, view: &View) -> String {
    let name = paint(HEAD, format!("{}/{}", status.namespace, status.name));
    let mut table = Table::indented();
    let created = age(status.created.as_ref().map(|time| time.0), view.now);
    table.push(vec!["Jobs".into(), format!("{} of {} ready", status.jobs_ready, status.jobs)]);
    if let Some(workers) = status.workers.filter(|workers| workers.waiting > 0) {
        let text = format!("{} of {} do not run", workers.waiting, workers.expected);
        table.push(vec!["Workers".into(), paint(WAIT, text)]);
    }
    let restarts = &status.restarts;
    let budget = format!("{} ({:?}); {}", restarts.total, status.strategy, restarts.spent());
    table.push(vec!["Restarts".into(), budget]);
    if let Some(epochs) = status.epochs {
        let text = format!("{} synced, {} deprecated", epochs.synced, epochs.deprecated);
        table.push(vec!["Epoch".into(), text]);
    }
    if let Some(barrier) = &status.barrier {
        let cell = if barrier.lifted {
            paint(GOOD, format!("lifted, the workers of epoch {} may run", barrier.epoch))
        } else {
            let text = format!(
                "closed, {} of {} Pods have reported epoch {}",
                barrier.reported, barrier.expected, barrier.epoch
            );
            paint(WAIT, text + &may_be_old(status))
        };
        table.push(vec!["Barrier".into(), cell]);
    }
    if let Some(agents) = &status.agent_stream {
        table.push(vec!["Agents".into(), on_stream(agents, view)]);
    }
    if let Some(until) = status.barrier_until.as_ref().and_then(|MicroTime(end)| until(*end, view.now)) {
        table.push(vec!["Back-off".into(), paint(WAIT, until)]);
    }
    if let Some(Time(deadline)) = &status.deadline {
        let text = format!("fails at {deadline:.0}, in {}", age(Some(view.now), *deadline));
        table.push(vec!["Deadline".into(), if *deadline > view.now { text } else { paint(WAIT, "has passed") }]);
    }
    for (node, tally) in tally(&status.node_strikes, &status.avoided_nodes, view.now) {
        table.push(vec!["Node".into(), paint(WAIT, trouble(&node, &tally, view))]);
    }
    if let Some(goodput) = status.ledger.as_ref().and_then(|ledger| goodput::summary(ledger, view.now)) {
        table.push(vec!["Goodput".into(), goodput]);
    }
    if let Some(leader) = &status.leader {
        let absent = leader.absence(view.now).map(|text| paint(BAD, text));
        table.push(vec!["Controller".into(), absent.or_else(|| leader.holder.clone()).unwrap_or_default()]);
    }
    table.push(vec!["Age".into(), created]);
    format!("{name}  {}\n{}", paint(style(status.state), format!("{:?}", status.state)), table.render())
}

/// How many agents are on the agent stream, and how old that may be.
fn on_stream(agents: &AgentStreamStatus, view: &View) -> String {
    let written = agents.last_update_time.as_ref().map(|Time(written)| age(Some(*written), view.now));
    let written = written.map(|written| format!(", last written {written} ago")).unwrap_or_default();
    let text = format!("{} of {} on the agent stream{written}", agents.connected_pods, agents.expected_pods);
    if agents.misses_agents() { paint(WAIT, text) } else { text }
}

/// What the JobSet says of a node.
fn trouble(node: &str, tally: &NodeTally, view: &View) -> String {
    let avoided = tally.avoided_until.map(|until| format!("avoided for {}", age(Some(view.now), until)));
    let trouble = [tally.failures(), avoided].into_iter().flatten();
    [node.to_owned()].into_iter().chain(trouble).collect::<Vec<_>>().join(", ")
}

/// Conditions that report a failure when they are true.
const FAILURES: [&str; 11] = [
    conditions::FAILED,
    conditions::INVALID,
    conditions::CHILD_REFUSED,
    conditions::BARRIER_BLOCKED,
    conditions::BARRIER_WAITING,
    conditions::WORKERS_NOT_RUNNING,
    conditions::PROGRESS_STALLED,
    conditions::RECREATION_BLOCKED,
    conditions::RESTART_BACKOFF,
    conditions::IN_PLACE_UNSUPPORTED,
    conditions::INTERNAL_ERROR,
];

fn conditions(status: &JobSetTree, view: &View) -> String {
    let mut table = Table::indented();
    for condition in &status.conditions {
        let is_true = condition.status == "True";
        let style = match condition.type_.as_str() {
            _ if !is_true => DIM,
            conditions::COMPLETED => GOOD,
            type_ if FAILURES.contains(&type_) => BAD,
            _ => Style::new(),
        };
        table.push(vec![
            paint(style, &condition.type_),
            paint(style, &condition.status),
            paint(style, &condition.reason),
            paint(style, age(Some(condition.last_transition_time.0), view.now)),
            paint(style, one_line(&condition.message)),
        ]);
    }
    table.render()
}

/// Line prefixes of a node and of the nodes below it.
fn branch(is_last: bool) -> (&'static str, &'static str) {
    if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") }
}

fn tree(status: &JobSetTree, view: &View) -> String {
    let in_place = status.epochs.is_some();
    let mut titles = vec!["NAME", "STATE", "READY"];
    if in_place {
        titles.extend(["EPOCH", "BARRIER"]);
    }
    titles.extend(["RESTARTS", "NODE"]);
    if view.wide {
        titles.extend(["AGE", "LAST EXIT"]);
    }
    let mut table = Table::titled(&titles);
    let pods: usize = status.replicated_jobs.iter().flat_map(|group| &group.jobs).map(|job| job.pods.len()).sum();
    let ended = matches!(status.state, JobSetState::Completed | JobSetState::Failed);
    let lines = Lines { whole: view.pods || pods <= SHOWN_WHOLE, in_place, ended, view };
    for group in &status.replicated_jobs {
        table.push(lines.group(group));
        for (index, job) in group.jobs.iter().enumerate() {
            let (own, below) = branch(index + 1 == group.jobs.len());
            table.push(lines.job(job, own));
            lines.pods(&job.pods, below, &mut table);
        }
    }
    if !status.other_pods.is_empty() {
        table.push(vec![paint(DIM, "(Pods of Jobs that are gone)")]);
        lines.pods(&status.other_pods, "", &mut table);
    }
    table.render()
}

/// The failed workers whose Pods stay after the JobSet has failed, and how they ended.
fn failed_workers(status: &JobSetTree) -> String {
    let pods = status.replicated_jobs.iter().flat_map(|group| &group.jobs).flat_map(|job| &job.pods);
    let failed: Vec<&PodNode> =
        pods.filter(|pod| status.state == JobSetState::Failed && pod.stays_as_evidence()).collect();
    if failed.is_empty() {
        return String::new();
    }
    let mut table = Table::indented();
    for pod in failed.iter().take(SHOWN_WHOLE) {
        table.push(vec![paint(BAD, &pod.name), pod.last_exit.clone().unwrap_or_default()]);
    }
    let more = match failed.len().saturating_sub(SHOWN_WHOLE) {
        0 => String::new(),
        more => format!("  and {more} more\n"),
    };
    format!("\n{}\n{}{more}", paint(HEAD, "Failed workers"), table.render())
}

/// Makes the rows of the tree.
struct Lines<'a> {
    whole: bool,
    in_place: bool,
    ended: bool,
    view: &'a View,
}

impl Lines<'_> {
    fn group(&self, group: &ReplicatedJobNode) -> Vec<String> {
        let ReplicatedJobNode { replicas, ready, succeeded, failed, .. } = *group;
        let all = ready + succeeded >= replicas;
        let state = match (failed, succeeded == replicas) {
            (0, true) if replicas == 0 => "NoJobs".to_owned(),
            (0, true) => "Complete".to_owned(),
            (0, _) if all => "Ready".to_owned(),
            (0, _) if group.jobs.is_empty() && self.ended => "Deleted".to_owned(),
            (0, _) if group.jobs.is_empty() && replicas > 0 => "NotCreated".to_owned(),
            (0, _) if group.jobs.iter().all(|job| job.state == "Suspended") => "Suspended".to_owned(),
            (0, _) => "Active".to_owned(),
            (failed, _) => format!("{failed} failed"),
        };
        let style = if failed > 0 { BAD } else { done(all) };
        let ready = format!("{}/{replicas}", ready + succeeded);
        self.row(paint(HEAD, &group.name), (style, &state, &ready), Default::default(), positive(group.restarts), "")
    }

    fn job(&self, job: &JobNode, prefix: &str) -> Vec<String> {
        let done_pods = job.ready + job.succeeded;
        let style = if job.state == "Failed" { BAD } else { done(matches!(job.state, "Ready" | "Complete")) };
        let ready = format!("{done_pods}/{}", job.parallelism);
        let name = format!("{prefix}{}", job.name);
        let mut row = self.row(name, (style, job.state, &ready), Default::default(), positive(job.recreations), "");
        if self.view.wide {
            row.push(age(job.created.as_ref().map(|time| time.0), self.view.now));
        }
        row
    }

    fn pods(&self, pods: &[PodNode], prefix: &str, table: &mut Table) {
        let lines = fold(pods, if self.whole { usize::MAX } else { FOLDED });
        for (index, (pod, count)) in lines.iter().enumerate() {
            let prefix = format!("{prefix}{}", branch(index + 1 == lines.len()).0);
            table.push(if *count == 1 { self.pod(pod, &prefix) } else { self.alike(pod, *count, &prefix) });
        }
    }

    fn pod(&self, pod: &PodNode, prefix: &str) -> Vec<String> {
        let style = pod_style(pod);
        let (ready, all) = pod.containers;
        let ready = format!("{ready}/{all}");
        let (name, node) = (format!("{prefix}{}", pod.name), pod.node.as_deref().unwrap_or("-"));
        let mut row = self.row(name, (style, &pod.state, &ready), at_barrier(pod), pod.restarts.to_string(), node);
        if self.view.wide {
            row.push(age(pod.created.as_ref().map(|time| time.0), self.view.now));
            row.push(pod.last_exit.as_deref().unwrap_or("-").into());
        }
        row
    }

    fn alike(&self, first: &PodNode, count: usize, prefix: &str) -> Vec<String> {
        let ready = match first {
            PodNode { ended: true, .. } => "",
            PodNode { ready: true, .. } => "all ready",
            _ => "none ready",
        };
        let cells = (pod_style(first), first.state.as_str(), ready);
        self.row(format!("{prefix}{count} Pods"), cells, at_barrier(first), String::new(), "")
    }

    /// A row without the columns of `-o wide`. The style is that of the state and of the count of ready parts.
    fn row(
        &self,
        name: String,
        (style, state, ready): (Style, &str, &str),
        barrier: [String; 2],
        restarts: String,
        node: &str,
    ) -> Vec<String> {
        let mut row = vec![name, paint(style, state), paint(style, ready)];
        if self.in_place {
            row.extend(barrier);
        }
        row.extend([restarts, node.to_owned()]);
        row
    }
}

/// The lines for the Pods of one Job: each Pod alone, or the first of at least `smallest` Pods that are alike, with their
/// count. Each line takes the place of its first Pod.
fn fold(pods: &[PodNode], smallest: usize) -> Vec<(&PodNode, usize)> {
    let are_alike =
        |a: &PodNode, b: &PodNode| (&a.state, a.ready, &a.epoch, a.barrier) == (&b.state, b.ready, &b.epoch, b.barrier);
    let mut kinds: Vec<Vec<&PodNode>> = Vec::new();
    for pod in pods {
        match kinds.iter_mut().find(|alike| are_alike(alike[0], pod)) {
            Some(alike) => alike.push(pod),
            None => kinds.push(vec![pod]),
        }
    }
    let lines = kinds.into_iter().flat_map(|alike| match alike.len() {
        count if count >= smallest => vec![(alike[0], count)],
        _ => alike.into_iter().map(|pod| (pod, 1)).collect(),
    });
    lines.collect()
}

/// The columns EPOCH and BARRIER.
fn at_barrier(pod: &PodNode) -> [String; 2] {
    let epoch = pod.epoch.as_deref().unwrap_or("-");
    let barrier = pod.barrier.map_or_else(String::new, |barrier| {
        let style = match barrier {
            PodBarrier::Lifted => GOOD,
            PodBarrier::Invalid => BAD,
            _ => WAIT,
        };
        paint(style, barrier.as_str())
    });
    [epoch.into(), barrier]
}

fn pod_style(pod: &PodNode) -> Style {
    match pod.state.as_str() {
        "Succeeded" | "Completed" => DIM,
        _ if pod.ready => GOOD,
        _ if pod.ended => BAD,
        _ if pod.has_error() => BAD,
        _ => WAIT,
    }
}

fn done(is_done: bool) -> Style {
    if is_done { GOOD } else { WAIT }
}

/// The number, or nothing for 0.
fn positive(number: i32) -> String {
    if number > 0 { number.to_string() } else { String::new() }
}
