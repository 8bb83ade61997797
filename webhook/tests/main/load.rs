//! Reviews at a rate, as API servers ask for them: over connections that are kept and over new ones, each verified by the
//! live caBundle. Every single one has to be answered.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::StreamExt as _;
use http_body_util::BodyExt as _;
use hyper::body::Bytes;
use jobset_webhook::serve::VALIDATE_PATH;
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::Api;
use kube::runtime::watcher::watch_object;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use crate::api_server::good;
use crate::client::{Client, JSON, Sender, http2, request};
use crate::cluster::{Plane, Replica, VALIDATING};
use crate::server::{UID, complete, review};

/// Reviews of the replicas themselves: 200 per second.
const PAUSE: Duration = Duration::from_millis(5);
/// Of these, the part that opens a connection of its own.
const NEW: u32 = 8;
/// JobSets that the API server is asked about, each of which it reviews twice per replica.
const API_SERVER_PAUSE: Duration = Duration::from_millis(100);
/// Of either kind, those that may be in flight. A machine that cannot answer at the rate gets fewer: what is tried here is
/// rotations, and everybody's timeouts are for machines that keep up.
const IN_FLIGHT: usize = 16;

type Bundle = Arc<Vec<u8>>;

/// Reviews in progress.
pub(crate) struct Load {
    stop: CancellationToken,
    tasks: [JoinHandle<Result<()>>; 2],
    bundles: JoinHandle<()>,
    answered: Arc<Answered>,
}

#[derive(Debug, Default)]
pub(crate) struct Answered {
    direct: AtomicU32,
    connections: AtomicU32,
    through_the_api_server: AtomicU32,
    /// The longest that one of either kind took, in milliseconds.
    longest: [AtomicU64; 2],
}

impl Load {
    pub(crate) async fn start(plane: &Arc<Plane>, replicas: &[&Replica]) -> Result<Self> {
        let (live, bundles) = bundles(plane).await?;
        let (stop, answered) = (CancellationToken::new(), Arc::new(Answered::default()));
        let addresses = replicas.iter().map(|it| it.address).collect();
        let direct = Direct { live, addresses, kept: Mutex::default(), answered: Arc::clone(&answered) };
        let tasks = [
            tokio::spawn(Arc::new(direct).ask(stop.clone())),
            tokio::spawn(ask_the_api_server(Arc::clone(plane), Arc::clone(&answered), stop.clone())),
        ];
        Ok(Self { stop, tasks, bundles, answered })
    }

    /// Ends, and fails if any review was not answered with consent.
    pub(crate) async fn stop(self) -> Result<Arc<Answered>> {
        self.stop.cancel();
        for task in self.tasks {
            task.await??;
        }
        self.bundles.abort();
        println!("answered: {:?}", self.answered);
        Ok(self.answered)
    }
}

impl Answered {
    fn took(&self, kind: usize, since: Instant) {
        self.longest[kind].fetch_max(u64::try_from(since.elapsed().as_millis()).unwrap(), Ordering::Relaxed);
    }

    pub(crate) fn expect_at_least(&self, number: u32) {
        let counts = [&self.direct, &self.connections, &self.through_the_api_server];
        assert!(counts.iter().any(|it| it.load(Ordering::Relaxed) >= number), "{self:?}");
        assert!(counts.iter().all(|it| it.load(Ordering::Relaxed) > 0), "{self:?}");
    }
}

/// The caBundle as it changes, as soon as API servers hear of it.
async fn bundles(plane: &Plane) -> Result<(watch::Receiver<Bundle>, JoinHandle<()>)> {
    let api = Api::<ValidatingWebhookConfiguration>::all(plane.client());
    let bundle = |it: ValidatingWebhookConfiguration| {
        let webhook = it.webhooks.into_iter().flatten().next();
        Arc::new(webhook.and_then(|it| it.client_config.ca_bundle).unwrap_or_default().0)
    };
    let (sender, receiver) = watch::channel(bundle(api.get(VALIDATING).await?));
    let follow = async move {
        let mut changes = watch_object(api, VALIDATING).boxed();
        while let Some(change) = changes.next().await {
            if let Ok(Some(configuration)) = change {
                sender.send_replace(bundle(configuration));
            }
        }
    };
    Ok((receiver, tokio::spawn(follow)))
}

