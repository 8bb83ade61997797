//! Who is let in.

use std::path::PathBuf;

use anyhow::Result;
use jobset_harness::wait::{self, Check};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleRef, Subject};
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use kube::config::Kubeconfig;

use crate::cluster::{AUDIENCE, LIMIT, Space, shared};
use crate::peers::{TestAgent, TestController, connect, send_raw};
use crate::program::TestRelay;

fn failed(reason: &str) -> String {
    format!(r#"jobset_relay_failed_authentications_total{{reason="{reason}"}}"#)
}

/// Whether the controller is told nothing but of this Pod.
async fn assert_only(relay: &TestRelay, controller: &mut TestController, space: &Space, pod: &str) -> Result<()> {
    let _agent = TestAgent::connect(relay, &space.agent_token(pod).await?, "train").await?;
    assert_eq!(controller.hello().await?.1.name, pod);
    Ok(())
}

#[tokio::test]
async fn token_with_other_audience_or_without_pod_is_rejected() -> Result<()> {
    let (relay, space) = (TestRelay::start(&[]).await?, Space::new("tokens-wrong").await?);
    let mut controller = TestController::dial(&relay).await?;
    let pod = space.pod("a").await?;
    let good = space.token(&[AUDIENCE], Some(&pod)).await?;
    let (signed, _) = good.rsplit_once('.').unwrap();
    let (_, signature) =
        space.token(&[AUDIENCE], None).await?.rsplit_once('.').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let cases = [
        (space.token(&[], Some(&pod)).await?, "audience", 1),
        (space.token(&["vault"], Some(&pod)).await?, "audience", 2),
        (space.token(&[AUDIENCE, "https://kubernetes.default.svc"], Some(&pod)).await?, "audience", 3),
        (space.token(&[AUDIENCE], None).await?, "no_pod", 1),
        (format!("{signed}.{signature}"), "signature", 1),
        ("password".to_owned(), "malformed", 1),
    ];
    for (token, reason, count) in cases {
        TestAgent::connect(&relay, &token, "train").await?.ended().await?;
        assert_eq!(relay.metric(&failed(reason)).await?, count, "{reason}");
    }
    assert_only(&relay, &mut controller, &space, "b").await
}

/// A kubeconfig of a user that may review tokens and nothing else.
async fn reviewer(name: &str) -> Result<PathBuf> {
    let plane = shared().await?;
    let binding = ClusterRoleBinding {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        role_ref: RoleRef {
            api_group: Some("rbac.authorization.k8s.io".into()),
            kind: "ClusterRole".into(),
            name: "system:auth-delegator".into(),
        },
        subjects: Some(vec![Subject { kind: "User".into(), name: name.into(), ..Subject::default() }]),
    };
    let bindings: Api<ClusterRoleBinding> = Api::all(plane.client());
    bindings.create(&PostParams::default(), &binding).await?;
    let mut config = Kubeconfig::read_from(plane.kubeconfig())?;
    for user in &mut config.auth_infos {
        if let Some(user) = &mut user.auth_info {
            user.impersonate = Some(name.to_owned());
        }
    }
    let path = plane.dir().join(format!("{name}.kubeconfig"));
    // YAML has JSON.
    std::fs::write(&path, serde_json::to_vec(&config)?)?;
    Ok(path)
}

#[tokio::test]
async fn relay_that_cannot_read_the_keys_has_tokens_reviewed() -> Result<()> {
    let kubeconfig = reviewer("relay-reviewer").await?;
    let (relay, space) = (TestRelay::start_as(&kubeconfig, &[]).await?, Space::new("tokens-review").await?);
    let mut controller = TestController::dial(&relay).await?;
    let pod = space.pod("a").await?;
    let token = space.token(&[AUDIENCE], Some(&pod)).await?;
    let _agent = TestAgent::connect(&relay, &token, "train").await?;
    let (_, told, _) = controller.hello().await?;
    assert_eq!(
        (Some(told.name), Some(told.uid), told.namespace),
        (pod.metadata.name, pod.metadata.uid, space.name.clone())
    );
    for audiences in [&[][..], &["vault"]] {
        let token = space.token(audiences, Some(&space.pod(&format!("b{}", audiences.len())).await?)).await?;
        TestAgent::connect(&relay, &token, "train").await?.ended().await?;
    }
    assert_eq!(relay.metric(&failed("audience")).await?, 2);
    let (signed, _) = token.rsplit_once('.').unwrap();
    let other = space.agent_token("c").await?;
    let forged = format!("{signed}.{}", other.rsplit_once('.').unwrap().1);
    TestAgent::connect(&relay, &forged, "train").await?.ended().await?;
    assert_eq!(relay.metric(&failed("denied")).await?, 1);
    // The API server accepts no token of a Pod that is gone.
    space.delete("c").await?;
    TestAgent::connect(&relay, &other, "train").await?.ended().await?;
    assert_eq!(relay.metric(&failed("denied")).await?, 2);
    assert_only(&relay, &mut controller, &space, "d").await
}

#[tokio::test]
async fn client_without_the_certificate_of_the_controller_is_no_controller() -> Result<()> {
    let relay = TestRelay::start(&[]).await?;
    for name in ["jobset-controller.other.svc", "jobset-webhook-service.ns.svc"] {
        // The client notices with the first bytes that it reads.
        if let Ok(controller) = TestController::dial_as(&relay, name).await {
            controller.ended().await?;
        }
    }
    assert_eq!(relay.metric("jobset_relay_controllers").await?, 0);
    let _controller = TestController::dial(&relay).await?;
    relay.wait_for_metric("jobset_relay_controllers", 1).await
}

#[tokio::test]
async fn replaced_certificate_is_shown_to_the_next_agent() -> Result<()> {
    let relay = TestRelay::start(&[]).await?;
    let shown = async || anyhow::Ok(connect(&relay).await?.get_ref().1.peer_certificates().unwrap()[0].clone());
    let before = shown().await?;
    let next = relay.pki.issue(crate::program::RELAY, jobset_stream::tls::testing::ExtendedKeyUsagePurpose::ServerAuth);
    for name in ["tls.crt", "tls.key"] {
        std::fs::copy(next.folder.path().join(name), relay.issued.folder.path().join(name))?;
    }
    wait::until_met(LIMIT, "the replaced certificate", || async {
        let now = shown().await?;
        Ok(if now == next.certified.cert[0] { Check::Met(()) } else { Check::Unmet(format!("{}", now == before)) })
    })
    .await
}

#[tokio::test]
async fn text_that_is_no_hello_ends_the_connection() -> Result<()> {
    let relay = TestRelay::start(&[]).await?;
    for (text, count) in [("{}", 1), (r#"{"Report":{"epoch":1}}"#, 2), ("GET / HTTP/1.1", 3)] {
        let mut stream = connect(&relay).await?;
        let length = u32::try_from(text.len())?.to_be_bytes();
        send_raw(&mut stream, &[&length, text.as_bytes()].concat()).await?;
        relay.wait_for_metric(r#"jobset_relay_refused_connections_total{limit="protocol"}"#, count).await?;
    }
    Ok(())
}
