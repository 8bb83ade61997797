//! Asks what the watches do not tell: why the JobSets of open pages do not run, and whether a controller leads. It asks nothing
//! while no page is open.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tokio::time::{Instant, timeout};

use super::live::Live;
use super::view::Revision;
use crate::cluster::Cluster;
use crate::explain::{CandidateNode, FactNeeds, Facts};
use crate::mirror::JobSetKey;
use crate::output::capitalized;

/// Pause between two looks for something to ask.
const PAUSE: Duration = Duration::from_millis(500);
/// The Lease of the controllers is read this often.
const LEADER: Duration = Duration::from_secs(5);
/// A JobSet is explained after a change, but not within this time of the last explanation.
const AFTER_CHANGE: Duration = Duration::from_secs(2);
/// A JobSet is explained this often without a change, because nodes and permissions may change.
const WITHOUT_CHANGE: Duration = Duration::from_secs(15);

/// The API server has this long to answer what is asked together. It may never answer, and the client waits for ever.
const LIMIT: Duration = Duration::from_secs(10);

/// The nodes are listed this often, at most.
const NODES: Duration = Duration::from_secs(30);

/// The nodes, and when they were listed.
type KnownNodes = (Instant, Vec<CandidateNode>);
/// When a JobSet was explained last, and the revision in which it had changed last.
type Asked = (Instant, Revision);

/// Asks until the command ends.
pub async fn run(live: &Live, cluster: &Cluster) {
    let mut leader: Option<Instant> = None;
    let mut nodes: Option<KnownNodes> = None;
    let mut explained: BTreeMap<JobSetKey, Asked> = BTreeMap::new();
    loop {
        tokio::time::sleep(PAUSE).await;
        if !live.is_watched() {
            continue;
        }
        if leader.is_none_or(|asked| asked.elapsed() >= LEADER) {
            let found = timeout(LIMIT, cluster.leader()).await.ok().flatten();
            let absence = found.and_then(|leader| leader.absence(Timestamp::now()));
            live.set_absence(absence.map(|text| format!("{}; what this page shows may be old.", capitalized(&text))));
            leader = Some(Instant::now());
        }
        let watched = live.watched();
        explained.retain(|key, _| watched.contains(key));
        for key in watched {
            let Some(changed) = live.changed(&key) else { continue };
            if is_due(explained.get(&key).copied(), changed) {
                explain(live, cluster, &key, &mut nodes).await;
                explained.insert(key, (Instant::now(), changed));
            }
        }
    }
}

fn is_due(asked: Option<Asked>, revision: Revision) -> bool {
    let Some((at, in_revision)) = asked else { return true };
    at.elapsed() >= if revision > in_revision { AFTER_CHANGE } else { WITHOUT_CHANGE }
}

async fn explain(live: &Live, cluster: &Cluster, key: &JobSetKey, nodes: &mut Option<KnownNodes>) {
    let Some(needs) = live.needs(key) else { return };
    let there = cluster.in_namespace(&key.namespace);
    let known = nodes.as_ref().filter(|(listed, _)| needs.nodes && listed.elapsed() < NODES);
    let asked = FactNeeds { nodes: needs.nodes && known.is_none(), ..needs };
    let around = timeout(LIMIT, there.surroundings(&asked)).await;
    // Without an answer, the JobSet is explained by what the watches tell, as for a user who may not ask more.
    let mut around = around.unwrap_or_else(|_| Facts { now: Timestamp::now(), ..Facts::default() });
    match (known, &around.nodes) {
        (Some((_, known)), _) => around.nodes = Some(known.clone()),
        (None, Some(listed)) => *nodes = Some((Instant::now(), listed.clone())),
        (None, None) => {}
    }
    live.explain(key, around);
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::http::StatusCode;
    use axum::routing::get;
    use axum::{Json, Router};
    use kube::runtime::watcher::Event;
    use rstest::rstest;
    use serde_json::json;

    use super::*;
    use crate::mirror::WatchEvent;
    use crate::ui::live::Page;

    #[tokio::test(start_paused = true)]
    async fn jobset_is_explained_though_the_api_server_does_not_answer() {
        // The system accepts connections for a listener, which reads none of their requests.
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let cluster = Cluster::at(silent.local_addr().unwrap(), "ml");
        let live = Arc::new(Live::new(None));
        let jobset = json!({"metadata": {"name": "train", "namespace": "ml"}, "spec": {"replicatedJobs": []}});
        live.take(WatchEvent::JobSet(Event::Apply(serde_json::from_value(jobset).unwrap())));
        live.show();
        let mut page = live.open(Page::JobSet(JobSetKey::new("ml", "train")));
        let explained = async { while !page.next().await.contains("\"explanation\":") {} };
        let asking = run(&live, &cluster);
        tokio::select! {
            () = asking => {}
            explained = timeout(Duration::from_mins(1), explained) => explained.expect("an explanation"),
        }
    }

    /// An API server that allows nothing but to list nodes, of which it has none. It counts these lists.
    async fn counting() -> (Cluster, Arc<AtomicUsize>) {
        let lists = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&lists);
        let nodes = move || {
            counted.fetch_add(1, Ordering::Relaxed);
            async { Json(json!({"kind": "NodeList", "apiVersion": "v1", "metadata": {}, "items": []})) }
        };
        let server = Router::new().route("/api/v1/nodes", get(nodes)).fallback(async || StatusCode::FORBIDDEN);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let cluster = Cluster::at(listener.local_addr().unwrap(), "ml");
        tokio::spawn(async move { axum::serve(listener, server).await });
        (cluster, lists)
    }

    #[tokio::test]
    async fn explanations_share_the_nodes_for_a_while() {
        let (cluster, lists) = counting().await;
        let live = Arc::new(Live::new(None));
        let jobset = json!({"metadata": {"name": "train", "namespace": "ml"}, "spec": {"replicatedJobs": []}});
        live.take(WatchEvent::JobSet(Event::Apply(serde_json::from_value(jobset).unwrap())));
        let pod = json!({"metadata": {"name": "a", "namespace": "ml", "labels": {"jobset.sigs.k8s.io/jobset-name": "train"}},
                         "spec": {"containers": []},
                         "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}});
        live.take(WatchEvent::Pod(Event::Apply(serde_json::from_value(pod).unwrap())));
        live.show();
        let key = JobSetKey::new("ml", "train");
        let mut nodes = None;
        for _ in 0..3 {
            explain(&live, &cluster, &key, &mut nodes).await;
        }
        assert_eq!(lists.load(Ordering::Relaxed), 1);
        // The system's clock may not reach so far back just after a start.
        nodes = nodes.and_then(|(at, nodes)| Some((at.checked_sub(NODES)?, nodes)));
        explain(&live, &cluster, &key, &mut nodes).await;
        assert_eq!(lists.load(Ordering::Relaxed), 2);
    }

    #[rstest]
    #[case::never(None, true)]
    #[case::just_now(Some((0, 4)), false)]
    #[case::change_just_after(Some((1, 3)), false)]
    #[case::change_later(Some((3, 3)), true)]
    #[case::no_change(Some((3, 4)), false)]
    #[case::no_change_for_long(Some((15, 4)), true)]
    #[tokio::test(start_paused = true)]
    async fn jobset_is_explained_after_change_and_from_time_to_time(
        #[case] asked: Option<(u64, Revision)>,
        #[case] expected: bool,
    ) {
        let start = Instant::now();
        tokio::time::advance(Duration::from_secs(20)).await;
        let asked = asked.map(|(ago, revision)| (start + Duration::from_secs(20 - ago), revision));
        assert_eq!(is_due(asked, 4), expected);
    }
}
