//! Which API server is asked, with which token, and how often one that gives nothing.

use std::net::Ipv4Addr;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result};
use jobset_harness::wait::{self, Seen};
use rstest::rstest;
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::time::timeout;

use super::fake::{Answer, END, Fake, LIMIT, STATE};

/// Where a Pod finds its ServiceAccount.
const ACCOUNT: &str = "/run/secrets/kubernetes.io/serviceaccount";

/// A certificate that nobody's server shows.
const CA: &str = "-----BEGIN CERTIFICATE-----
MIIBcTCCARegAwIBAgIUWI72tccSSmlnkOPwX3Nt4JVKJpowCgYIKoZIzj0EAwIw
DTELMAkGA1UEAwwCY2EwIBcNMjYxMTIyMTAyNjE4WhgPMjEyNjEwMjkxMDI2MTha
MA0xCzAJBgNVBAMMAmNhMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEdLbvFHch
1JlpEE3yXd28g2Jz48Z7eSAzOUr8ig55GSXfOtYA0PcXt0H02YtayYW2brjGkFrM
FY2+JwQ8p59JVaNTMFEwHQYDVR0OBBYEFH8S0ptmnhrT7wpTYfD0qnvsYW+3MB8G
A1UdIwQYMBaAFH8S0ptmnhrT7wpTYfD0qnvsYW+3MA8GA1UdEwEB/wQFMAMBAf8w
CgYIKoZIzj0EAwIDSAAwRQIgLdUTyA9RG2fDTBTTcAFt/LLldDTqw2Lziyr/KqWL
kbACIQCqfcBaAgzQQBIoRwiKe1DyE+I1LTbPT0tZrRXYYb1vrA==
-----END CERTIFICATE-----";

/// An image may bring its own: that is no reason to ask another cluster for the worker's epoch.
#[tokio::test]
async fn in_a_pod_its_own_cluster_is_asked_whatever_kubeconfig_says() -> Result<()> {
    let other = Fake::start(|_| Answer::refusal(403, "Forbidden")).await?;
    // Writes the kubeconfig.
    drop(other.agent("{token: secret}")?);
    let before = other.asked().len();
    let own = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let script = format!(
        "mount -t tmpfs none /run; mkdir -p {ACCOUNT}; cd {ACCOUNT}; echo token >token; echo default >namespace; \
         echo \"$CA\" >ca.crt; exec \"$0\" supervise -- true"
    );
    let mut agent = Command::new("unshare")
        .args(["--mount", "--", "sh", "-ec", &script, env!("CARGO_BIN_EXE_jobset-agent")])
        .env_clear()
        .envs([("POD_NAME", "a-0"), ("JOBSET_NAME", "a"), ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")])
        .envs([
            ("KUBERNETES_SERVICE_HOST", "127.0.0.1"),
            ("KUBERNETES_SERVICE_PORT", &own.local_addr()?.port().to_string()),
        ])
        .env("CA", CA)
        .env("KUBECONFIG", other.folder.path().join("kubeconfig"))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .context("cannot run unshare (Debian: util-linux), as root")?;
    tokio::select! {
        asked = timeout(LIMIT, own.accept()) => drop(asked.context("nobody asks the Pod's own cluster")??),
        ended = agent.wait() => anyhow::bail!("the agent has ended: {}", ended?),
    }
    assert_eq!(other.asked().len(), before, "the other cluster is asked");
    Ok(())
}

/// A token is replaced in its file while the agent runs, and may end in a newline.
#[tokio::test]
async fn a_token_that_is_refused_is_read_again_from_its_file() -> Result<()> {
    let fake = Fake::start(|head| {
        let may = head.lines().any(|line| line.eq_ignore_ascii_case("authorization: Bearer new"));
        match (may, head.starts_with("PATCH")) {
            (false, _) => Answer::refusal(401, "Unauthorized"),
            (true, true) => Answer::of(&["{}"], false),
            (true, false) => Answer::of(&[STATE, END], true),
        }
    })
    .await?;
    fake.write("token", "old\n")?;
    let token = fake.folder.path().join("token");
    let _agent = fake.agent(&format!("{{tokenFile: '{}'}}", token.display()))?;
    fake.says("check the Pod's ServiceAccount token").await?;
    // As a kubelet does: at once, never a part of it.
    fake.write("token.new", "new\n")?;
    std::fs::rename(fake.folder.path().join("token.new"), &token)?;
    wait::until_seen(LIMIT, "a report with the new token", || async {
        let asked = fake.asked();
        let reported = asked.iter().any(|(head, _)| head.starts_with("PATCH"));
        Ok(if reported { Seen::Yes(()) } else { Seen::NotYet(fake.said()) })
    })
    .await
}

#[rstest]
#[case::empty("\n", "empty")]
#[case::of_two_lines("one\ntwo\n", "no header")]
#[tokio::test]
async fn a_token_that_cannot_be_one_is_named(#[case] text: &str, #[case] why: &str) -> Result<()> {
    let fake = Fake::start(|_| Answer::refusal(401, "Unauthorized")).await?;
    fake.write("token", text)?;
    let token = fake.folder.path().join("token");
    let mut agent = fake.agent(&format!("{{tokenFile: '{}'}}", token.display()))?;
    let ended = timeout(LIMIT, agent.wait()).await.with_context(|| fake.said())??;
    let said = fake.said();
    assert_eq!((ended.code(), said.lines().count()), (Some(1), 1), "{said}");
    assert!(said.contains(&token.display().to_string()) && said.contains(why), "{said}");
    Ok(())
}

/// Neither is an answer that the agent could do without, nor a reason to ask for it three times a second.
#[rstest]
#[case::that_says_gone(|| Answer::refusal(410, "Expired"))]
#[case::that_breaks_off(|| Answer::of(&[STATE, END], false))]
#[tokio::test]
async fn a_watch_that_never_lasts_is_asked_for_less_and_less_and_the_log_says_so_once(
    #[case] answer: fn() -> Answer,
) -> Result<()> {
    let patched = |head: &str| head.starts_with("PATCH");
    let fake = Fake::start(move |head| if patched(head) { Answer::of(&["{}"], false) } else { answer() }).await?;
    let _agent = fake.agent("{token: secret}")?;
    let asked = wait::until_seen(LIMIT, "six watches", || async {
        let asked: Vec<_> = fake.asked().into_iter().filter(|(head, _)| !patched(head)).collect();
        Ok(if asked.len() >= 6 { Seen::Yes(asked) } else { Seen::NotYet(fake.said()) })
    })
    .await?;
    // 0.2, 0.4, 0.8, 1.6 and 3.2 s, each at most doubled.
    let took = asked[5].1 - asked[0].1;
    assert!(took >= Duration::from_millis(6_100), "six within {took:?}");
    let said = fake.said();
    assert_eq!(said.matches("does not last").count(), 1, "{said}");
    assert!(said.lines().filter(|line| line.contains("watch")).count() < 3, "{said}");
    Ok(())
}
