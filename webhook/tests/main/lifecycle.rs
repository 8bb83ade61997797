//! The program in front of a real API server, from its start to SIGTERM: what it logs, when it is ready, and what becomes of a
//! review that is in flight.

use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result};
use jobset_certs::material::{CA_KEY, KEY};
use jobset_certs::{Readiness, health};
use jobset_harness::admission::{WEBHOOK, readyz, token};
use jobset_harness::wait;
use jobset_webhook::serve::VALIDATE_PATH;
use k8s_openapi::ByteString;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

use crate::api_server::good;
use crate::certificates::{LEAF, SECRET};
use crate::client::{Client, Http, JSON, authority};
use crate::cluster::{LIMIT, NAMESPACE, Plane, says};
use crate::process::Process;
use crate::server::review;

struct Program {
    process: Process,
    address: SocketAddr,
    health: SocketAddr,
}

impl Program {
    async fn start(plane: &Plane, dir: &Path) -> Result<Self> {
        let mut config: Value = serde_yaml_ng::from_str(&std::fs::read_to_string(plane.plane.kubeconfig())?)?;
        config["users"][0]["user"] = json!({ "token": token(&plane.plane, WEBHOOK).await? });
        let kubeconfig = dir.join("kubeconfig");
        std::fs::write(&kubeconfig, config.to_string())?;
        let host = plane.plane.ready().host_address;
        let free = |host: IpAddr| TcpListener::bind((host, 0)).and_then(|it| it.local_addr());
        let (address, health) = (free(host)?, free([127, 0, 0, 1].into())?);
        let child: Child = Command::new(env!("CARGO_BIN_EXE_jobset-webhook"))
            .args([format!("--listen={address}"), format!("--health-listen={health}")])
            .arg("--metrics-listen=127.0.0.1:0")
            .args([format!("--namespace={NAMESPACE}"), format!("--extra-dns-name={host}")])
            .arg("--drain-delay=3s")
            .env_clear()
            .env("KUBECONFIG", kubeconfig)
            .env("RUST_LOG", "trace")
            .stdin(Stdio::null())
            .stderr(std::fs::File::create(dir.join("log"))?)
            .spawn()?;
        Ok(Self { process: Process(child), address, health })
    }
}

#[tokio::test]
async fn program_stopped_answers_in_flight_and_logs_no_key() -> Result<()> {
    let mut plane = Plane::start().await?;
    plane.start_issuer(&["--ca-lead-time=1s"]).await?;
    let dir = tempfile::tempdir()?;
    let mut program = Program::start(&plane, dir.path()).await?;
    plane.register(program.address).await?;
    says(program.health, "HTTP/1.1 200", "").await?;
    plane.dry_run(&good("first")).await?;
    let mut keys = keys(&plane).await?;
    plane.secrets().delete(SECRET, &DeleteParams::default()).await?;
    let material = wait::until(LIMIT, "a new Secret", async || Ok(plane.material().await.ok())).await?;
    let client = Client { http: Http::One, ..Client::new(program.address, authority(&material)) };
    wait::until(LIMIT, "the new certificate", async || Ok(client.connect().await.is_ok().then_some(()))).await?;
    keys.extend(self::keys(&plane).await?);

    let body = review(&good("in-flight")).to_string();
    let (first, second) = body.split_at(body.len() / 2);
    let mut stream = client.connect().await?;
    let head = format!(
        "POST {VALIDATE_PATH} HTTP/1.1\r\nhost: h\r\ncontent-type: {JSON}\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    let mut interim = [0; 25];
    timeout(LIMIT, stream.read_exact(&mut interim)).await??;
    stream.write_all(first.as_bytes()).await?;
    let id = rustix::process::Pid::from_child(&program.process.0);
    rustix::process::kill_process(id, rustix::process::Signal::TERM)?;
    says(program.health, "HTTP/1.1 503 Service Unavailable\r\n", "").await?;
    assert!(readyz(program.health).await?.ends_with("shutting down\n"));
    // Those who have not heard of it yet are served as ever.
    let late = client.post(VALIDATE_PATH, JSON, body.clone()).await;
    assert_eq!(late.status, 200);
    stream.write_all(second.as_bytes()).await?;
    let mut answer = String::new();
    timeout(LIMIT, stream.read_to_string(&mut answer)).await??;
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains(r#""allowed":"#), "{answer}");
    let status = wait::until(LIMIT, "the process to end", || {
        let ended = program.process.0.try_wait();
        async move { Ok(ended?) }
    });
    assert_eq!(status.await?.code(), Some(0));

    let log = std::fs::read_to_string(dir.path().join("log"))?;
    assert!(log.contains("TRACE") && log.contains("put a certificate into service"), "a log of everything");
    for key in keys {
        assert!(!log.contains(&key), "a part of a key is in the log: {key}");
    }
    plane.plane.stop().await
}

/// Parts of the private keys that are stored, in each notation that a log could have them in.
async fn keys(plane: &Plane) -> Result<Vec<String>> {
    let mut parts = Vec::new();
    for (secret, entry) in [(SECRET, CA_KEY), (SECRET, KEY), (LEAF, KEY)] {
        let data = plane.secrets().get(secret).await?.data.context("the Secret is empty")?;
        let stored = &data[entry];
        let pem = String::from_utf8(stored.0.clone())?;
        parts.extend(pem.lines().filter(|line| !line.starts_with('-')).map(|line| line[..20].to_owned()));
        let encoded = json!(ByteString(stored.0.clone()));
        let encoded = encoded.as_str().context("not base64")?.to_owned();
        parts.extend([100, 180].map(|begin| encoded[begin..begin + 20].to_owned()));
        let lists = [&stored.0[60..70], &stored.0[130..140]];
        parts.extend(lists.map(|bytes| format!("{bytes:?}").trim_matches(['[', ']']).to_owned()));
    }
    Ok(parts)
}

#[tokio::test]
async fn readiness_follows_the_certificate_and_falls_first() {
    let (readiness, ready) = watch::channel(Readiness::NotReady("starting".to_owned()));
    let draining = CancellationToken::new();
    let router = health::routes(ready, draining.clone());
    let get = async |path: &str| {
        let request = axum::http::Request::get(path).body(axum::body::Body::empty()).unwrap();
        let response = router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), 4096).await.unwrap();
        (status, String::from_utf8(body.to_vec()).unwrap())
    };
    assert_eq!(get("/healthz").await.0, 200);
    assert_eq!(get("/readyz").await, (503, "starting\n".to_owned()));
    readiness.send_replace(Readiness::Ready);
    assert_eq!(get("/readyz").await.0, 200);
    readiness.send_replace(Readiness::ReadyBut("a file is broken".to_owned()));
    assert_eq!(get("/readyz").await, (200, "ok, but a file is broken\n".to_owned()));
    draining.cancel();
    assert_eq!(get("/readyz").await, (503, "shutting down\n".to_owned()));
    assert_eq!(get("/healthz").await.0, 200);
}
