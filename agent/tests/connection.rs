//! Which API server the agent uses, with which token, and how it backs off.

use std::net::Ipv4Addr;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result};
use jobset_harness::wait::{self, Check};
use jobset_stream::tls::Identity;
use jobset_stream::tls::testing::{ExtendedKeyUsagePurpose, Pki};
use rstest::rstest;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::time::timeout;

use super::fake::{END, FakeApiServer, FakeResponse, LIMIT, STATE};

/// The folder of a Pod's ServiceAccount.
const ACCOUNT: &str = "/run/secrets/kubernetes.io/serviceaccount";

/// The agent with the ServiceAccount of a Pod, which trusts this CA, and this port for its API server.
fn agent_in_a_pod(ca: &Pki, port: u16) -> Command {
    let script = format!(
        "mount -t tmpfs none /run; mkdir -p {ACCOUNT}; cd {ACCOUNT}; echo token >token; echo default >namespace; \
         echo \"$CA\" >ca.crt; exec \"$0\" supervise -- true"
    );
    let mut agent = Command::new("unshare");
    agent
        .args(["--mount", "--", "sh", "-ec", &script, env!("CARGO_BIN_EXE_jobset-agent")])
        .env_clear()
        .envs([("POD_NAME", "a-0"), ("JOBSET_NAME", "a"), ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")])
        .envs([("KUBERNETES_SERVICE_HOST", "127.0.0.1"), ("KUBERNETES_SERVICE_PORT", &port.to_string())])
        .env("CA", ca.pem())
        .stdin(Stdio::null())
        .kill_on_drop(true);
    agent
}

/// The image of a worker may set KUBECONFIG for another cluster.
#[tokio::test]
async fn agent_in_a_pod_ignores_kubeconfig() -> Result<()> {
    let other = FakeApiServer::start(|_| FakeResponse::error(403, "Forbidden")).await?;
    // Writes the kubeconfig.
    drop(other.agent("{token: secret}")?);
    let before = other.requests().len();
    let own = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let mut agent = agent_in_a_pod(&Pki::new(), own.local_addr()?.port())
        .env("KUBECONFIG", other.folder.path().join("kubeconfig"))
        .spawn()
        .context("cannot run unshare (Debian: util-linux), as root")?;
    tokio::select! {
        accepted = timeout(LIMIT, own.accept()) => drop(accepted.context("the agent does not connect to the cluster of its Pod")??),
        ended = agent.wait() => anyhow::bail!("the agent has ended: {}", ended?),
    }
    assert_eq!(other.requests().len(), before, "the agent uses the other cluster");
    Ok(())
}

/// The API server has a certificate of a new CA, and the kubelet updates the file of the Pod later. The client reads it once a
/// minute.
#[tokio::test]
async fn agent_trusts_new_cluster_ca_from_its_file() -> Result<()> {
    let (old, new) = (Pki::new(), Pki::new());
    let issued = new.issue("127.0.0.1", ExtendedKeyUsagePurpose::ServerAuth);
    let tls = Identity::read(issued.folder.path())?.server()?;
    let fake = FakeApiServer::start_with(Some(tls), |head| {
        let is_report = head.starts_with("PATCH");
        if is_report { FakeResponse::lines(&["{}"], false) } else { FakeResponse::lines(&[STATE, END], true) }
    })
    .await?;
    let stderr = std::fs::File::create(fake.folder.path().join("stderr"))?;
    let agent = agent_in_a_pod(&old, fake.address.port()).stderr(stderr).spawn()?;
    fake.wait_for_log("invalid peer certificate").await?;
    assert_eq!(fake.requests().len(), 0, "no request reaches an API server that the agent does not trust");
    let process = agent.id().context("the agent has ended")?;
    // Replaces the file atomically, as a kubelet does.
    let account = std::path::PathBuf::from(format!("/proc/{process}/root{ACCOUNT}"));
    std::fs::write(account.join("ca.crt.new"), old.pem() + &new.pem())?;
    std::fs::rename(account.join("ca.crt.new"), account.join("ca.crt"))?;
    fake.wait_for_report(3 * LIMIT).await
}

/// A token is replaced in its file while the agent runs, and may end in a newline.
#[tokio::test]
async fn token_rejected_is_read_again_from_its_file() -> Result<()> {
    let fake = FakeApiServer::start(|head| {
        let is_authorized = head.lines().any(|line| line.eq_ignore_ascii_case("authorization: Bearer new"));
        match (is_authorized, head.starts_with("PATCH")) {
            (false, _) => FakeResponse::error(401, "Unauthorized"),
            (true, true) => FakeResponse::lines(&["{}"], false),
            (true, false) => FakeResponse::lines(&[STATE, END], true),
        }
    })
    .await?;
    fake.write("token", "old\n")?;
    let token = fake.folder.path().join("token");
    let _agent = fake.agent(&format!("{{tokenFile: '{}'}}", token.display()))?;
    fake.wait_for_log("check the Pod's ServiceAccount token").await?;
    // Replaces the file atomically, as a kubelet does.
    fake.write("token.new", "new\n")?;
    std::fs::rename(fake.folder.path().join("token.new"), &token)?;
    fake.wait_for_report(LIMIT).await
}

#[rstest]
#[case::empty("\n", "empty")]
#[case::of_two_lines("one\ntwo\n", "not valid in an HTTP header")]
#[tokio::test]
async fn token_malformed_is_named(#[case] text: &str, #[case] why: &str) -> Result<()> {
    let fake = FakeApiServer::start(|_| FakeResponse::error(401, "Unauthorized")).await?;
    fake.write("token", text)?;
    let token = fake.folder.path().join("token");
    let mut agent = fake.agent(&format!("{{tokenFile: '{}'}}", token.display()))?;
    let ended = timeout(LIMIT, agent.wait()).await.with_context(|| fake.log())??;
    let log = fake.log();
    assert_eq!((ended.code(), log.lines().count()), (Some(1), 1), "{log}");
    assert!(log.contains(&token.display().to_string()) && log.contains(why), "{log}");
    Ok(())
}

/// The agent needs the watch, so it retries. It must not retry several times a second.
#[rstest]
#[case::gone(|| FakeResponse::error(410, "Expired"))]
#[case::interrupted(|| FakeResponse::lines(&[STATE, END], false))]
#[tokio::test]
async fn watch_that_never_lasts_backs_off_and_warns_once(#[case] answer: fn() -> FakeResponse) -> Result<()> {
    let patched = |head: &str| head.starts_with("PATCH");
    let fake =
        FakeApiServer::start(move |head| if patched(head) { FakeResponse::lines(&["{}"], false) } else { answer() })
            .await?;
    let _agent = fake.agent("{token: secret}")?;
    let watches = wait::until_met(LIMIT, "six watches", || async {
        let watches: Vec<_> = fake.requests().into_iter().filter(|(head, _)| !patched(head)).collect();
        Ok(if watches.len() >= 6 { Check::Met(watches) } else { Check::Unmet(fake.log()) })
    })
    .await?;
    // 0.2, 0.4, 0.8, 1.6 and 3.2 s, each at most doubled.
    let took = watches[5].1 - watches[0].1;
    assert!(took >= Duration::from_millis(6_100), "six watches within {took:?}");
    let log = fake.log();
    assert_eq!(log.matches("does not last").count(), 1, "{log}");
    assert!(log.lines().filter(|line| line.contains("watch")).count() < 3, "{log}");
    Ok(())
}

/// What the reports of a worker's first two epochs are about.
const WHOLE: &[&str] = &["start", "start words"];
/// An older policy does not know the start of the agent.
const WITHOUT_START: &[&str] = &["start", "no start", "words"];
/// A still older one does not know the words of its worker.
const ALONE: &[&str] = &["start", "no start", "words", ""];

#[rstest]
#[case::admitted(&[], 403, "Forbidden", WHOLE)]
#[case::older_policy(&["agent-started\":\""], 403, "Forbidden", WITHOUT_START)]
#[case::malformed(&["agent-started\":\""], 400, "BadRequest", WITHOUT_START)]
#[case::first_policy(&["agent-started\":\"", "worker-exit"], 403, "Forbidden", ALONE)]
#[case::validation(&["agent-started\":\"", "worker-exit"], 422, "Invalid", ALONE)]
#[case::too_large(&["agent-started\":\"", "worker-exit"], 413, "RequestEntityTooLarge", ALONE)]
#[tokio::test]
async fn report_rejected_says_less_at_once_and_from_then_on(
    #[case] rejected: &'static [&'static str],
    #[case] code: u16,
    #[case] reason: &'static str,
    #[case] expected: &[&str],
) -> Result<()> {
    let running =
        STATE.replace("\"resourceVersion\": \"5\"}", "\"resourceVersion\": \"7\"}, \"status\": {\"syncedEpoch\": 1}");
    let running = running.replace("ADDED", "MODIFIED");
    let fake = FakeApiServer::start(move |request| match request.starts_with("PATCH") {
        true if rejected.iter().any(|text| request.contains(text)) => FakeResponse::error(code, reason),
        true => FakeResponse::lines(&["{}"], false),
        false => FakeResponse::lines(&[STATE, END, &running], true),
    })
    .await?;
    let _agent = fake.agent_of("{token: secret}", "false")?;
    let contents = || {
        let requests = fake.requests().into_iter().map(|(request, _)| request);
        let said = |request: String| {
            let has = [("agent-started\":\"", "start"), ("agent-started\":null", "no start"), ("worker-exit", "words")];
            has.iter().filter(|(text, _)| request.contains(text)).map(|(_, name)| *name).collect::<Vec<_>>().join(" ")
        };
        requests.filter(|request| request.starts_with("PATCH")).map(said).collect::<Vec<_>>()
    };
    wait::until(LIMIT, "the reports of two epochs", || async {
        Ok((contents().len() >= expected.len()).then_some(()))
    })
    .await?;
    assert_eq!(contents(), expected);
    Ok(())
}
