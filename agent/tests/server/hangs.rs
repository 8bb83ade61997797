//! Groups of real workers of which one hangs, at random: who notices, how soon, and what the evidence says. There is no controller, so
//! that nothing restarts them.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jobset_api::ProgressReport;
use jobset_harness::wait::{self, Check};

use super::fixture::{LIMIT, TestNamespace, shared};

/// Workers of a group.
const RANKS: usize = 3;
/// Groups that run at once.
const AT_ONCE: usize = 4;
/// Time of a step.
const STEP: Duration = Duration::from_millis(200);
const KINDS: [&str; 5] = ["stop", "deadlock", "disk", "peer", "loop"];

/// A worker: makes steps, each with an all-reduce in which each waits for its neighbour, and hangs on demand.
const WORKER: &str = r#"
hang() {
    date +%s.%N >hung
    case $KIND in
    stop) kill -STOP $$ ;;
    deadlock) mkfifo never; read -r _ <never ;;
    disk) mkfifo disk; echo "step=$((step - 1)) phase=checkpoint limit=5" >$JOBSET_PROGRESS_FILE; echo >disk ;;
    peer) sleep 1000 ;;
    loop) while :; do :; done ;;
    esac
}
step=0
while :; do
    step=$((step + 1))
    [ $step = $AT ] && [ $RANK = $WHO ] && hang
    echo "step=$((step - 1)) in=all_reduce" >$JOBSET_PROGRESS_FILE
    echo $step >pipe-$NEXT &
    read -r _ <pipe-$RANK
    wait
    echo "step=$step" >$JOBSET_PROGRESS_FILE
    sleep 0.2
done
"#;

/// What came of one group.
#[derive(Debug)]
struct HangOutcome {
    kind: &'static str,
    /// From the last step of the group to the last report.
    noticed_after: Duration,
    /// Whether the reports tell the worker that hangs from the others, and name no other.
    named: Option<bool>,
}

/// The rank that the reports single out: by a stopped process, or as the only one that is not in the operation of the others.
fn blamed(reports: &BTreeMap<usize, ProgressReport>) -> Option<usize> {
    let only = |is: &dyn Fn(&ProgressReport) -> bool| {
        let mut found = reports.iter().filter(|(_, report)| is(report)).map(|(rank, _)| *rank);
        found.next().filter(|_| found.next().is_none())
    };
    let is_stopped = |report: &ProgressReport| {
        report.stall.as_ref().is_some_and(|stall| stall.evidence.processes.iter().any(|process| process.state == "T"))
    };
    let is_outside = |report: &ProgressReport| report.stall.as_ref().is_some_and(|stall| stall.within.is_none());
    only(&is_stopped).or_else(|| only(&is_outside))
}

async fn hang(seed: u64) -> Result<HangOutcome> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let (kind, who, at) = (KINDS[rng.usize(..KINDS.len())], rng.usize(..RANKS), rng.u32(3..20));
    let space = TestNamespace::new(&format!("hang-{seed}")).await?;
    let mut agents = Vec::new();
    for rank in 0..RANKS {
        space.create_pod(&format!("rank-{rank}")).await?;
        rustix::fs::mkfifoat(rustix::fs::CWD, space.folder.path().join(format!("pipe-{rank}")), 0o600.into())?;
        let (number, next) = (rank.to_string(), ((rank + 1) % RANKS).to_string());
        let (pod, file) = (format!("rank-{rank}"), format!("progress-{rank}"));
        let env = [
            ("POD_NAME", &*pod),
            ("JOBSET_PROGRESS_FILE", &file),
            ("STALL_AFTER", "5s"),
            ("RANK", &number),
            ("NEXT", &next),
            ("WHO", &who.to_string()),
            ("AT", &at.to_string()),
            ("KIND", kind),
        ];
        agents.push(space.supervise(WORKER, &env)?);
    }
    for rank in 0..RANKS {
        space.wait_for_report_of(&format!("rank-{rank}"), 1).await?;
    }
    space.set_epochs(1, 0).await?;
    let reports = wait::until_met(LIMIT, format!("all stalls of seed {seed}, {kind}"), || async {
        let mut reports = BTreeMap::new();
        for rank in 0..RANKS {
            let report = space.progress_of(&format!("rank-{rank}")).await?;
            reports.extend(report.filter(|report| report.stall.is_some()).map(|report| (rank, report)));
        }
        Ok(if reports.len() == RANKS { Check::Met(reports) } else { Check::Unmet(format!("{reports:?}")) })
    })
    .await?;
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let hung: f64 = space.file("hung").trim().parse().context("nobody hung")?;
    let noticed_after = now.saturating_sub(Duration::from_secs_f64(hung));
    Ok(HangOutcome { kind, noticed_after, named: blamed(&reports).map(|rank| rank == who) })
}

/// `HANGS` groups from `SEED` on. Prints how many were noticed later than after three steps and five seconds, of which the limit takes
/// five, and fails where another rank is named than the one that hangs.
#[tokio::test]
#[ignore = "takes minutes: make hangs"]
async fn worker_that_hangs_is_noticed_in_time() -> Result<()> {
    let number =
        |name: &str, default: u64| std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default);
    let (seed, count) = (number("SEED", 1), number("HANGS", 200));
    shared().await?;
    let outcomes: Vec<HangOutcome> =
        stream::iter(seed..seed + count).map(hang).buffer_unordered(AT_ONCE).try_collect().await?;
    let limit = 3 * STEP + Duration::from_secs(5);
    let late: Vec<_> = outcomes.iter().filter(|outcome| outcome.noticed_after > limit).collect();
    println!("{} of {} noticed after more than {limit:?}", late.len(), outcomes.len());
    let wrong: Vec<_> = outcomes.iter().filter(|outcome| outcome.named == Some(false)).collect();
    for kind in KINDS {
        let of_kind: Vec<_> = outcomes.iter().filter(|outcome| outcome.kind == kind).collect();
        let named = of_kind.iter().filter(|outcome| outcome.named.is_some()).count();
        let slowest = of_kind.iter().map(|outcome| outcome.noticed_after).max().unwrap_or_default();
        println!("{kind}: {} hangs, slowest noticed after {slowest:.2?}, {named} named", of_kind.len());
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    Ok(())
}
