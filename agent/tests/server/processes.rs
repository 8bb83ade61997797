//! What a supervised worker leaves behind: nothing of it survives into the next epoch, and no corpse stays.

use anyhow::Result;
use jobset_harness::wait::{self, Seen};
use rstest::rstest;

use super::fixture::{LIMIT, Space};

/// Writes down the processes of the container that are neither the agent nor this shell, which starts none for it.
const SURVIVORS: &str = "for p in /proc/[0-9]*; do p=${p#/proc/}; \
     if [ $p != 1 ] && [ $p != $$ ] && read -r name </proc/$p/comm; then echo \"$name survives\" >>log; fi; done";

async fn says(space: &Space, wanted: &str) -> Result<()> {
    wait::until_seen(LIMIT, format!("{wanted:?} of {}", space.namespace), || async {
        let log = space.written("log");
        Ok(if log.contains(wanted) { Seen::Yes(()) } else { Seen::NotYet(log) })
    })
    .await
}

#[rstest]
#[case::a_child("left-child", "sleep 1000 &")]
#[case::an_orphan("left-orphan", "(sleep 1000 &) &")]
#[case::in_a_session_of_its_own("left-session", "setsid sleep 1000 &")]
#[case::forked_away_twice("left-daemon", "(setsid sh -c '(setsid sleep 1000 &) &' &)")]
#[case::deaf("left-deaf", "(setsid sh -c 'trap \"\" TERM HUP INT; sleep 1000' &)")]
#[case::stopped("left-halted", "sleep 1000 & kill -STOP $!")]
#[case::many("left-many", "for i in 1 2 3 4 5 6 7 8 9 10 11 12; do (setsid sleep 1000 &); done")]
#[case::forking("left-forking", "(setsid sh -c 'while :; do sleep 0.01 & sleep 0.001; done' &)")]
#[tokio::test]
async fn nothing_survives_into_the_next_epoch(
    #[case] namespace: &str,
    #[case] leaves: &str,
    #[values(("stopped", "exec sleep 1000"), ("fails", "exit 1"))] end: (&str, &str),
) -> Result<()> {
    let space = Space::new(&format!("{namespace}-{}", end.0)).await?;
    let script =
        format!("{SURVIVORS}\necho $JOBSET_EPOCH begins >>log\n{leaves}\nsleep 0.2\necho left >>log\n{}", end.1);
    let _agent = space.supervise(&script, &[])?;
    space.lift(1).await?;
    if end.0 == "stopped" {
        says(&space, "1 begins\nleft\n").await?;
        space.say(1, 1).await?;
    }
    space.lift(2).await?;
    says(&space, "2 begins\n").await?;
    assert!(!space.written("log").contains("survives"), "{}", space.written("log"));
    Ok(())
}

#[tokio::test]
async fn orphans_that_end_leave_no_corpse() -> Result<()> {
    let space = Space::new("corpses").await?;
    let corpses = "$(grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l)";
    let script = format!(
        "for i in 1 2 3 4 5 6 7 8 9 10; do (true &); done; while [ {corpses} != 0 ]; do :; done; echo none >log; \
         exec sleep 1000"
    );
    let _agent = space.supervise(&script, &[])?;
    space.lift(1).await?;
    space.writes("log", "none\n").await
}