/// Asks the replicas themselves.
struct Direct {
    live: watch::Receiver<Bundle>,
    addresses: Vec<SocketAddr>,
    /// One connection to each, opened again when the caBundle has changed, as API servers do it.
    kept: Mutex<HashMap<SocketAddr, (Bundle, Sender)>>,
    answered: Arc<Answered>,
}

impl Direct {
    async fn ask(self: Arc<Self>, stop: CancellationToken) -> Result<()> {
        let body = Bytes::from(complete(&review(&good("load"))).to_string());
        let mut ticks = interval(PAUSE);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut asked = JoinSet::new();
        for number in 0_u32.. {
            ticks.tick().await;
            if stop.is_cancelled() {
                break;
            }
            let (this, body) = (Arc::clone(&self), body.clone());
            asked.spawn(async move { this.ask_once(number, body).await.with_context(|| format!("review {number}")) });
            make_room(&mut asked, IN_FLIGHT).await?;
        }
        make_room(&mut asked, 1).await
    }

    async fn ask_once(&self, number: u32, body: Bytes) -> Result<()> {
        let begun = Instant::now();
        let address = self.addresses[number as usize % self.addresses.len()];
        let bundle = self.live.borrow().clone();
        let kept = self.kept.lock().unwrap().get(&address).filter(|(verified, _)| *verified == bundle).cloned();
        let mut sender = match kept {
            Some((_, sender)) if !sender.is_closed() && !number.is_multiple_of(NEW) => sender,
            _ => {
                let sender = self.connect(address, &bundle).await?;
                self.kept.lock().unwrap().insert(address, (bundle, sender.clone()));
                sender
            }
        };
        let answer = sender.send_request(request(hyper::Method::POST, VALIDATE_PATH, JSON, body)).await?;
        ensure!(answer.status() == 200, "answered with {}", answer.status());
        let answer: Value = serde_json::from_slice(&answer.into_body().collect().await?.to_bytes())?;
        let response = &answer["response"];
        ensure!(response["allowed"] == true && response["uid"] == UID, "answered with {answer}");
        self.answered.direct.fetch_add(1, Ordering::Relaxed);
        self.answered.took(0, begun);
        Ok(())
    }

    async fn connect(&self, address: SocketAddr, bundle: &[u8]) -> Result<Sender> {
        let trusted = CertificateDer::pem_slice_iter(bundle).collect::<Result<_, _>>()?;
        let stream = Client::new(address, trusted).connect().await.context("no connection")?;
        let (sender, _) = http2(stream).await?;
        self.answered.connections.fetch_add(1, Ordering::Relaxed);
        Ok(sender)
    }
}

async fn ask_the_api_server(plane: Arc<Plane>, answered: Arc<Answered>, stop: CancellationToken) -> Result<()> {
    let mut ticks = interval(API_SERVER_PAUSE);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut asked = JoinSet::new();
    while !stop.is_cancelled() {
        ticks.tick().await;
        let (plane, answered) = (Arc::clone(&plane), Arc::clone(&answered));
        asked.spawn(async move {
            let begun = Instant::now();
            let refused = || format!("refused by the API server after {:?}; so far {answered:?}", begun.elapsed());
            plane.dry_run(&good("load")).await.with_context(refused)?;
            answered.took(1, begun);
            answered.through_the_api_server.fetch_add(1, Ordering::Relaxed);
            anyhow::Ok(())
        });
        make_room(&mut asked, IN_FLIGHT).await?;
    }
    make_room(&mut asked, 1).await
}

/// Waits until fewer than so many are in flight.
async fn make_room(asked: &mut JoinSet<Result<()>>, limit: usize) -> Result<()> {
    while let Some(answered) = asked.try_join_next() {
        answered??;
    }
    while asked.len() >= limit {
        asked.join_next().await.context("some are in flight")???;
    }
    Ok(())
}
