//! Who may read `/metrics`, and that nobody else is in their way.

use anyhow::{Context, Result};
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use http::Request;
use jobset_harness::install;
use jobset_harness::wait::{self, Check};
use kube::config::AuthInfo;
use kube::{Client, Config};

use crate::fixture::{Fixture, LIMIT};
use crate::program::{NAMESPACE, apply};

/// Tokens of strangers at once: more than the controller remembers.
const STRANGERS: usize = 200;

/// A client that does not verify the certificate, as Prometheus is told not to.
fn scraper(address: &str, token: Option<&str>) -> Result<Client> {
    let mut config = Config::new(format!("https://{address}").parse()?);
    config.accept_invalid_certs = true;
    config.auth_info = AuthInfo { token: token.map(|it| it.to_owned().into()), ..AuthInfo::default() };
    Ok(Client::try_from(config)?)
}

/// What it reads, or the status that it gets.
async fn scrape(client: &Client) -> Result<String, u16> {
    get(client, "/metrics").await
}

async fn get(client: &Client, path: &str) -> Result<String, u16> {
    match client.request_text(Request::get(path).body(Vec::new()).unwrap_or_default()).await {
        Ok(text) => Ok(text),
        Err(kube::Error::Api(status)) => Err(status.code),
        Err(_) => Err(0),
    }
}

#[tokio::test]
async fn metrics_need_permission_of_api_server() -> Result<()> {
    let fixture = Fixture::start_with(&["--metrics-secure=true"]).await?;
    let plane = &fixture.plane;
    apply(plane, &["metrics.yaml"]).await?;
    let address = fixture.controller.address("metrics").await?;
    install::kubectl(plane, &["create", "serviceaccount", "prometheus", "-n", NAMESPACE]).await?;
    let token = install::kubectl(plane, &["create", "token", "prometheus", "-n", NAMESPACE]).await?;
    let token = String::from_utf8(token.stdout)?;
    let prometheus = scraper(&address, Some(token.trim()))?;

    assert_eq!(scrape(&scraper(&address, None)?).await, Err(401));
    assert_eq!(scrape(&scraper(&address, Some("invented"))?).await, Err(401));
    // Every user may get /healthz of an API server. What is asked for one path is not remembered for another.
    assert_eq!(get(&prometheus, "/healthz").await, Err(404));
    assert_eq!(scrape(&prometheus).await, Err(403), "the token is known, and nothing is bound");
    assert_eq!(get(&prometheus, "/healthz").await, Err(404));
    assert_eq!(scrape(&prometheus).await, Err(403), "nor afterwards");
    let plain = fixture.controller.get("metrics", "/metrics").await;
    assert!(!plain.is_ok_and(|it| it.contains("jobset_build_info")), "not by HTTP");

    let account = format!("--serviceaccount={NAMESPACE}:prometheus");
    let role = "--clusterrole=jobset-metrics-reader";
    install::kubectl(plane, &["create", "clusterrolebinding", "prometheus", role, &account]).await?;
    // The refusal is remembered for some seconds.
    wait::until_met(LIMIT, "the metrics", || async {
        let answer = scrape(&prometheus).await;
        Ok(if answer.as_ref().is_ok_and(|it| it.contains("jobset_build_info")) {
            Check::Met(())
        } else {
            Check::Unmet(format!("{answer:?}"))
        })
    })
    .await?;

    let strangers = (0..STRANGERS).map(|number| scraper(&address, Some(&format!("stranger-{number}"))));
    let strangers = strangers.collect::<Result<Vec<_>>>()?;
    let mut refused: FuturesUnordered<_> = strangers.iter().map(scrape).collect();
    let mut turned_away = 0;
    let ahead = async {
        while let Some(answer) = refused.next().await {
            assert!(answer.is_err(), "{answer:?}");
            turned_away += 1;
        }
    };
    let scraped = async {
        for _ in 0..10 {
            assert!(scrape(&prometheus).await.is_ok(), "a flood of strangers is in nobody's way");
        }
    };
    tokio::join!(ahead, scraped);
    assert_eq!(turned_away, STRANGERS);
    fixture.controller.get("health checks", "/healthz").await.context("probes are answered").map(drop)
}
