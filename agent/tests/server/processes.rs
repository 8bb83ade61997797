//! The processes that a supervised worker leaves: none survives into the next epoch, and none stays a zombie.

use anyhow::Result;
use jobset_harness::wait::{self, Check};
use rstest::rstest;

use super::fixture::{LIMIT, TestNamespace};

/// Logs the processes of the container, except the agent and this shell. The script starts no process itself.
const SURVIVORS: &str = "for p in /proc/[0-9]*; do p=${p#/proc/}; \
     if [ $p != 1 ] && [ $p != $$ ] && read -r name </proc/$p/comm; then echo \"$name survives\" >>log; fi; done";

async fn wait_for_log(space: &TestNamespace, expected: &str) -> Result<()> {
    wait::until_met(LIMIT, format!("{expected:?} in the log of {}", space.namespace), || async {
        let log = space.file("log");
        Ok(if log.contains(expected) { Check::Met(()) } else { Check::Unmet(log) })
    })
    .await
}

#[rstest]
#[case::child("left-child", "sleep 1000 &")]
#[case::orphan("left-orphan", "(sleep 1000 &) &")]
#[case::own_session("left-session", "setsid sleep 1000 &")]
#[case::daemon("left-daemon", "(setsid sh -c '(setsid sleep 1000 &) &' &)")]
#[case::signals_ignored("left-deaf", "(setsid sh -c 'trap \"\" TERM HUP INT; sleep 1000' &)")]
#[case::stopped("left-halted", "sleep 1000 & kill -STOP $!")]
#[case::twelve("left-many", "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do (setsid sleep 1000 &); done")]
#[case::forking("left-forking", "(setsid sh -c 'while :; do sleep 0.01 & sleep 0.001; done' &)")]
#[tokio::test]
async fn process_left_by_the_worker_ends_before_the_next_epoch(
    #[case] namespace: &str,
    #[case] leaves: &str,
    #[values(("stopped", "exec sleep 1000"), ("fails", "exit 1"))] end: (&str, &str),
) -> Result<()> {
    let space = TestNamespace::new(&format!("{namespace}-{}", end.0)).await?;
    let script =
        format!("{SURVIVORS}\necho $JOBSET_EPOCH begins >>log\n{leaves}\nsleep 0.2\necho left >>log\n{}", end.1);
    let _agent = space.supervise(&script, &[])?;
    space.lift(1).await?;
    if end.0 == "stopped" {
        wait_for_log(&space, "1 begins\nleft\n").await?;
        space.set_epochs(1, 1).await?;
    }
    space.lift(2).await?;
    wait_for_log(&space, "2 begins\n").await?;
    assert!(!space.file("log").contains("survives"), "{}", space.file("log"));
    Ok(())
}

#[tokio::test]
async fn orphan_that_ends_is_reaped() -> Result<()> {
    let space = TestNamespace::new("zombies").await?;
    let zombies = "$(grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l)";
    let script = format!(
        "for i in 1 2 3 4 5 6 7 8 9 10; do (true &); done; while [ {zombies} != 0 ]; do :; done; echo none >log; \
         exec sleep 1000"
    );
    let _agent = space.supervise(&script, &[])?;
    space.lift(1).await?;
    space.wait_for_file("log", "none\n").await
}
