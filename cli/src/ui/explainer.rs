//! Asks what the watches do not tell: why the JobSets of open pages do not run, and whether a controller leads. It asks nothing
//! while no page is open.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use tokio::time::{Instant, timeout};

use super::live::Live;
use super::view::Revision;
use crate::cluster::Cluster;
use crate::explain::Facts;
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
const PATIENCE: Duration = Duration::from_secs(10);

/// When something was asked last, and in which revision.
type Asked = (Instant, Revision);

/// Asks until the command ends.
pub async fn run(live: &Live, cluster: &Cluster) {
    let mut leader: Option<Instant> = None;
    let mut explained: BTreeMap<JobSetKey, Asked> = BTreeMap::new();
    loop {
        tokio::time::sleep(PAUSE).await;
        if !live.is_watched() {
            continue;
        }
        if leader.is_none_or(|asked| asked.elapsed() >= LEADER) {
            let found = timeout(PATIENCE, cluster.leader()).await.ok().flatten();
            let absence = found.and_then(|leader| leader.absence(Timestamp::now()));
            live.set_absence(absence.map(|text| format!("{}; what this page shows may be old.", capitalized(&text))));
            leader = Some(Instant::now());
        }
        let watched = live.watched();
        explained.retain(|key, _| watched.contains(key));
        for key in watched {
            if is_due(explained.get(&key).copied(), live.revision()) {
                explain(live, cluster, &key).await;
                // The explanation itself is a revision.
                explained.insert(key, (Instant::now(), live.revision()));
            }
        }
    }
}

fn is_due(asked: Option<Asked>, revision: Revision) -> bool {
    let Some((at, in_revision)) = asked else { return true };
    at.elapsed() >= if revision > in_revision { AFTER_CHANGE } else { WITHOUT_CHANGE }
}

async fn explain(live: &Live, cluster: &Cluster, key: &JobSetKey) {
    let Some(needs) = live.needs(key) else { return };
    let there = cluster.in_namespace(&key.namespace);
    let around = timeout(PATIENCE, there.surroundings(&key.name, &needs)).await;
    // Without an answer, the JobSet is explained by what the watches tell, as for a user who may not ask more.
    live.explain(key, around.unwrap_or_else(|_| Facts { now: Timestamp::now(), ..Facts::default() }));
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::Arc;

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
            explained = timeout(Duration::from_secs(60), explained) => explained.expect("an explanation"),
        }
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
