//! The output of a supervised worker, and what its agent reports of its end.

use std::fs;

use anyhow::{Context, Result};
use jobset_objects::WorkerExit;
use rstest::rstest;

use super::fixture::{TestNamespace, shared};

#[rstest]
#[case::exit_code("words-of-an-exit", "echo step 7; echo loss is NaN >&2; exit 7", 7, None, "loss is NaN")]
#[case::signal("words-of-a-signal", "echo killed; kill -KILL $$", 137, Some(9), "killed")]
#[case::silent("no-words", "exit 1", 1, None, "")]
#[case::hostile("hostile-words", r#"printf '\033[31m\000\377"}}\\\n'; exit 3"#, 3, None, "\u{fffd}\"}}\\")]
#[tokio::test]
async fn failed_worker_exit_is_in_next_report(
    #[case] namespace: &str,
    #[case] script: &str,
    #[case] code: i32,
    #[case] signal: Option<i32>,
    #[case] words: &str,
) -> Result<()> {
    let space = TestNamespace::new(namespace).await?;
    let _agent = space.supervise(script, &[])?;
    space.lift(1).await?;
    space.wait_for_report(2).await?;
    let exit = space.worker_exit().await?.context("no exit is reported")?;
    assert_eq!((exit.epoch, exit.code, exit.signal), (1, code, signal));
    assert!(exit.message.ends_with(words) && exit.finished_at.is_some(), "{exit:?}");
    let reports = space.requests(shared().await?)?.into_iter().filter(|request| request.starts_with("patch")).count();
    assert_eq!(reports, 2, "one request for each epoch");
    Ok(())
}

#[tokio::test]
async fn worker_stopped_for_a_restart_reports_no_exit() -> Result<()> {
    let space = TestNamespace::new("stopped-without-words").await?;
    let _agent = space.supervise("echo $JOBSET_EPOCH >>log; exec sleep 1000", &[])?;
    space.assert_restart("1\n", "1\n2\n").await?;
    assert_eq!(space.worker_exit().await?, None::<WorkerExit>);
    Ok(())
}

#[tokio::test]
async fn output_of_both_streams_is_copied_byte_by_byte() -> Result<()> {
    let space = TestNamespace::of(shared().await?, "output-copied", "Recreate").await?;
    let script = "head -c 50000000 /dev/urandom >first; head -c 50000000 /dev/urandom >second; \
         cat first & cat second >&2; wait; exit 5";
    let mut agent = space.supervise(script, &[("JOBSET_AGENT_LOG", "off")])?;
    assert_eq!(agent.exit_code().await?, 5);
    for (written, copied) in [("first", "stdout"), ("second", "stderr")] {
        let [written, copied] = [written, copied].map(|file| fs::read(space.folder.path().join(file)));
        assert!(written? == copied?, "the output was changed");
    }
    Ok(())
}
